"""The demo from its first process to its verdict."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import SparkSession
from rich.console import Console

from delayline import DelayProducer
from delayline.settings_versions import SettingsVersions
from node.config import ConnectionConfig
from ops.demo.cluster import SESSION_TIMEOUT_S, DemoCluster
from ops.demo.episode import Failover, longest_undisturbed_pause_ms, measured
from ops.demo.errors import DemoError
from ops.demo.faults import FAULTS, Fault, Scene, suffer
from ops.demo.loader import load_rows
from ops.demo.lookout import Lookout, now_ms
from ops.demo.measure import Stretch, lateness_of, lateness_within
from ops.demo.proof import Proof, ProofRound
from ops.demo.receipts import Receipts
from ops.demo.sender import WorkloadSender
from ops.demo.verdict import Verdict
from ops.demo.view import FAULT_NAMES, LiveStatus, LiveView
from ops.demo.workload import TARGETS, TIMED, WINDOW_MS, Workload
from ops.setup.jars import kafka_jars, spark_connector_jars
from ops.spark import audit_session
from pipeline.audit import AuditConfig, LedgerWriter, audit
from pipeline.audit.picture import Picture as AuditPicture
from pipeline.audit.picture import picture

SEED: Final = 1
LEAD_MS: Final = 2_000
LOADING_MS: Final = 5_000
"""As long as a Spark that has just begun takes to load a file."""
SENT_IN_A_MS: Final = 15
"""Messages that are made, sent and applied by every node in a millisecond, at the least."""
WARM_UP_MS: Final = 3_000
CALM_MS: Final = 4_000
SETTLE_MS: Final = 500
QUIET_S: Final = 60.0
ANSWER_MS: Final = 30_000
TICK_S: Final = 0.05
NEWEST: Final = 500
"""Arrivals that the live view's lateness is of."""


@dataclass(frozen=True, slots=True)
class Options:
    """What can be chosen."""

    messages: int
    nodes: int
    folder: Path


