"""What waits moves to another cluster as a table as it does as lines, each message once."""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import parquet

from delayline import cron, every
from delayline.headers import H_PARENT, H_SCHEDULED_FOR
from election.operators import PauseState
from ops.pending.jsonl import in_lines
from ops.pending.parquet import SCHEMA, in_parquet
from tests.integration.test_pending import (
    ASKED,
    HOUR_MS,
    OLD_HEADERS,
    SECOND_MS,
    export,
    import_,
    of,
    producer_of,
    run_to_step,
    start_all,
    survey,
    waiting,
)
from tests.integration.test_pending_troubles import take_outcomes
from tests.logging_state import restored_logging
from tests.support.cluster import Cluster
from tests.support.commands import Done, Operator
from tests.support.fixtures import MakeCluster
from tests.support.operators import AUTHOR, say
from tests.support.requests import now_ms
from tests.support.tail import read_all
from tests.support.waiting import PATIENCE_S, eventually
from tests.unit.test_pending_line import line as line_of

LARGE = random.Random(4).randbytes(900_000)


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str]) -> Iterator[Operator]:
    with restored_logging():
        yield Operator(capsys, "pending")


def table(file: Path) -> str:
    return f"parquet:{file}"


def out(typed: Operator, cluster: Cluster, file: Path, *more: str) -> Done:
    done = typed("export", "--to", table(file), "-o", "json", "--confirm", cluster.name, *more, *of(cluster))
    assert done.code == 0, done.err
    return done


def into(typed: Operator, cluster: Cluster, file: Path) -> tuple[int, int]:
    """How many messages it has imported, and how many were before."""
    done = typed("import", "--from", table(file), "-o", "json", *of(cluster))
    assert done.code == 0, done.err
    return done.data["imported"], done.data["before"]


def requests_in(cluster: Cluster) -> list[tuple[object, ...]]:
    """What stands in its buffer."""
    found = read_all(cluster.bootstrap, cluster.names.buffer)
    return sorted((str(got.key), got.key, got.value, got.headers) for got in found)


def test_messages_of_all_kinds_are_in_a_new_cluster_as_they_are_there_from_lines(
    make_cluster: MakeCluster, typed: Operator, tmp_path: Path
) -> None:
    old, new, from_lines = (make_cluster(partitions=count) for count in (2, 3, 3))
    start_all(old, new)
    file, lines = tmp_path / "out.parquet", tmp_path / "out.jsonl"
    target, due_ms = old.target(), now_ms() + HOUR_MS
    say(old, PauseState(None, {target: AUTHOR}))
    eventually(lambda: old.member("old-0")["paused_targets"] == [target], "it is known")
    with producer_of(old) as producer:
        producer.schedule(target, b"held", key=b"k", headers=OLD_HEADERS, after="1s", partition=1)
        producer.schedule(target, None, key=None, id="named", after="1s")
        producer.schedule(target, LARGE, key=b"\xff\x00", deliver_at=due_ms)
        producer.schedule(old.target("sentinels"), b"moved", id="moved", deliver_at=due_ms - SECOND_MS)
        producer.reschedule("moved", deliver_at=due_ms).outcome(PATIENCE_S)
        chain = every("1h", factor=2, times=5)
        producer.schedule(target, b"chain", id="chain", deliver_at=due_ms, repeat=chain)
        yearly = cron("0 4 1 1 *", time_zone="Europe/Berlin", missed="latest", times=3)
        producer.schedule(target, b"cron", repeat=yearly)
        producer.schedule(target, b"expires", deliver_at=due_ms, expire_at=due_ms + 5)
        producer.flush()
    eventually(lambda: survey(typed, old)["parked"] == 2, "what is overdue is parked")
    assert out(typed, old, file).data["messages"] == 7
    assert waiting(typed, old) == 0
    export(typed, old, lines)  # of the same, as the journal has it
    assert list(in_parquet(file).read()) == list(in_lines(lines).read())
    rows = parquet.read_table(file)
    assert rows.schema.names == SCHEMA.names
    assert {row["value"] for row in rows.to_pylist()} >= {b"held", None, LARGE, b"moved", b"chain"}
    import_(typed, from_lines, lines)
    assert into(typed, new, file) == (7, 0)
    assert into(typed, new, file) == (0, 7)
    assert import_(typed, new, lines) == {"messages": 7, "imported": 0, "before": 7}
    written = [one for one in requests_in(new) if H_PARENT not in dict(one[3])]  # type: ignore[call-overload]
    assert written == requests_in(from_lines)
    old.tail.wait(lambda: len(old.delivered) == 2, "what was held arrives from the new one")
    assert {(got.key, got.value) for got in old.delivered} == {(b"k", b"held"), (None, None)}


