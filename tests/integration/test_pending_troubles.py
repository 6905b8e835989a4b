"""An export in trouble: it never ends as if all were well, and what it has taken out can be had."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition

from delayline.names import source
from delayline.record import SettingsPlace
from delayline.settings_versions import SettingsVersions
from delayline.wire import H_AFTER, H_TARGET_TOPIC, signed_headers
from node.kafka.applier import Applier
from ops.clients.kafka import KafkaAdmin
from ops.clients.settings_topic import Known
from ops.pending import behind, listing
from ops.pending.behind import Behind, Window
from ops.pending.content import BufferContent
from ops.pending.journal import Forgotten, Journal
from ops.pending.signed_topic import Transactions
from ops.pending.take import Taker
from tests.integration.test_pending import (
    ASKED,
    export,
    import_,
    lines_of,
    of,
    producer_of,
    run_to_step,
    waiting,
)
from tests.integration.test_signed import forged, send
from tests.logging_state import restored_logging
from tests.support.cluster import Cluster
from tests.support.commands import Done, Operator
from tests.support.fixtures import MakeCluster
from tests.support.waiting import PATIENCE_S, eventually


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str]) -> Iterator[Operator]:
    with restored_logging():
        yield Operator(capsys, "pending")


@pytest.fixture
def old(make_cluster: MakeCluster) -> Cluster:
    return make_cluster(partitions=1)


def try_export(typed: Operator, cluster: Cluster, file: Path, *more: str) -> Done:
    return typed("export", str(file), "-o", "json", "--confirm", cluster.name, *more, *of(cluster))


def messages_in(file: Path) -> int:
    """How many a whole file has."""
    return int(lines_of(file)[-1]["messages"])


def test_a_node_that_is_behind_is_no_witness_of_what_waits(
    old: Cluster, typed: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, may_read, arrivals_of = tmp_path / "out.jsonl", threading.Event(), Applier._arrivals_of

    def held(applier: Applier, records: Any) -> Any:
        while not applier.stopping and not may_read.wait(0.05):
            pass
        return arrivals_of(applier, records)

    monkeypatch.setattr(listing, "_PATIENCE_S", 1.0)
    old.start_here("old")
    old.wait_candidates(1)
    with monkeypatch.context() as patched, producer_of(old) as producer:
        patched.setattr(Applier, "_arrivals_of", held)
        producer.schedule(old.target(), b"waits", after="1h").result(PATIENCE_S)
        counted = typed("export", "--dry-run", *of(old))
        kept = typed("export", str(file), "--keep", *of(old))
        assert not file.exists()
        moved = try_export(typed, old, file)
        may_read.set()
    for done in (counted, kept, moved):
        assert (done.code, "has not read the buffer to its end within 1 s" in done.err) == (6, True)
    assert export(typed, old, file).data["messages"] == 1


def test_what_an_open_transaction_hides_is_said(
    old: Cluster, typed: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_HIDDEN_PATIENCE_S", 0.5)
    old.start_here("old")
    old.wait_candidates(1)
    users = Producer({"bootstrap.servers": old.bootstrap, "transactional.id": old.name, "log_level": 0})
    users.init_transactions(PATIENCE_S)
    users.begin_transaction()
    users.produce(old.names.buffer, b"open", partition=0)
    assert users.flush(PATIENCE_S) == 0
    with producer_of(old) as producer:
        producer.schedule(old.target(), b"behind it", after="1h").result(PATIENCE_S)
    done = export(typed, old, tmp_path / "copy.jsonl", "--keep")
    assert (done.data["messages"], done.data["hidden"]) == (0, 2)
    assert "2 offsets of the buffer are behind somebody's open transaction" in done.err
    users.abort_transaction(PATIENCE_S)
    done = export(typed, old, tmp_path / "again.jsonl", "--keep")
    assert (done.data["messages"], done.data["hidden"]) == (1, 0)


def test_what_was_taken_out_can_be_had_without_any_node(
    old: Cluster, typed: Operator, tmp_path: Path
) -> None:
    node = old.start_here("old")
    old.wait_candidates(1)
    with producer_of(old) as producer:
        producer.schedule(old.target(), b"waits", after="1h").result(PATIENCE_S)
    export(typed, old, tmp_path / "lost.jsonl")
    old.stop_here(node)
    file = tmp_path / "again.jsonl"
    done = try_export(typed, old, file)
    assert (done.code, f"{file} has the 1 messages that were taken out" in done.err) == (6, True)
    assert messages_in(file) == 1


def test_what_cannot_be_told_any_more_holds_nothing_back_once_it_is_given_up(
    make_cluster: MakeCluster, typed: Operator, tmp_path: Path
) -> None:
    old, new = make_cluster(partitions=1), make_cluster(partitions=1)
    old.start_here("old")
    old.wait_candidates(1)
    file, given_up = tmp_path / "out.jsonl", tmp_path / "out.jsonl.given-up"
    with producer_of(old) as producer:
        producer.schedule(old.target(), b"first", after="1h").result(PATIENCE_S)
        export(typed, old, file)
        producer.schedule(old.target(), b"second", id="second", after="1h").result(PATIENCE_S)
        killed = run_to_step(ASKED, 10, ["export", str(file), "--confirm", old.name, *of(old)])
        assert killed.returncode == -signal.SIGKILL
        old.tail.wait(lambda: len(old.outcomes) == 2, "its cancel is answered")
        producer.schedule(old.target(), b"third", after="1h").result(PATIENCE_S)
    file.unlink()
    take_outcomes(old)
    refused = try_export(typed, old, file)
    assert (refused.code, "--give-up-open" in refused.err) == (5, True)
    assert messages_in(file) == 1
    assert typed("forget", "--confirm", old.name, *of(old)).code == 5
    done = try_export(typed, old, file, "--give-up-open")
    assert (done.code, "1 messages are given up, among them second:" in done.err) == (0, True), done.err
    assert (messages_in(file), messages_in(given_up), waiting(typed, old)) == (2, 1, 0)
    assert typed("show", "-o", "json", *of(old)).data["outcomes"] == {"cancelled": 2, "given-up": 1}
    for one in (file, given_up):
        assert import_(typed, new, one)["imported"] == messages_in(one)
    assert typed("forget", "--confirm", old.name, *of(old)).code == 0


def take_outcomes(cluster: Cluster) -> None:
    """Retention takes all outcomes."""
    topic = cluster.names.outcomes
    ends = KafkaAdmin(cluster.connection).ends(topic)
    wanted = [TopicPartition(topic, partition, end) for partition, end in ends.items()]
    for future in cluster.admin.delete_records(wanted).values():
        future.result()


def test_an_export_that_begins_while_its_topic_is_being_deleted_takes_nothing(
    old: Cluster, typed: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old.start_here("old")
    old.wait_candidates(1)
    begun: list[Done] = []
    with producer_of(old) as producer:
        producer.schedule(old.target(), b"first", after="1h").result(PATIENCE_S)
        export(typed, old, tmp_path / "1.jsonl")
        producer.schedule(old.target(), b"second", after="1h").result(PATIENCE_S)
    delete = KafkaAdmin.delete

    def late(admin: KafkaAdmin, topic: str) -> None:
        begun.append(try_export(typed, old, tmp_path / "2.jsonl"))
        delete(admin, topic)

    monkeypatch.setattr(KafkaAdmin, "delete", late)
    assert typed("forget", "--confirm", old.name, *of(old)).code == 0
    assert [(one.code, "is being deleted by" in one.err) for one in begun] == [(5, True)]
    monkeypatch.undo()
    eventually(lambda: not KafkaAdmin(old.connection).exists(f"{old.name}.export"), "it is deleted")
    assert waiting(typed, old) == 1
    assert export(typed, old, tmp_path / "2.jsonl").data["messages"] == 1


def test_an_export_that_has_begun_is_not_forgotten(
    old: Cluster, typed: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old.start_here("old")
    old.wait_candidates(1)
    export(typed, old, tmp_path / "1.jsonl")
    write = Journal.write

    def late(journal: Journal, producer: Producer, entry: Any) -> None:
        assert isinstance(entry, Forgotten)
        Transactions(old.connection, f"{old.name}-export", "export")  # as each export does first
        write(journal, producer, entry)

    monkeypatch.setattr(Journal, "write", late)
    done = typed("forget", "--confirm", old.name, *of(old))
    assert (done.code, "another export of this cluster has begun" in done.err) == (5, True), done.err
    assert typed("show", *of(old)).code == 0


def test_what_stands_in_a_partition_that_was_added_meanwhile_is_read(old: Cluster) -> None:
    old.widen_buffer(2)
    root = send(old, 1, b"k", b"v", [])
    _, _, offset = root.rpartition("/")
    headers = signed_headers(forged(old, root), old.keys, (int(offset) + 1, 1), 1, b"k", b"follows")
    send(old, 1, b"k", b"in place of a cancel", [])
    send(old, 1, b"k", b"follows", headers)
    known = Known(SettingsVersions.of(old.settings), SettingsPlace("", 0, 0))
    reading = Behind(BufferContent(old.connection, "id", lambda: known, old.keys), {0: 0})
    try:
        reading.read({(1, int(offset)): Window(int(offset) - 1, int(offset) + 1)})
        assert reading.of((1, int(offset))) == [(1, int(offset) + 2)]
    finally:
        reading.reader.close()


def test_what_is_no_outcome_stops_nothing(
    old: Cluster, typed: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old.start_here("old")
    old.wait_candidates(1)
    cancel, strangers = Taker._cancel, Producer({"bootstrap.servers": old.bootstrap})

    def answered(taker: Taker, found: Any) -> list[int]:
        offsets = cancel(taker, found)
        for one, offset in zip(found, offsets, strict=True):
            named = source(old.names.buffer, one.row[0], offset)
            strangers.produce(old.names.outcomes, b"{", named, 0)
        assert strangers.flush(PATIENCE_S) == 0
        return offsets

    with producer_of(old) as producer:
        producer.schedule(old.target(), b"waits", after="1h").result(PATIENCE_S)
    monkeypatch.setattr(Taker, "_cancel", answered)
    assert export(typed, old, tmp_path / "out.jsonl").data["this_run"] == {"cancelled": 1}


def test_an_open_transaction_in_one_partition_keeps_nothing_of_another_one_waiting(
    make_cluster: MakeCluster, typed: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_HIDDEN_PATIENCE_S", 0.5)
    monkeypatch.setattr(behind, "_HIDDEN_PATIENCE_S", 2.0)
    old = make_cluster(partitions=2)
    old.start_here("old")
    old.wait_candidates(1)
    send(old, 0, b"k", b"waits", [(H_TARGET_TOPIC, old.target().encode()), (H_AFTER, b"1h")])
    users = Producer({"bootstrap.servers": old.bootstrap, "transactional.id": old.name, "log_level": 0})
    users.init_transactions(PATIENCE_S)
    ask = Taker.ask

    def with_one_open(*arguments: Any) -> Any:
        users.begin_transaction()
        users.produce(old.names.buffer, b"open", partition=1)
        assert users.flush(PATIENCE_S) == 0
        return ask(*arguments)

    monkeypatch.setattr(Taker, "ask", with_one_open)
    done = export(typed, old, tmp_path / "out.jsonl")
    users.abort_transaction(PATIENCE_S)
    assert (done.data["messages"], done.data["this_run"]) == (1, {"cancelled": 1})