class Demo:
    """One run; `play` once."""

    def __init__(self, options: Options, console: Console) -> None:
        self._options = options
        self._console = console
        self._begin_s = time.monotonic()
        self._stage = "starting Kafka and ZooKeeper, then the nodes"
        self._loaded = 0
        self._proof: Proof | None = None
        self._failovers: list[Failover] = []
        self._stretches: list[Stretch] = []
        self._cluster = DemoCluster(options.folder, options.nodes, TARGETS)
        self._lookout = Lookout(self._cluster.config)
        self._receipts = Receipts(self._cluster.stack.bootstrap, list(TARGETS))
        self._ledger = LedgerWriter(options.folder / "ledger.jsonl")
        self._scene = Scene(
            self._cluster.stack,
            self._cluster.nodes,
            self._lookout,
            self._receipts.received,
            SESSION_TIMEOUT_S,
        )

    @property
    def connection(self) -> ConnectionConfig:
        """Where the demo's cluster is."""
        return self._cluster.config

    @contextmanager
    def play(self) -> Iterator[tuple[Verdict, AuditPicture]]:
        """Run it. The cluster stays up while the block lasts, with all that happened in it."""
        kafka_jars()  # fetched now, with a progress display of its own
        spark_connector_jars()
        with ExitStack() as stack:
            with _begun_spark(self._options.messages) as spark, self._proving():
                with ExitStack() as observers:
                    with LiveView(self._picture, self._console):
                        stack.enter_context(self._cluster)
                        observers.enter_context(self._lookout)
                        observers.enter_context(self._receipts)
                        due_ms = self._trouble(spark)
                    self._console.print("waiting until nothing is outstanding, then auditing with Spark")
                    self._scene.wait(
                        "everything due delivered",
                        lambda: self._delivered_up_to_ms() > due_ms + SETTLE_MS,
                        QUIET_S,
                    )
                rounds = self._proven()
                seen = self._audit(spark.session.result())
            yield self._verdict(seen, rounds), seen

    @contextmanager
    def _proving(self) -> Iterator[None]:
        """Where the block fails, Spark ends, and no round begins any more."""
        try:
            yield
        except BaseException:
            if self._proof is not None:
                self._proof.give_up()
            raise

    def _trouble(self, spark: _Spark) -> int:
        """Load, faults, and the end of the load; returns when the last message is due, epoch ms."""
        self._scene.wait_healthy()
        with self._ledger, self._producer() as producer:
            sender = self._start_load(producer, spark)
            for fault in FAULTS:
                self._stay_calm(sender)
                self._strike(fault())
            self._stay_calm(sender)
            sender.finish()
        return max(int(now_ms()), sender.last_due_ms)

    def _producer(self) -> DelayProducer:
        # If the broker dies, so does the demo; not after librdkafka's five minutes.
        return DelayProducer(
            {"bootstrap.servers": self._cluster.stack.bootstrap, "delivery.timeout.ms": ANSWER_MS}
        )

    def _start_load(self, producer: DelayProducer, spark: _Spark) -> WorkloadSender:
        """Schedule ahead, begin with the rest, and let everybody's first seconds pass."""
        assert self._cluster.settings is not None
        self._stage = "loading a file with Spark"
        session, folder = spark.session.result(), self._options.folder
        rows = self._workload(LOADING_MS).rows()
        self._loaded = spark.thread.submit(
            load_rows, session, self._cluster.config, self._cluster.settings, rows, folder
        ).result()
        self._stage = "scheduling ahead"
        messages, workload = self._options.messages, self._workload(0)
        sender = WorkloadSender(workload, messages - self._loaded, producer, self._ledger)
        sender.send_ahead()
        self._proof = Proof(spark.thread, session, self._audit_config, folder / "watch")
        sender.start()
        self._watch_until(workload.start_ms + WARM_UP_MS, sender)
        return sender

    def _workload(self, more_ms: int) -> Workload:
        """As soon as it can be sent in time, and that much later."""
        assert self._cluster.settings is not None
        messages = self._options.messages
        start_ms = int(now_ms()) + LEAD_MS + messages // SENT_IN_A_MS + more_ms
        return Workload(SEED, start_ms, messages, self._cluster.settings.partitions)

    def _stay_calm(self, sender: WorkloadSender) -> None:
        """A stretch in which nothing is disturbed."""
        self._stage = "undisturbed"
        begin_ms = now_ms()
        self._watch_until(begin_ms + CALM_MS, sender)
        self._stretches.append(Stretch(begin_ms, now_ms()))

    def _watch_until(self, until_ms: float, sender: WorkloadSender) -> None:
        while now_ms() < until_ms:
            if sender.failure is not None:
                raise sender.failure
            if not self._receipts.running:
                raise DemoError("the latency consumer's process has ended")
            if self._proof is not None and self._proof.failure is not None:
                raise self._proof.failure
            time.sleep(TICK_S)

    def _strike(self, fault: Fault) -> None:
        """One fault, until everything is whole again."""
        self._stage = FAULT_NAMES[fault.kind]
        self._failovers.append(measured(suffer(self._scene, fault), self._receipts.received))

    def _delivered_up_to_ms(self) -> int:
        leader = self._lookout.view.leader_status
        return 0 if leader is None else leader.delivered_up_to_ms

    def _picture(self) -> LiveStatus:
        view, received = self._lookout.view, self._receipts.received
        leader = view.leader_status
        newest = [message for message in received[-NEWEST:] if message.kind in TIMED]
        return LiveStatus(
            stage=self._stage,
            leader=view.leader,
            epoch=0 if leader is None else leader.epoch,
            states={node: str(status.state) for node, status in view.members.items()},
            acknowledged=self._ledger.lines,
            pending=0 if leader is None else leader.pending,
            delivered=len(received),
            lateness=lateness_of(message.at_ms - message.scheduled_for_ms for message in newest),
            failovers=tuple(self._failovers),
            rounds=self._proof.rounds if self._proof is not None else (),
        )

    @property
    def _audit_config(self) -> AuditConfig:
        assert self._cluster.settings is not None
        assert self._cluster.keys is not None
        settings = SettingsVersions.of(self._cluster.settings)
        return AuditConfig(self._cluster.stack.bootstrap, settings, self._cluster.keys)

    def _proven(self) -> tuple[ProofRound, ...]:
        """By the watch, until now."""
        assert self._proof is not None, "it has begun with the load"
        self._proof.finish()
        return self._proof.rounds

    def _audit(self, spark: SparkSession) -> AuditPicture:
        config = replace(self._audit_config, ledger=self._options.folder / "ledger.jsonl")
        return picture(audit(spark, config), config)

    def _verdict(self, seen: AuditPicture, rounds: tuple[ProofRound, ...]) -> Verdict:
        received = self._receipts.received
        return Verdict(
            audited=seen.report,
            rounds=rounds,
            failovers=tuple(self._failovers),
            lateness=lateness_within(received, self._stretches, TIMED),
            longest_undisturbed_pause_ms=longest_undisturbed_pause_ms(self._stretches, received),
            undisturbed_s=sum(stretch.end_ms - stretch.begin_ms for stretch in self._stretches) / 1000,
            peak_memory_mb={node: used // 2**20 for node, used in sorted(self._lookout.peak_bytes.items())},
            duration_s=time.monotonic() - self._begin_s,
            settings={
                "messages": self._options.messages,
                "loaded": self._loaded,
                "nodes": self._options.nodes,
                "session_timeout_s": SESSION_TIMEOUT_S,
                "seed": SEED,
                "window_s": WINDOW_MS // 1000,
                "cluster": self._cluster.settings.as_data() if self._cluster.settings else None,
            },
        )


class _Spark(NamedTuple):
    """A session, and the thread that has begun it: in no other one Spark finds what is registered in it."""

    thread: Executor
    session: Future[SparkSession]


@contextmanager
def _begun_spark(messages: int) -> Iterator[_Spark]:
    """It starts beside what is done in the block, and ends with it."""
    with ThreadPoolExecutor(1) as thread:
        spark = _Spark(thread, thread.submit(audit_session, records=messages))
        try:
            yield spark
        finally:
            with suppress(Exception):  # what kept it from starting was raised where it was asked for
                spark.session.result().stop()
