"""One command moves what waits into another cluster, in this Kafka or in another, each message once; where
that cannot be, nothing is changed.
"""

from __future__ import annotations

import base64
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from delayline import every
from delayline.headers import H_ID, H_PARENT
from delayline.names import source
from ops.pending import export, listing
from ops.pending.signed_topic import Transactions
from ops.pending.take import Taker
from ops.stack import LocalStack
from tests.integration.test_pending import (
    ASKED,
    HOUR_MS,
    SECOND_MS,
    buffer_ends,
    import_,
    lines_of,
    of,
    producer_of,
    run_killed,
    run_to_step,
    start_all,
    survey,
    waiting,
)
from tests.integration.test_pending import export as export_
from tests.integration.test_pending_troubles import messages_in, take_outcomes
from tests.logging_state import restored_logging
from tests.support.cluster import Cluster
from tests.support.commands import Done, Operator
from tests.support.fates import check_exactly_once
from tests.support.fixtures import MakeCluster
from tests.support.requests import Ledger, Sender, Sent, now_ms
from tests.support.tail import read_all
from tests.support.waiting import PATIENCE_S, eventually


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str]) -> Iterator[Operator]:
    with restored_logging():
        yield Operator(capsys, "pending")


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """Another Kafka and another ZooKeeper."""
    with LocalStack(tmp_path_factory.mktemp("elsewhere")) as stack:
        yield stack


def words(old: Cluster, new: Cluster) -> list[str]:
    """The options that say from where to where, and that it is meant."""
    to = ["--to-cluster", new.name, "--to-bootstrap", new.bootstrap, "--to-zookeeper", new.zookeeper]
    return ["-o", "json", "--confirm", old.name, *of(old), *to]


def move(typed: Operator, old: Cluster, new: Cluster, file: Path, *more: str) -> Done:
    return typed("move", str(file), *more, *words(old, new))


@contextmanager
def once_checked(happens: Callable[[], object]) -> Iterator[None]:
    """That happens in a move once all is checked, and before anything is taken out."""

    def begin(*arguments: Any) -> Transactions:
        patch.undo()
        happens()
        return Transactions(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "Transactions", begin)
        yield


def id_of(line: dict[str, Any]) -> str:
    """The id that a message has in its new cluster."""
    return line["id"] or f"moved/{line['buffer_id']}/{line['source']}"


def is_untouched(old: Cluster, new: Cluster) -> bool:
    """Whether neither has anything of a move."""
    topics = old.admin.list_topics(timeout=PATIENCE_S).topics.keys()
    nothing_made = not topics & {f"{old.name}.export", f"{new.name}.import"}
    return nothing_made and sum(buffer_ends(new).values()) == 0


def test_one_command_moves_what_waits_into_a_cluster_with_more_partitions(
    make_cluster: MakeCluster, typed: Operator, tmp_path: Path
) -> None:
    old, new = make_cluster(), make_cluster(partitions=5, lanes=2)
    start_all(old, new)
    file = tmp_path / "moved.jsonl"
    with producer_of(old) as producer:
        for n in range(20):
            producer.schedule(old.target(), b"m%d" % n, id=f"m{n}" if n % 2 else None, after="1h")
        producer.schedule(old.target(), b"chain", id="chain", repeat=every("2h"))
        producer.flush()
    checked = move(typed, old, new, file, "--dry-run")
    assert (checked.code, checked.data["messages"], checked.data["recurring"]) == (0, 21, 1)
    assert (waiting(typed, old), is_untouched(old, new), file.exists()) == (21, True, False)
    done = move(typed, old, new, file)
    assert done.code == 0, done.err
    assert done.data == {
        "file": str(file),
        "messages": 21,
        "this_run": {"cancelled": 21},
        "imported": 21,
        "refused": 0,
        "later": 0,
        "too_large": 0,
        "would_be_refused": 0,
        "hidden": 0,
    }
    assert "nothing that was checked waits in the old cluster any more" in done.err
    assert survey(typed, old).total() == 0
    assert waiting(typed, new) == 21
    *lines, _ = lines_of(file)
    with producer_of(new) as producer:
        for line in lines:
            if line["recurrence"] is None:
                producer.run_now(id_of(line))
    old.wait_delivered(20)
    assert Counter(got.value for got in old.delivered) == {b"m%d" % n: 1 for n in range(20)}


