"""What waits moves from one cluster to another, both at work, and each message arrives in one, once."""

from __future__ import annotations

import base64
import json
import random
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from delayline import DelayProducer, cron, every
from delayline.headers import H_DELIVER_AT, H_ID, H_PARENT, H_SCHEDULED_FOR, H_SIGNATURE, H_TIMES
from delayline.receipt import Receipt
from delayline.recurrence import SAME_INTERVAL
from delayline.wire import signed_headers
from election.operators import PauseState
from ops.clients.kafka import KafkaAdmin
from ops.clients.settings_topic import SettingsTopic
from ops.errors import ConflictError
from ops.pending import imports
from ops.pending.jsonl import in_lines
from ops.pending.line import RecurrenceColumns
from ops.pending.signed_topic import SignedTopic
from ops.settings import change
from ops.topics.cluster_topics import make_settings_topic
from tests.integration.test_carrying import ends_of, forget
from tests.integration.test_signed import forged, send
from tests.logging_state import restored_logging
from tests.support.aborted import abort
from tests.support.cluster import Cluster
from tests.support.commands import Done, Operator
from tests.support.fixtures import MakeCluster
from tests.support.operators import AUTHOR, say
from tests.support.requests import Sender, now_ms
from tests.support.tail import Got, read_all
from tests.support.waiting import PATIENCE_S, eventually
from tests.unit.test_pending_line import line as line_of

SECOND_MS = 1_000
HOUR_MS = 3_600_000
ASKED = 8  # the step of `pending_process` at which the first cancels are committed
OLD_HEADERS = {"trace": b"\xff\x00", "none": None}


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str]) -> Iterator[Operator]:
    with restored_logging():
        yield Operator(capsys, "pending")


@pytest.fixture
def two(make_cluster: MakeCluster) -> tuple[Cluster, Cluster]:
    """The second one has another number of partitions and of lanes."""
    return make_cluster(lanes=2), make_cluster(partitions=3, lanes=2)


def of(cluster: Cluster) -> list[str]:
    """The options that name a cluster."""
    return ["--bootstrap", cluster.bootstrap, "--zookeeper", cluster.zookeeper, "--cluster", cluster.name]


def export(typed: Operator, cluster: Cluster, file: Path, *more: str) -> Done:
    confirm = [] if "--keep" in more else ["--confirm", cluster.name]
    done = typed("export", str(file), "-o", "json", *confirm, *more, *of(cluster))
    assert done.code == 0, done.err
    return done