def test_however_often_both_are_killed_each_message_arrives_once_and_the_file_is_whole_or_not_there(
    make_cluster: MakeCluster, typed: Operator, tmp_path: Path
) -> None:
    old, new = make_cluster(), make_cluster(partitions=3)
    start_all(old, new)
    file, steps = tmp_path / "out.parquet", random.Random(6)
    due_ms = now_ms() + 30 * SECOND_MS
    with producer_of(old) as producer:
        for n in range(100):
            at_ms = due_ms + steps.randint(-25, 0) * SECOND_MS
            producer.schedule(old.target(), b"m%d" % n, id=f"m{n}" if n % 3 else None, deliver_at=at_ms)
        for n in range(4):
            often = every("1s", times=20)
            producer.schedule(old.target(), b"c%d" % n, id=f"c{n}" if n % 2 else None, repeat=often)
        producer.flush()
    words = ["--to", table(file), "--confirm", old.name, *of(old)]
    exports = killed_on_its_way(["export", *words], 40, steps, file)
    assert exports > 0
    assert any(in_parquet(file).read())
    imports = killed_on_its_way(["import", "--from", table(file), *of(new)], 10, steps, file)
    assert imports > 0
    assert into(typed, new, file)[0] == 0
    total = 100 + 4 * 20
    old.tail.wait(lambda: len(old.delivered) >= total, "all have arrived", 90)
    old.tail.catch_up()
    arrived = Counter(
        (one.value, one.number(H_SCHEDULED_FOR) if b"c" in (one.value or b"") else 0) for one in old.delivered
    )
    assert [what for what, count in arrived.items() if count > 1] == []
    assert Counter(one.value for one in old.delivered) == {
        **{b"m%d" % n: 1 for n in range(100)},
        **{b"c%d" % n: 20 for n in range(4)},
    }


def killed_on_its_way(words: list[str], most: int, steps: random.Random, file: Path) -> int:
    """Runs a command until it comes to its end, killed at a step each time before; how often that was."""
    for killed in range(40):
        done = run_to_step(steps.randint(1, 20), most, words)
        if file.exists():
            list(in_parquet(file).read())  # raises where it is cut
        if done.returncode != -signal.SIGKILL:
            assert done.returncode == 0, done.stderr
            return killed
    raise AssertionError("it comes to no end")


def test_what_is_refused_and_what_is_given_up_are_tables_too(
    make_cluster: MakeCluster, typed: Operator, tmp_path: Path
) -> None:
    old, strict = make_cluster(partitions=1), make_cluster(partitions=1, allow_list=("allowed*",))
    old.start_here("old")
    old.wait_candidates(1)
    file, refused = tmp_path / "out.parquet", tmp_path / "out.parquet.refused"
    in_parquet(file).write("e", [line_of(place=n, id=f"m{n}", target_topic=f"{n}") for n in range(2)])
    done = typed("import", "--from", table(file), "--without-refused", "-o", "json", *of(strict))
    assert (done.code, done.data["refused"]) == (5, 2)
    assert [one.message.id for one in in_parquet(refused).read()] == ["m0", "m1"]
    with producer_of(old) as producer:
        producer.schedule(old.target(), b"waits", id="waits", after="1h").result(PATIENCE_S)
    file = tmp_path / "given.parquet"
    words = ["--to", table(file), "--confirm", old.name, *of(old)]
    assert run_to_step(ASKED, 10, ["export", *words]).returncode == -signal.SIGKILL
    old.tail.wait(lambda: len(old.outcomes) == 1, "its cancel is answered")
    take_outcomes(old)
    out(typed, old, file, "--give-up-open")
    given_up = tmp_path / "given.parquet.given-up"
    assert [one.message.id for one in in_parquet(given_up).read()] == ["waits"]


def test_a_wrong_word_changes_nothing_and_is_said(
    make_cluster: MakeCluster, typed: Operator, tmp_path: Path
) -> None:
    old = make_cluster()
    file, lines = tmp_path / "out.parquet", tmp_path / "out.jsonl"
    in_lines(lines).write("e", [])
    confirm = ["--confirm", old.name, *of(old)]
    for words, said in (
        (["export", "--to", f"csv:{file}", *confirm], "write parquet:PATH"),
        (["export", "--to", "parquet:", *confirm], "write parquet:PATH"),
        (["export", "--to", table(tmp_path / "no" / "x"), *confirm], "no such folder"),
        (["export", str(lines), "--to", table(file), *confirm], "are both named"),
        (["import", *of(old)], "name the FILE, or give --from parquet:PATH"),
        (["import", "--from", table(lines), *of(old)], "it is no whole Parquet file"),
        (["import", "--from", table(file), *of(old)], "No such file or directory"),
    ):
        done = typed(*words)
        assert (done.code, said in done.err) == (2, True), done.err
        assert len(done.err.splitlines()) == 1
    assert not old.admin.list_topics(timeout=PATIENCE_S).topics.keys() & {f"{old.name}.export"}