def test_what_is_asked_for_while_it_runs_waits_for_the_same_words_again(
    make_cluster: MakeCluster, typed: Operator, tmp_path: Path
) -> None:
    old, new = make_cluster(), make_cluster(partitions=1)
    start_all(old, new)
    file = tmp_path / "moved.jsonl"
    with producer_of(old) as producer:
        producer.schedule(old.target(), b"first", after="1h").result(PATIENCE_S)
        with once_checked(lambda: producer.schedule(old.target(), b"later", after="1h").result(PATIENCE_S)):
            done = move(typed, old, new, file)
    assert (done.code, done.data["imported"], done.data["later"]) == (0, 1, 1)
    assert "1 messages were asked for since it began" in done.err
    done = move(typed, old, new, file)
    assert (done.code, done.data["messages"], done.data["imported"]) == (0, 2, 1)
    assert (done.data["later"], waiting(typed, new)) == (0, 2)


def test_what_another_run_has_taken_out_since_the_check_is_not_moved(
    make_cluster: MakeCluster, typed: Operator, tmp_path: Path
) -> None:
    """It may be in a third cluster by then."""
    old, new, taken = make_cluster(), make_cluster(partitions=1), list[int]()
    start_all(old, new)
    with producer_of(old) as producer:
        producer.schedule(old.target(), b"first", after="1h").result(PATIENCE_S)
    with once_checked(lambda: taken.append(export_(typed, old, tmp_path / "other.jsonl").data["messages"])):
        done = move(typed, old, new, tmp_path / "moved.jsonl")
    assert (taken, done.code) == ([1], 5)
    assert f"cluster {new.name} has none of them" in done.err
    assert waiting(typed, new) == 0


@pytest.mark.timeout(360)  # some twenty commands start, one after the other
def test_however_often_it_is_killed_each_message_arrives_once(
    make_cluster: MakeCluster, typed: Operator, tmp_path: Path
) -> None:
    old, new = make_cluster(), make_cluster(partitions=3)
    start_all(old, new)
    file, seed, begun_ms = tmp_path / "moved.jsonl", random.Random(4), now_ms()
    with producer_of(old) as producer:
        for n in range(90):
            at_ms = begun_ms + (HOUR_MS if n % 3 else seed.randint(2, 30) * SECOND_MS)
            producer.schedule(old.target(), b"m%d" % n, id=f"m{n}" if n % 2 else None, deliver_at=at_ms)
        producer.flush()
    killed, done = run_killed(30, seed, ["move", str(file), *words(old, new)], most_steps=24)
    assert done.returncode == 0, done.stderr
    assert killed > 0
    *lines, _ = lines_of(file)
    # All that was ever taken out is there, whichever run has taken it out.
    assert import_(typed, new, file) == {"messages": len(lines), "imported": 0, "before": len(lines)}
    with producer_of(new) as producer:
        for line in lines:
            if line["scheduled_for_ms"] == begun_ms + HOUR_MS:
                producer.run_now(id_of(line))
    old.wait_delivered(90)
    old.tail.catch_up()
    assert Counter(got.value for got in old.delivered) == {b"m%d" % n: 1 for n in range(90)}


def test_what_the_new_cluster_refuses_is_said_before_anything_is_taken_out(
    make_cluster: MakeCluster, typed: Operator, tmp_path: Path
) -> None:
    old, strict = make_cluster(), make_cluster(allow_list=("allowed*",), max_delay_ms=HOUR_MS, levels_ms=(1,))
    old.start_here("old")
    old.wait_candidates(1)
    file = tmp_path / "moved.jsonl"
    with producer_of(old) as producer:
        producer.schedule("allowed", b"fits", after="30m")
        producer.schedule("allowed", b"too long", after="3h")
        forbidden = producer.schedule("forbidden", b"not allowed", after="30m")
    done = move(typed, old, strict, file)
    assert (done.code, done.data["codes"]) == (5, {"delay-too-long": 1, "target-forbidden": 1})
    assert str(forbidden.source) in {one["source"] for one in done.data["first_refused"]}
    assert "nothing was changed" in done.err
    assert (waiting(typed, old), is_untouched(old, strict), file.exists()) == (3, True, False)