def import_(typed: Operator, cluster: Cluster, file: Path) -> dict[str, Any]:
    """What it has counted."""
    done = typed("import", str(file), "-o", "json", *of(cluster))
    assert done.code == 0, done.err
    return {what: count for what, count in done.data.items() if what not in {"export", "refused"}}


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def producer_of(cluster: Cluster) -> DelayProducer:
    config = {"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "log_level": 0}
    return DelayProducer(config, cluster=cluster.name, outcomes=True)


def start_all(old: Cluster, new: Cluster) -> None:
    """Waits until they lead: what nodes in this process say at their start is no output of a command."""
    for cluster, name in ((old, "old"), (new, "new")):
        for lane in range(cluster.settings.lanes):
            cluster.start_here(f"{name}-{lane}", lane=lane)
    for cluster in (old, new):
        for lane in range(cluster.settings.lanes):
            cluster.wait_epoch(1, lane)


def survey(typed: Operator, cluster: Cluster) -> Counter[str]:
    """How many messages wait there, by state."""
    done = typed("export", "--dry-run", "-o", "json", *of(cluster))
    assert done.code == 0, done.err
    return sum((Counter({row["state"]: row["messages"]}) for row in done.data), Counter())


def waiting(typed: Operator, cluster: Cluster) -> int:
    """How many messages wait there."""
    return survey(typed, cluster).total()


def test_messages_of_all_kinds_arrive_from_the_new_cluster_as_they_were(
    two: tuple[Cluster, Cluster], typed: Operator, tmp_path: Path
) -> None:
    old, new = two
    start_all(old, new)
    file = tmp_path / "out.jsonl"
    target, due_ms = old.target(), now_ms() + HOUR_MS
    say(old, PauseState(None, {target: AUTHOR}))
    eventually(
        lambda: all(old.member(f"old-{lane}")["paused_targets"] == [target] for lane in range(2)),
        "it is known",
    )
    with producer_of(old) as producer:
        plain = producer.schedule(target, b"plain", key=b"k", headers=OLD_HEADERS, after="1s", partition=1)
        producer.schedule(target, None, key=None, id="named", after="1s")
        producer.schedule(old.target("sentinels"), b"moved", id="moved", deliver_at=due_ms)
        producer.reschedule("moved", after="1s", expire_at=due_ms).outcome(PATIENCE_S)
        chain = every("1h", factor=2, times=5)
        producer.schedule(target, b"chain", id="chain", deliver_at=due_ms, repeat=chain)
        hour = (datetime.now(UTC).hour + 12) % 24  # half a day away, whenever this runs
        daily = cron(f"0 {hour} * * *", time_zone="Europe/Berlin", missed="latest")
        producer.schedule(target, b"cron", id="cron", repeat=daily)
        producer.schedule(target, b"expires", deliver_at=due_ms, expire_at=due_ms + 5)
        producer.flush()
    # What is paused is overdue by then, and held.
    eventually(lambda: "parked" in survey(typed, old), "its messages are held")
    done = export(typed, old, file)
    assert waiting(typed, old) == 0
    *lines, end = lines_of(file)
    delivered = [got.value for got in old.delivered]
    assert end["op"] == "end"
    assert end["messages"] == len(lines) == done.data["messages"]
    known = {line["id"] or line["source"]: line for line in lines}
    assert known[str(plain.source)]["target_partition"] == 1
    assert known["chain"]["recurrence"]["times"] == 5
    assert known["cron"]["recurrence"]["time_zone"] == "Europe/Berlin"
    assert import_(typed, new, file) == {"messages": len(lines), "imported": len(lines), "before": 0}
    assert import_(typed, new, file) == {"messages": len(lines), "imported": 0, "before": len(lines)}
    arriving = [line for line in lines if line["scheduled_for_ms"] < due_ms - SECOND_MS]
    old.tail.wait(lambda: len(old.delivered) >= len(arriving) - ("moved" in known), "they arrive")
    assert delivered == []
    got = next(one for one in old.delivered if one.value == b"plain")
    assert (got.partition, got.key, got.headers[:2]) == (1, b"k", list(OLD_HEADERS.items()))
    assert got.text(H_ID) == f"moved/{known[str(plain.source)]['buffer_id']}/{plain.source}"
    assert got.number(H_SCHEDULED_FOR) == known[str(plain.source)]["scheduled_for_ms"]
    named = next(one for one in old.delivered if one.text(H_ID) == "named")
    assert (named.key, named.value) == (None, None)
    assert waiting(typed, new) == 3


def run_to_step(last: int, most: int, words: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs a command that is killed at a step, if it comes to that one."""
    process = [sys.executable, "-m", "tests.integration.pending_process", str(most), str(last), "pending"]
    return subprocess.run([*process, *words], capture_output=True, text=True, timeout=90, check=False)


def run_killed(
    most: int, steps: random.Random, words: list[str], *, most_runs: int = 60, most_steps: int = 14
) -> tuple[int, subprocess.CompletedProcess[str]]:
    """Runs a command again and again, killed at a step each time, until one comes to its end; how many runs
    were killed, and how the last one ended.
    """
    for killed in range(most_runs):
        done = run_to_step(steps.randint(1, most_steps), most, words)
        if done.returncode != -signal.SIGKILL:
            return killed, done
    raise AssertionError("it comes to no end")


class Traffic(threading.Thread):
    """Moves messages that have an id, again and again, until it is told to stop. `begun`: each was moved."""

    def __init__(self, cluster: Cluster, ids: list[str], times: random.Random) -> None:
        super().__init__(daemon=True)
        self.moved: dict[str, list[tuple[int, Receipt]]] = {}
        self.begun, self.stopped = threading.Event(), threading.Event()
        self._cluster, self._ids, self._times = cluster, ids, times

    def run(self) -> None:
        with producer_of(self._cluster) as producer:
            for id_ in self._ids:
                self._move(producer, id_)
            producer.flush()
            self.begun.set()
            while not self.stopped.wait(0.02):
                self._move(producer, self._times.choice(self._ids))
            for moves in self.moved.values():
                for _, receipt in moves:
                    receipt.outcome(PATIENCE_S)

    def _move(self, producer: DelayProducer, id_: str) -> None:
        at_ms = now_ms() + self._times.randint(20, 40) * SECOND_MS
        self.moved.setdefault(id_, []).append((at_ms, producer.reschedule(id_, deliver_at=at_ms)))


@pytest.mark.timeout(480)  # some twenty commands start, one after the other
def test_however_often_both_are_killed_each_message_arrives_once(
    two: tuple[Cluster, Cluster], typed: Operator, tmp_path: Path
) -> None:
    old, new = two
    start_all(old, new)
    file, seed = tmp_path / "out.jsonl", random.Random(1)
    begun_ms = now_ms()
    with producer_of(old) as producer:
        for n in range(300):
            at_ms = begun_ms + seed.randint(2, 45) * SECOND_MS
            producer.schedule(old.target(), b"m%d" % n, id=f"m{n}" if n % 3 else None, deliver_at=at_ms)
        for n in range(20):
            often = every("1s", times=30)
            producer.schedule(old.target(), b"c%d" % n, id=f"c{n}" if n % 2 else None, repeat=often)
        for n in range(40):
            producer.schedule(old.target(), b"r%d" % n, id=f"r{n}", deliver_at=begun_ms + HOUR_MS)
        producer.flush()
    traffic = Traffic(old, [f"r{n}" for n in range(40)], random.Random(2))
    traffic.start()
    assert traffic.begun.wait(PATIENCE_S)
    killed, done = run_killed(150, seed, ["export", str(file), "--confirm", old.name, *of(old)])
    assert done.returncode == 0, done.stderr
    assert killed > 0
    traffic.stopped.set()
    traffic.join(PATIENCE_S)
    assert not traffic.is_alive()
    *lines, _ = lines_of(file)
    assert lines
    total = 300 + 20 * 30 + 40
    imports, done = run_killed(20, seed, ["import", str(file), *of(new)])
    assert done.returncode == 0, done.stderr
    assert imports > 0
    assert import_(typed, new, file)["imported"] == 0
    total = 300 + 20 * 30 + 40
    old.tail.wait(lambda: len(old.delivered) >= total, "all have arrived", 150)
    old.tail.catch_up()
    arrived = Counter(
        (one.value, one.number(H_SCHEDULED_FOR) if b"c" in (one.value or b"") else 0) for one in old.delivered
    )
    assert [what for what, count in arrived.items() if count > 1] == []
    values = Counter(one.value for one in old.delivered)
    assert values == {
        **{b"m%d" % n: 1 for n in range(300)},
        **{b"c%d" % n: 30 for n in range(20)},
        **{b"r%d" % n: 1 for n in range(40)},
    }
    # Whoever was told that it is moved, has it moved.
    told = {one.value: one.number(H_SCHEDULED_FOR) for one in old.delivered}
    for id_, moves in traffic.moved.items():
        carried_out = [at_ms for at_ms, receipt in moves if receipt.outcome(0).outcome == "rescheduled"]
        assert told[id_.encode()] == carried_out[-1]


def test_a_chain_that_takes_many_transactions_is_imported_once_however_often_that_is_killed(
    make_cluster: MakeCluster, typed: Operator, tmp_path: Path
) -> None:
    new = make_cluster(partitions=1)
    new.start_here("new")
    new.wait_candidates(1)
    # It grows more slowly than it is imported, however slow the machine is.
    interval_ms = 10 * SECOND_MS
    file, first_ms = tmp_path / "chain.jsonl", now_ms() - 30 * interval_ms
    recurrence = RecurrenceColumns(None, interval_ms, SAME_INTERVAL, None, 500, None, "all")
    chain = line_of(
        target_topic=new.target(), id="c", scheduled_for_ms=first_ms, occurrence=1, recurrence=recurrence
    )
    in_lines(file).write("e", [chain, line_of(target_topic=new.target(), id="last", place=8, export="e")])
    most = 4
    killed, done = run_killed(most, random.Random(3), ["import", str(file), *of(new)])
    assert done.returncode == 0, done.stderr
    assert killed > 0
    assert import_(typed, new, file) == {"messages": 2, "imported": 0, "before": 2}
    sent = [
        (got.text(H_ID), got.number(H_DELIVER_AT), got.text(H_TIMES))
        for got in read_all(new.bootstrap, new.names.buffer)
        if H_PARENT not in dict(got.headers)
    ]
    # Each transaction has one word on how far it is.
    assert len(read_all(new.bootstrap, f"{new.name}.import")) >= len(sent) / most
    *alone, rest, last = sent
    assert len(alone) > 30
    assert alone == [
        (f"moved/b/{chain.source}/{at_ms}", at_ms, None)
        for at_ms in (first_ms + n * interval_ms for n in range(len(alone)))
    ]
    assert rest == ("c", first_ms + len(alone) * interval_ms, str(500 - len(alone)))
    assert last == ("last", 1_000, None)
    new.wait_delivered(30)


def test_what_falls_due_while_a_chain_is_imported_is_no_part_of_the_chain(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun_ms, step_ms = now_ms(), HOUR_MS // 2
    clock = count(begun_ms, step_ms)  # as if the line took hours
    monkeypatch.setattr(imports, "now_ms", lambda: next(clock))
    monkeypatch.setattr(imports, "MOST_SENT", 2)
    hourly = RecurrenceColumns(None, HOUR_MS, SAME_INTERVAL, None, None, None, "all")
    chain = line_of(scheduled_for_ms=begun_ms - 5 * HOUR_MS, id="c", occurrence=1, recurrence=hourly)
    file = tmp_path / "chain.jsonl"
    in_lines(file).write("e", [chain])
    goes_into = imports.cluster_of(cluster.connection)
    assert imports.send_file(goes_into, in_lines(file), 1e9, AUTHOR, print) == (1, 0)
    ended_ms = next(clock) - 2 * step_ms  # before the last word on how far it is
    sent = [got.number(H_DELIVER_AT) for got in read_all(cluster.bootstrap, cluster.names.buffer)]
    assert sorted(sent) == [begun_ms + n * HOUR_MS for n in range(-5, len(sent) - 5)]
    assert max(sent) > ended_ms > begun_ms + HOUR_MS


def test_a_copy_leaves_all_where_it_is_and_can_be_put_back_once(
    make_cluster: MakeCluster, typed: Operator, tmp_path: Path
) -> None:
    old, new = make_cluster(), make_cluster(partitions=1)
    start_all(old, new)
    file = tmp_path / "copy.jsonl"
    with producer_of(old) as producer:
        for n in range(5):
            producer.schedule(old.target(), b"%d" % n, after="1h")
    done = export(typed, old, file, "--keep")
    assert (done.data["messages"], waiting(typed, old)) == (5, 5)
    again = typed("export", str(file), "--keep", *of(old))
    assert (again.code, "is there already" in again.err) == (5, True)
    assert import_(typed, new, file)["imported"] == 5
    assert import_(typed, new, file)["imported"] == 0
    other = tmp_path / "other.jsonl"
    export(typed, old, other, "--keep")
    # Another export, of messages whose ids the new cluster knows.
    assert import_(typed, new, other)["imported"] == 5
    new.tail.wait(lambda: len(new.outcomes) == 5, "they are duplicates")
    assert {one["outcome"] for one in new.outcomes} == {"duplicate"}
    assert waiting(typed, new) == 5


def test_what_retention_has_taken_and_a_carry_has_moves_as_well(
    make_cluster: MakeCluster, typed: Operator, tmp_path: Path
) -> None:
    old = make_cluster(retention_ms=6_000, dedup_window_ms=500)
    old.start_here("old", replay_window_s=0.5)
    with Sender(old) as sender:
        for n in range(6):
            sender.schedule(at_ms=now_ms() + HOUR_MS, id=f"id-{n}" if n % 2 else None, partition=n % 2)
        ledger = sender.flush()
    forget(old, ends_of(ledger))
    file = tmp_path / "out.jsonl"
    export(typed, old, file)
    *lines, _ = lines_of(file)
    assert {line["source"] for line in lines} == set(ledger.schedules)
    for line in lines:
        sent = ledger.schedules[line["source"]]
        assert (line["id"], line["scheduled_for_ms"]) == (sent.id, sent.deliver_at_ms)
        assert base64.b64decode(line["value"]) == sent.value
        assert [one["key"] for one in line["headers"]] == [key for key, _ in sent.headers]
    assert waiting(typed, old) == 0


def test_an_export_goes_on_where_it_was_until_it_is_forgotten(
    make_cluster: MakeCluster, typed: Operator, tmp_path: Path
) -> None:
    old = make_cluster()
    old.start_here("old")
    old.wait_candidates(1)

    def show() -> Done:
        return typed("show", "-o", "json", *of(old))

    assert show().code == 3
    with producer_of(old) as producer:
        producer.schedule(old.target(), b"first", after="1h").result(PATIENCE_S)
        export(typed, old, tmp_path / "1.jsonl")
        producer.schedule(old.target(), b"second", after="1h").result(PATIENCE_S)
        export(typed, old, tmp_path / "2.jsonl")
    first, second = lines_of(tmp_path / "1.jsonl"), lines_of(tmp_path / "2.jsonl")
    assert first[:-1] == second[:1]
    assert (len(first), len(second)) == (2, 3)
    assert (show().data["messages"], show().data["open"]) == (2, 0)
    elsewhere = typed("forget", "--confirm", "another", *of(old))
    assert elsewhere.code == 2
    assert typed("forget", "--confirm", old.name, *of(old)).code == 0
    eventually(lambda: show().code == 3, "its topic is gone")


def test_what_the_new_cluster_refuses_is_said_before_anything_is_sent(
    make_cluster: MakeCluster, typed: Operator, tmp_path: Path
) -> None:
    old = make_cluster()
    strict = make_cluster(allow_list=("allowed*",), max_delay_ms=HOUR_MS, levels_ms=(1,))
    old.start_here("old")
    old.wait_candidates(1)
    file = tmp_path / "copy.jsonl"
    with producer_of(old) as producer:
        producer.schedule("allowed", b"fits", after="30m")
        producer.schedule("allowed", b"too long", after="3h")
        producer.schedule("forbidden", b"not allowed", after="30m")
    export(typed, old, file, "--keep")
    checked = typed("import", str(file), "--check", "-o", "json", *of(strict))
    assert checked.code == 5
    assert checked.data["codes"] == {"delay-too-long": 1, "target-forbidden": 1}
    assert {one["code"] for one in checked.data["first_refused"]} == set(checked.data["codes"])
    refused = typed("import", str(file), *of(strict))
    assert (refused.code, "nothing was sent" in refused.err) == (5, True)
    assert sum(buffer_ends(strict).values()) == 0
    partly = typed("import", str(file), "--without-refused", "-o", "json", *of(strict))
    assert (partly.code, partly.data["imported"], partly.data["refused"]) == (5, 1, 2)
    others = lines_of(tmp_path / "copy.jsonl.refused")
    *aside, trailer = others
    assert {one["target_topic"] for one in aside} == {"allowed", "forbidden"}
    assert "target_topic" not in trailer
    assert import_(typed, strict, file) == {"messages": 3, "imported": 0, "before": 3}


def test_however_often_an_import_is_killed_what_is_refused_is_aside_once_and_all_else_sent_once(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    strict = make_cluster(partitions=1, allow_list=("allowed*",))
    file, refused = tmp_path / "out.jsonl", tmp_path / "out.jsonl.refused"
    lines = [
        line_of(place=n, id=f"m{n}", target_topic="forbidden" if n % 3 == 0 else "allowed") for n in range(20)
    ]
    in_lines(file).write("e", lines)
    words = ["import", str(file), "--without-refused", *of(strict)]
    killed, done = run_killed(3, random.Random(5), words)
    assert done.returncode in {0, 5}, done.stderr  # whether the last run has refused any
    assert killed > 0
    sent = [got.text(H_ID) for got in read_all(strict.bootstrap, strict.names.buffer)]
    assert sent == [f"m{n}" for n in range(20) if n % 3]
    *aside, _ = lines_of(refused)
    assert [line["id"] for line in aside] == [f"m{n}" for n in range(0, 20, 3)]


def buffer_ends(cluster: Cluster) -> dict[int, int]:
    """Where the buffer's partitions end."""
    return KafkaAdmin(cluster.connection).ends(cluster.names.buffer)


def test_an_export_reads_the_log_by_what_topic_and_znode_know_together(
    make_cluster: MakeCluster, typed: Operator, tmp_path: Path
) -> None:
    """The topic was lost, and has earlier settings again, by which what waits is a reject."""
    cluster = make_cluster(max_delay_ms=HOUR_MS, levels_ms=(HOUR_MS,))
    cluster.start_here("a")
    cluster.wait_candidates(1)
    chosen = {"max_delay_ms": 24 * HOUR_MS}
    planned, _, _ = change.change(cluster.connection, chosen, AUTHOR, PATIENCE_S)
    with producer_of(cluster) as producer:
        producer.schedule(cluster.target(), b"waits", after="3h")
    eventually(lambda: waiting(typed, cluster) == 1, "it waits")
    cluster.delete_topic(cluster.names.settings)
    make_settings_topic(KafkaAdmin(cluster.connection), cluster.settings)
    SettingsTopic(cluster.connection, cluster.names, cluster.keys).write_first(planned.before)
    file = tmp_path / "copy.jsonl"
    export(typed, cluster, file, "--keep")
    line, _ = lines_of(file)
    assert base64.b64decode(line["value"]) == b"waits"


def test_a_wrong_start_changes_nothing_and_says_why(
    make_cluster: MakeCluster, typed: Operator, tmp_path: Path
) -> None:
    old = make_cluster()
    with producer_of(old) as producer:
        producer.schedule(old.target(), b"waits", after="1h").result(PATIENCE_S)
    file = tmp_path / "out.jsonl"
    assert typed("export", str(file), *of(old)).code == 2  # nobody confirms
    assert typed("export", str(file), "--confirm", "other", *of(old)).code == 2
    without_node = typed("export", str(file), "--confirm", old.name, *of(old))
    assert (without_node.code, "no node of lane 0" in without_node.err) == (6, True)
    file.write_text('{"op":"schedule","format":1}\n')
    broken = typed("import", str(file), *of(old))
    assert (broken.code, "line 1" in broken.err) == (2, True)
    file.write_text('{"op":"schedule","format":2}\n')
    newer = typed("import", str(file), *of(old))
    assert (newer.code, "upgrade delayline" in newer.err) == (2, True)
    assert sum(buffer_ends(old).values()) == 1


def test_what_strangers_write_beside_an_export_is_never_imported(
    make_cluster: MakeCluster, typed: Operator, tmp_path: Path
) -> None:
    old, new = make_cluster(), make_cluster(partitions=1)
    start_all(old, new)
    with producer_of(old) as producer:
        cancelled = producer.schedule(old.target(), b"cancelled", after="1h")
        producer.cancel(source=cancelled).outcome(PATIENCE_S)
        producer.schedule(old.target(), b"waits", after="1h").result(PATIENCE_S)
    file = tmp_path / "out.jsonl"
    export(typed, old, file)
    honest = file.read_bytes()
    copy_all(old, f"{old.name}.export", signed=True)
    copy_all(old, f"{old.name}.export", signed=False)
    again = export(typed, old, file)
    assert file.read_bytes() == honest
    assert "not the service's" in again.err
    import_(typed, new, file)
    forged = {"format": 1, "export": "x", "place": 1 << 40, "messages": 1, "at_ms": 1, "run": "r"}
    forged["export"] = lines_of(file)[0]["export"]
    stranger = Producer({"bootstrap.servers": new.bootstrap})
    stranger.produce(f"{new.name}.import", json.dumps(forged).encode(), b"x", 0)
    assert stranger.flush(PATIENCE_S) == 0
    with producer_of(old) as another:
        another.schedule(old.target(), b"later", after="1h").result(PATIENCE_S)
    export(typed, old, file)
    assert import_(typed, new, file) == {"messages": 2, "imported": 1, "before": 1}


def copy_all(cluster: Cluster, topic: str, *, signed: bool) -> None:
    """Writes all that stands in a topic once more, with its signatures or without."""
    write_copies(cluster, topic, read_all(cluster.bootstrap, topic), signed=signed)


def write_copies(cluster: Cluster, topic: str, records: list[Got], *, signed: bool = True) -> None:
    """Writes records into a topic, with their signatures or without."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for got in records:
        headers: Any = [header for header in got.headers if signed or header[0] != H_SIGNATURE]
        producer.produce(topic, got.value, got.key, 0, headers=headers)
    assert producer.flush(PATIENCE_S) == 0


def test_what_was_signed_for_a_topic_that_was_deleted_is_nothing_in_the_one_made_anew(
    make_cluster: MakeCluster, typed: Operator, tmp_path: Path
) -> None:
    old, new = make_cluster(), make_cluster(partitions=1)
    old.start_here("old")
    old.wait_candidates(1)
    with producer_of(old) as producer:
        producer.schedule(old.target(), b"taken out", after="1h").result(PATIENCE_S)
    file, later = tmp_path / "out.jsonl", tmp_path / "later.jsonl"
    export(typed, old, file)
    assert import_(typed, new, file)["imported"] == 1
    journal, progress = f"{old.name}.export", f"{new.name}.import"
    earlier = {one: read_all(old.bootstrap, one) for one in (journal, progress)}
    old.delete_topic(journal)
    new.delete_topic(progress)
    SignedTopic(old.connection, journal, old.keys).make(old.names.buffer)
    SignedTopic(new.connection, progress, new.keys).make(new.names.buffer)
    for topic, records in earlier.items():
        write_copies(old, topic, records)
    export(typed, old, later)
    assert [line["op"] for line in lines_of(later)] == ["end"]
    assert import_(typed, new, file)["before"] == 0


@pytest.mark.parametrize(
    ("partitions", "config", "said"),
    [
        (1, {"cleanup.policy": "compact"}, "cleanup.policy is compact, must be delete"),
        (1, {"retention.ms": "3600000"}, "retention.ms is 3600000, must be -1"),
        (1, {"unclean.leader.election.enable": "true"}, "unclean.leader.election.enable is true"),
        (2, {}, "has 2 partitions, must have 1"),
    ],
)
def test_a_topic_that_would_not_keep_what_is_taken_out_is_refused(
    cluster: Cluster, partitions: int, config: dict[str, str], said: str
) -> None:
    kept = {"cleanup.policy": "delete", "retention.ms": "-1", "unclean.leader.election.enable": "false"}
    topic = f"{cluster.name}.export"
    cluster.make_topics({topic: kept | config}, partitions)
    log = SignedTopic(cluster.connection, topic, cluster.keys)
    with pytest.raises(ConflictError, match=re.escape(said)) as caught:
        log.make(cluster.names.buffer)
    for key in config:
        assert f"--entity-name {topic} --add-config {key}={kept[key]}" in str(caught.value)


def test_messages_of_two_clusters_that_had_one_name_are_both_delivered(
    make_cluster: MakeCluster, typed: Operator, tmp_path: Path
) -> None:
    new = make_cluster()
    new.start_here("new")
    new.wait_candidates(1)
    for name in ("first", "second"):
        file = tmp_path / name
        message = line_of(
            target_topic=new.target(),
            source="delay.buffer/0/0",
            export=name,
            buffer_id=name,
            value=name.encode(),
        )
        in_lines(file).write(name, [message])
        done = typed("import", str(file), "-o", "json", *of(new))
        assert (done.code, done.data["export"]) == (0, name)
        assert f"such as moved/{name}/delay.buffer/0/0" in done.err
    new.wait_delivered(2)
    ids = {got.value: got.text(H_ID) for got in new.delivered}
    assert ids == {name.encode(): f"moved/{name}/delay.buffer/0/0" for name in ("first", "second")}


def test_a_copy_of_what_was_aborted_before_an_export_is_not_what_its_cancel_has_ended(
    make_cluster: MakeCluster, typed: Operator, tmp_path: Path
) -> None:
    old = make_cluster(partitions=1)
    old.start_here("old")
    old.wait_candidates(1)
    with producer_of(old) as producer:
        mine = producer.schedule(old.target(), b"mine", key=b"k", after="1h").result(PATIENCE_S)
    headers = signed_headers(forged(old, mine), old.keys, (1, 1), 0, b"k", b"aborted")
    abort(old, old.names.buffer, 0, b"k", b"aborted", headers)
    file = tmp_path / "out.jsonl"
    killed = run_to_step(ASKED, 10, ["export", str(file), "--confirm", old.name, *of(old)])
    assert killed.returncode == -signal.SIGKILL
    assert typed("show", "-o", "json", *of(old)).data["open"] == 1
    send(old, 0, b"k", b"aborted", headers)  # behind the cancel
    export(typed, old, file)
    message, _ = lines_of(file)
    assert base64.b64decode(message["value"]) == b"mine"
    assert waiting(typed, old) == 0
