"""The audit of what real nodes have done in a log that has lost its beginning."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from delayline import DelayProducer, requests
from delayline.names import parse_source
from delayline.partitioner import partition_for
from delayline.receipt import Receipt
from delayline.settings_versions import SettingsVersions
from delayline.wire import H_SOURCE
from node.node import Node
from node.status import NodeState
from ops.clients.kafka import KafkaAdmin
from ops.clients.zookeeper import read_keys
from pipeline.audit import Audit, AuditConfig, audit
from tests.support.cluster import Cluster
from tests.support.fixtures import MakeCluster
from tests.support.requests import now_ms
from tests.support.retention import alter_buffer, delete_records, send_dated
from tests.support.waiting import PATIENCE_S, eventually

RETENTION_MS = 4_000
HOUR_MS = 3_600_000
MINUTE_MS = 60_000
COUNT = 6


class Cut:
    """A cluster whose log has lost its beginning twice, while requests of all kinds were under way."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._names = itertools.count()
        config = {"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "log_level": 0}
        self.producer = DelayProducer(config, cluster=cluster.name, outcomes=True)
        self.sent: dict[str, list[Receipt]] = {}

    def write(self) -> None:
        running = self._start("a")
        self._ask_before()
        self._forget()
        self._ask_between()
        self._forget()
        self.leader = self._start("b")
        self.cluster.wait_candidates(2)
        self.cluster.stop_here(running)
        self.cluster.wait_state("b", NodeState.LEADER)
        self._ask_after()

    def _start(self, name: str) -> Node:
        return self.cluster.start_here(name, replay_window_s=0.5)

    def schedule(self, *, of: str = "", at_ms: int | None = None, **more: Any) -> Receipt:
        value = f"{of} {next(self._names)}".encode()
        deliver_at = now_ms() + HOUR_MS if at_ms is None else at_ms
        receipt = self.producer.schedule(
            self.cluster.target(), value, key=value, deliver_at=deliver_at, **more
        )
        self.sent.setdefault(of, []).append(receipt)
        return receipt

    def _of_each(self, ask: Callable[[str], Receipt], name: str, outcome: str) -> None:
        receipts = [ask(f"{name}-{number}") for number in range(COUNT)]
        assert {one.outcome(PATIENCE_S).outcome for one in receipts} == {outcome}

    def _ask_before(self) -> None:
        every = requests.every("1s")
        for number in range(COUNT):
            self.schedule(of="done", at_ms=now_ms())
            self.schedule(of="done", at_ms=now_ms(), id=f"done-{number}")
            self.schedule(of="waits", partition=number % 2)
            for name in ("cancelled", "ended", "moved", "moved-twice", "kept", "replaced", "stays"):
                self.schedule(of=name, id=f"{name}-{number}")
            self.schedule(of="early", id=f"early-{number}")
        for name in ("chain", "other-chain"):
            self.schedule(of=name, at_ms=now_ms(), id=name, repeat=every)
        self._of_each(self.producer.cancel, "early", "cancelled")
        self._move("moved-twice")

    def _ask_between(self) -> None:
        self._move("moved-twice")
        self._of_each(self.producer.cancel, "cancelled", "cancelled")
        self._of_each(lambda id_: self.schedule(of="again", id=id_), "replaced", "replaced")
        self._keep("kept")

    def _ask_after(self) -> None:
        receipts = [self.producer.cancel(source=one.result()) for one in self.sent["ended"]]
        assert {one.outcome(PATIENCE_S).outcome for one in receipts} == {"cancelled"}
        self._of_each(self.producer.cancel, "early", "unknown")
        self._keep("moved-twice")  # of which two stand-ins are left
        self._of_each(self.producer.run_now, "moved", "rescheduled")
        self._of_each(self.producer.run_now, "moved-twice", "rescheduled")
        self._keep("kept")
        [chain] = self.sent["chain"]
        assert self.producer.cancel(source=chain.result()).outcome(PATIENCE_S).outcome == "cancelled"
        self.producer.cancel("other-chain").outcome(PATIENCE_S)
        self.schedule(of="last", at_ms=now_ms())
        last = self.sent["last"][0].result()
        tail = self.cluster.tail
        tail.wait(lambda: last in {got.text(H_SOURCE) for got in self.cluster.delivered}, "the last arrives")

    def _move(self, name: str) -> None:
        self._of_each(
            lambda id_: self.producer.reschedule(id_, deliver_at=now_ms() + HOUR_MS), name, "rescheduled"
        )

    def _keep(self, name: str) -> None:
        self._of_each(lambda id_: self.schedule(of="keep", id=id_, if_exists="keep"), name, "duplicate")

    def _forget(self) -> None:
        """All goes that was there by now."""
        self.producer.flush(PATIENCE_S)
        ends = {partition: end for partition, end in self.cluster.checkpoints()[-1].read.items() if end}
        for one in itertools.chain(*self.sent.values()):
            _, partition, offset = parse_source(one.result())
            ends[partition] = max(ends.get(partition, 0), offset + 1)

        def carried() -> dict[int, int]:
            found = self.cluster.checkpoints()[-1].carried
            return found if all(found.get(partition, 0) >= end for partition, end in ends.items()) else {}

        delete_records(self.cluster, eventually(carried, "nothing of it is needed any more"))

    def in_partition(self, partition: int, *names: str) -> list[str]:
        """Sources of what was sent so."""
        sources = [one.result() for name in names for one in self.sent[name]]
        return [one for one in sources if parse_source(one)[1] == partition]

    def close(self) -> None:
        self.producer.close(PATIENCE_S)


@pytest.fixture
def cut(make_cluster: MakeCluster) -> Cut:
    cut = Cut(make_cluster(retention_ms=RETENTION_MS, dedup_window_ms=300))
    try:
        cut.write()
    finally:
        cut.close()
    return cut


def audited(cluster: Cluster, spark: SparkSession, **more: Any) -> Audit:
    config = AuditConfig(
        cluster.bootstrap, SettingsVersions.of(cluster.settings), read_keys(cluster.connection)
    )
    return audit(spark, replace(config, **more))


def test_what_a_cut_log_tells_is_judged_and_the_rest_is_neither_wrong_nor_fine(
    cut: Cut, spark: SparkSession
) -> None:
    found = audited(cut.cluster, spark)
    report = found.report
    assert report.violations == ()
    assert set(report.begins) == {"0", "1"}
    assert report.gone >= 2 * COUNT  # what was done
    classes = {row["source"]: row["class"] for row in found.requests.collect()}
    told = {name: {classes.get(one.result()) for one in sent} for name, sent in cut.sent.items()}
    assert told == {
        "done": {None},
        "early": {None},
        "cancelled": {None},  # before they were carried again
        "replaced": {None},
        "waits": {"pending"},
        "stays": {"pending"},
        "kept": {"pending"},
        "again": {"pending"},
        "ended": {"cancelled"},
        "moved": {"delivered"},
        "moved-twice": {"delivered"},
        "keep": {None, "duplicate"},
        "chain": {"recurring"},
        "other-chain": {"recurring"},
        "last": {"delivered"},
    }


def test_what_is_wrong_in_a_cut_log_is_found(cut: Cut, spark: SparkSession) -> None:
    cluster = cut.cluster
    cluster.stop_here(cut.leader)
    of = {got.text(H_SOURCE): got for got in cluster.delivered}
    gone, stood_in = (cut.in_partition(0, name)[0] for name in ("done", "moved"))
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for one in (gone, stood_in):
        got = of[one]
        headers: Any = got.headers
        producer.produce(got.topic, got.value, got.key, got.partition, headers=headers)
    assert producer.flush(PATIENCE_S) == 0
    waits = cut.in_partition(0, "waits", "stays", "kept", "again")
    end = KafkaAdmin(cluster.connection).ends(cluster.names.buffer)[1]
    delete_records(cluster, {1: end})
    report = audited(cluster, spark, now_ms=now_ms() + 2 * HOUR_MS).report
    assert {(one.kind, one.source) for one in report.violations} == {
        ("duplicated", gone),
        ("duplicated", stood_in),
        *(("lost", one) for one in waits),
        ("missing_from_buffer", f"{cluster.names.buffer}/1/{end}"),
    }


def test_what_a_clock_that_was_ahead_has_made_unknown_is_so_once_its_records_are_gone(
    make_cluster: MakeCluster, spark: SparkSession
) -> None:
    """A duplicate is told by the newest timestamp that the partition had, which the log has no more."""
    cluster = make_cluster(retention_ms=RETENTION_MS, dedup_window_ms=300)
    cluster.start_here("a", replay_window_s=0.5)
    cluster.wait_state("a", NodeState.LEADER)
    partition, end = cancel_of(cluster, "one", now_ms() + 30 * MINUTE_MS)
    eventually(lambda: cluster.checkpoints()[-1].carried.get(partition, 0) >= end, "it is needed no more")
    delete_records(cluster, {partition: end})
    with DelayProducer({"bootstrap.servers": cluster.bootstrap}, cluster=cluster.name, outcomes=True) as to:
        to.schedule(cluster.target(), b"first", id="one", deliver_at=now_ms() + 10 * MINUTE_MS).result()
        again = to.schedule(cluster.target(), b"again", id="one", after="1h", if_exists="keep")
        assert again.outcome(PATIENCE_S).outcome == "replaced"
    assert audited(cluster, spark).report.violations == ()


def cancel_of(cluster: Cluster, id_: str, at_ms: int) -> tuple[int, int]:
    """A cancel that bears that time: its partition, and where that ends behind it."""
    asked, partition = requests.cancel(id_), partition_for(id_.encode(), cluster.settings.partitions)
    placed = send_dated(cluster, at_ms, [(partition, asked.key, asked.value, asked.headers)])
    alter_buffer(cluster, "message.timestamp.type", "LogAppendTime")
    return partition, placed[partition] + 1