def test_what_is_moved_out_of_the_new_limit_once_it_is_checked_stays_and_the_others_are_moved(
    make_cluster: MakeCluster, typed: Operator, tmp_path: Path
) -> None:
    old, new = make_cluster(), make_cluster(partitions=1, max_delay_ms=HOUR_MS, levels_ms=(1,))
    start_all(old, new)
    file = tmp_path / "moved.jsonl"
    with producer_of(old) as producer:
        producer.schedule(old.target(), b"a", id="a", after="30m").result(PATIENCE_S)
        producer.schedule(old.target(), b"b", id="b", after="30m").result(PATIENCE_S)
        with once_checked(lambda: producer.reschedule("a", after="3h").outcome(PATIENCE_S)):
            done = move(typed, old, new, file)
    assert done.code == 0, done.err
    assert (done.data["imported"], done.data["would_be_refused"], done.data["refused"]) == (1, 1, 0)
    assert "do not stop the old cluster's nodes yet" in done.err
    assert (waiting(typed, old), waiting(typed, new), messages_in(file)) == (1, 1, 1)


def test_what_is_refused_once_it_is_taken_out_holds_no_other_back(
    make_cluster: MakeCluster, typed: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new, roomy = (
        make_cluster(),
        make_cluster(partitions=1, max_delay_ms=HOUR_MS, levels_ms=(1,)),
        make_cluster(partitions=1),
    )
    start_all(old, new)
    file, refused = tmp_path / "moved.jsonl", tmp_path / "moved.jsonl.refused"
    with producer_of(old) as producer:
        producer.schedule(old.target(), b"a", id="a", after="30m").result(PATIENCE_S)
        producer.schedule(old.target(), b"b", id="b", after="30m").result(PATIENCE_S)
        ask = Taker.ask

        def put_off(*arguments: Any) -> Any:
            producer.reschedule("a", after="3h").outcome(PATIENCE_S)
            return ask(*arguments)

        monkeypatch.setattr(Taker, "ask", put_off)
        done = move(typed, old, new, file)
        monkeypatch.undo()
    assert (done.code, done.data["messages"], done.data["imported"], done.data["refused"]) == (5, 2, 1, 1)
    assert "1 messages are refused, among them a (delay-too-long: " in done.err
    assert f"they are in {refused} alone" in done.err
    assert (waiting(typed, old), waiting(typed, new), messages_in(refused)) == (0, 1, 1)
    again = move(typed, old, new, file)
    assert (again.code, again.data["imported"], again.data["refused"]) == (0, 0, 0), again.err
    assert messages_in(refused) == 1
    assert import_(typed, roomy, refused)["imported"] == 1
    assert import_(typed, roomy, refused)["imported"] == 0
    assert base64.b64decode(lines_of(refused)[0]["value"]) == b"a"


def test_what_is_taken_out_arrives_though_what_waits_still_would_be_refused(
    make_cluster: MakeCluster, typed: Operator, tmp_path: Path
) -> None:
    old, new = make_cluster(), make_cluster(partitions=1, max_delay_ms=HOUR_MS, levels_ms=(1,))
    start_all(old, new)
    file = tmp_path / "moved.jsonl"
    with producer_of(old) as producer:
        producer.schedule(old.target(), b"taken", after="30m").result(PATIENCE_S)
        killed = run_to_step(_IMPORTING, 10, ["move", str(file), *words(old, new)])
        assert (killed.returncode, messages_in(file)) == (-signal.SIGKILL, 1)
        producer.schedule(old.target(), b"too long", after="3h").result(PATIENCE_S)
    done = move(typed, old, new, file)
    assert done.code == 0, done.err
    assert (done.data["imported"], done.data["would_be_refused"]) == (1, 1)
    assert (waiting(typed, old), waiting(typed, new)) == (1, 1)
    # Nothing is on its way any more: so it is as for a move that begins.
    refused = move(typed, old, new, file)
    assert (refused.code, refused.data["codes"]) == (5, {"delay-too-long": 1})
    assert "nothing was changed" in refused.err


def test_a_message_that_is_too_large_stays_and_the_others_are_moved(
    make_cluster: MakeCluster, typed: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "LARGEST_RECORD_BYTES", 80_000)
    old, new = make_cluster(), make_cluster(partitions=1)
    start_all(old, new)
    with producer_of(old) as producer:
        producer.schedule(old.target(), b"small", after="1h")
        producer.schedule(old.target(), bytes(80_000), after="1h")
    done = move(typed, old, new, tmp_path / "moved.jsonl")
    assert (done.code, done.data["imported"], done.data["too_large"]) == (0, 1, 1)
    assert "do not stop the old cluster's nodes yet" in done.err
    assert (waiting(typed, old), waiting(typed, new)) == (1, 1)


def test_what_nobody_could_read_when_it_was_checked_is_not_taken_out_unchecked(
    make_cluster: MakeCluster, typed: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_HIDDEN_PATIENCE_S", 0.5)
    old, new = make_cluster(partitions=1), make_cluster(partitions=1, allow_list=("allowed*",))
    start_all(old, new)
    users = Producer({"bootstrap.servers": old.bootstrap, "transactional.id": old.name, "log_level": 0})
    users.init_transactions(PATIENCE_S)
    users.begin_transaction()
    users.produce(old.names.buffer, b"open", partition=0)
    assert users.flush(PATIENCE_S) == 0
    file = tmp_path / "moved.jsonl"
    with producer_of(old) as producer:
        producer.schedule("forbidden", b"behind it", after="1h").result(PATIENCE_S)
        with once_checked(lambda: users.abort_transaction(PATIENCE_S)):
            done = move(typed, old, new, file)
    assert (done.code, done.data["messages"], done.data["hidden"]) == (0, 0, 2)
    assert "do not stop the old cluster's nodes yet" in done.err
    refused = move(typed, old, new, file)
    assert (refused.code, refused.data["codes"]) == (5, {"target-forbidden": 1})
    assert waiting(typed, old) == 1


def test_what_cannot_be_told_any_more_holds_no_move_back_once_it_is_given_up(
    make_cluster: MakeCluster, typed: Operator, tmp_path: Path
) -> None:
    old, new = make_cluster(partitions=1), make_cluster(partitions=1)
    start_all(old, new)
    file = tmp_path / "moved.jsonl"
    with producer_of(old) as producer:
        producer.schedule(old.target(), b"given up", after="1h").result(PATIENCE_S)
        killed = run_to_step(ASKED, 10, ["export", str(file), "--confirm", old.name, *of(old)])
        assert killed.returncode == -signal.SIGKILL
        old.tail.wait(lambda: len(old.outcomes) == 1, "its cancel is answered")
        producer.schedule(old.target(), b"waits", after="1h").result(PATIENCE_S)
    take_outcomes(old)
    refused = move(typed, old, new, file)
    assert (refused.code, "--give-up-open goes on" in refused.err) == (5, True)
    done = move(typed, old, new, file, "--give-up-open")
    assert (done.code, done.data["imported"], messages_in(Path(f"{file}.given-up"))) == (0, 1, 1), done.err


def test_what_was_taken_out_for_one_cluster_is_moved_into_no_other(
    make_cluster: MakeCluster, typed: Operator, tmp_path: Path
) -> None:
    old, new, other = make_cluster(), make_cluster(partitions=1), make_cluster(partitions=1)
    start_all(old, new)
    file = tmp_path / "moved.jsonl"
    with producer_of(old) as producer:
        producer.schedule(old.target(), b"waits", after="1h").result(PATIENCE_S)
        killed = run_to_step(_IMPORTING, 10, ["move", str(file), *words(old, new)])
        assert (killed.returncode, len(lines_of(file))) == (-signal.SIGKILL, 2)
        producer.schedule(old.target(), b"waits, too", after="1h").result(PATIENCE_S)
    elsewhere = move(typed, old, other, file)
    assert (elsewhere.code, f"is moved into cluster {new.name}," in elsewhere.err) == (5, True)
    assert (waiting(typed, old), sum(buffer_ends(other).values())) == (1, 0)
    assert move(typed, old, new, file).data["imported"] == 2
    assert typed("forget", "--confirm", old.name, *of(old)).code == 0
    eventually(lambda: typed("show", *of(old)).code == 3, "its topic is gone")
    assert move(typed, old, other, tmp_path / "another.jsonl").data["messages"] == 0


_IMPORTING = 21
"""The step of `pending_process` at which FILE is there, and nothing of it is sent."""


def test_what_an_export_has_taken_out_is_moved_on_only_where_it_was_imported(
    make_cluster: MakeCluster, typed: Operator, tmp_path: Path
) -> None:
    old, new = make_cluster(), make_cluster(partitions=1)
    start_all(old, new)
    file = tmp_path / "moved.jsonl"
    with producer_of(old) as producer:
        producer.schedule(old.target(), b"first", after="1h").result(PATIENCE_S)
        export_(typed, old, file)
        refused = move(typed, old, new, file)
        assert (refused.code, "import its file there first" in refused.err) == (5, True)
        import_(typed, new, file)
        producer.schedule(old.target(), b"second", after="1h").result(PATIENCE_S)
    done = move(typed, old, new, file)
    assert (done.code, done.data["messages"], done.data["imported"]) == (0, 2, 1)


def test_a_cluster_is_not_moved_into_itself_whatever_it_is_called(
    cluster: Cluster, typed: Operator, tmp_path: Path
) -> None:
    twice = f"{cluster.bootstrap},{cluster.bootstrap}"
    options = ["--confirm", cluster.name, *of(cluster), "--to-bootstrap", twice]
    done = typed("move", str(tmp_path / "moved.jsonl"), *options)
    assert (done.code, "it cannot be moved into itself" in done.err) == (5, True)
    assert is_untouched(cluster, cluster)


def test_what_has_one_cluster_s_zookeeper_and_another_s_kafka_is_refused(
    cluster: Cluster, elsewhere: LocalStack, typed: Operator, tmp_path: Path
) -> None:
    options = ["--confirm", cluster.name, *of(cluster), "--to-bootstrap", elsewhere.bootstrap]
    done = typed("move", str(tmp_path / "moved.jsonl"), *options)
    assert (done.code, "correct bootstrap_servers or zookeeper" in done.err) == (5, True)


def test_into_another_kafka_and_zookeeper_under_the_same_name_nothing_is_lost_or_doubled(
    cluster: Cluster, elsewhere: LocalStack, typed: Operator, tmp_path: Path
) -> None:
    folder, file = tmp_path / "elsewhere", tmp_path / "moved.jsonl"
    folder.mkdir()
    with Cluster(elsewhere, cluster.name, folder, partitions=5) as new, Sender(cluster) as sender:
        start_all(cluster, new)
        for _ in range(20):
            sender.schedule()
        cluster.wait_delivered(20)
        begun_ms = now_ms()
        for n in range(60):  # some of them fall due before they are taken out, or before they are imported
            sender.schedule(at_ms=begun_ms + n * 100)
        for n in range(20):
            sender.schedule(at_ms=begun_ms + HOUR_MS, id=f"late-{n}")
        before = sender.flush()
        done = move(typed, cluster, new, file)
        assert done.code == 0, done.err
        *lines, _ = lines_of(file)
        after = imported_by(new, {id_of(line): line for line in lines})
        with Sender(new) as there:
            for n in range(20):
                there.run_now(f"late-{n}")
            after.add(there.flush())
        moved = check_exactly_once(cluster, before).count("cancelled")
        assert check_exactly_once(new, after).count("delivered") == moved == len(lines)
        values = Counter(got.value for one in (cluster, new) for got in one.delivered)
        assert values == Counter(sent.value for sent in before.schedules.values())


def imported_by(cluster: Cluster, lines: dict[str, dict[str, Any]]) -> Ledger:
    """What an import has sent, as it was asked for in the old cluster. `lines`: of its file, by id."""
    ledger = Ledger()
    for got in read_all(cluster.bootstrap, cluster.names.buffer):
        if H_PARENT in dict(got.headers):
            continue
        line = lines[got.text(H_ID) or ""]
        key, value = (base64.b64decode(line[name]) for name in ("key", "value"))
        headers = [(one["key"], _decoded(one["value"])) for one in line["headers"]]
        ledger.schedules[source(got.topic, got.partition, got.offset)] = Sent(
            line["target_topic"], key, value, headers, line["scheduled_for_ms"], line["id"]
        )
    return ledger


def _decoded(value: str | None) -> bytes | None:
    return None if value is None else base64.b64decode(value)
