"""A node's metrics, as Prometheus reads them. docs/metrics.md says what each means.

They are made from what is known already, at most once a second whoever asks and however often, and one by
one: nobody who waits for the interpreter waits for more than one of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from prometheus_client import generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from node.health.meter import Histogram, Meter
from node.health.vitals import Vitals
from node.snapshot.giver import Counts as Given
from node.status import BlockedPartition, NodeState
from store.holds import Holds, held_of
from store.rocks import Figures

FRESH_S: Final = 1.0
PREFIX: Final = "delayline_"


class _Gauge(NamedTuple):
    name: str
    says: str
    value: Callable[[Vitals], float | None]


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else ms / 1000


_GAUGES: Final = (
    _Gauge(
        "pending_messages",
        "Requests that wait for their time, or to be delivered.",
        lambda v: v.pending,
    ),
    _Gauge(
        "overdue_messages",
        "Requests that are due and not known to be delivered.",
        lambda v: v.overdue and v.overdue.rows,
    ),
    _Gauge(
        "oldest_overdue_seconds",
        "For how long the oldest of the overdue requests has been due; 0: none is.",
        lambda v: _seconds(v.overdue and v.overdue.oldest_ms),
    ),
    _Gauge(
        "delivered_up_to_timestamp_seconds",
        "Nothing that was due by then is left to be delivered.",
        lambda v: _seconds(v.delivered_up_to_ms),
    ),
    _Gauge("leader", "1 on the node that delivers.", lambda v: v.leads),
    _Gauge("epoch", "The number of the lane's last leadership that the node knows of.", lambda v: v.epoch),
    _Gauge(
        "apply_lag_records",
        "Offsets of the buffer topic that are committed and that the node has not read.",
        lambda v: v.lag,
    ),
    _Gauge(
        "buffer_unstable_records",
        "Offsets of the buffer topic above its last stable one: an open transaction holds them back.",
        lambda v: v.unstable,
    ),
    _Gauge(
        "buffer_dated_by_clients",
        "1 while the buffer topic's records have the times that producers give them, not the brokers'.",
        lambda v: v.dated_by_clients,
    ),
    _Gauge(
        "retention_near_partitions",
        "Partitions of the buffer topic in which retention will soon take what is still needed.",
        lambda v: None if v.near is None else len(v.near),
    ),
    _Gauge(
        "clock_offset_seconds",
        "By how much the brokers' clock is ahead of the leader's, as its last commit has shown.",
        lambda v: _seconds(v.clock_offset_ms),
    ),
    _Gauge("paused", "1 while an operator has paused the cluster.", lambda v: v.pauses.everything),
    _Gauge("paused_targets", "Target topics that an operator has paused.", lambda v: len(v.pauses.targets)),
    _Gauge(
        "targets_known",
        "Target topics that are there and in use, as far as the node has looked them up.",
        lambda v: v.targets and v.targets.known,
    ),
    _Gauge(
        "targets_missing",
        "Names of target topics that were not there a moment ago.",
        lambda v: v.targets and v.targets.missing,
    ),
    _Gauge(
        "data_dir_free_bytes", "What is free on the disk of the node's data folder.", lambda v: v.free_bytes
    ),
    _Gauge("zookeeper_connected", "1 while the node is connected to ZooKeeper.", lambda v: v.zookeeper),
)

_OF_ROCKSDB: Final = {
    "live_bytes": "The table files of the current view.",
    "block_cache_bytes": "What the block cache holds.",
    "memtable_bytes": "What the memtables hold.",
    "pending_compaction_bytes": "What compaction still has to write, by RocksDB's estimate.",
    "estimated_keys": "Keys of all kinds, by RocksDB's estimate.",
    "write_stopped": "1 while RocksDB takes no writes.",
}


class Exposition:
    """Used on the event loop of the HTTP thread alone."""

    def __init__(self, vitals: Callable[[], Vitals]) -> None:
        self._vitals = vitals
        self._text = b""
        self._made_s: float | None = None
        self._making = asyncio.Lock()

    async def text(self) -> bytes:
        """The metrics in Prometheus' text format, at most `FRESH_S` old."""
        async with self._making:
            if self._made_s is None or time.monotonic() - self._made_s > FRESH_S:
                made_s, parts = time.monotonic(), []
                for family in families(self._vitals()):
                    parts.append(generate_latest(_One(family)))
                    await asyncio.sleep(0)  # the loop's look at its sockets lets the interpreter go
                self._text, self._made_s = b"".join(parts), made_s
            return self._text


class _One(Collector):
    """A registry of one metric."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        return (self._family,)


def families(vitals: Vitals) -> Iterator[Metric]:
    """All metrics; one of which nothing is known has no sample."""
    return _labelled(vitals, _unlabelled(vitals))


def _labelled(vitals: Vitals, made: Iterable[Metric]) -> Iterator[Metric]:
    own = vitals.nameplate
    of_the_node = {"cluster": own.cluster, "node": own.node, "lane": str(own.lane)}
    for family in made:
        family.samples = [sample._replace(labels=of_the_node | sample.labels) for sample in family.samples]
        yield family


def _unlabelled(vitals: Vitals) -> Iterator[Metric]:
    yield _info(vitals)
    yield _state(vitals)
    yield _refusing(vitals)
    for gauge in _GAUGES:
        yield _gauge(gauge.name, gauge.says, gauge.value(vitals))
    yield from _rocksdb(vitals.figures)
    yield from _counted(vitals.meter or Meter())
    yield _strange(vitals)
    yield from _blocked(vitals.blocked or ())
    yield _held(vitals.holds)
    yield from _snapshots(vitals)


def _gauge(name: str, says: str, value: float | None) -> Metric:
    return GaugeMetricFamily(PREFIX + name, says, value=None if value is None else float(value))


def _info(vitals: Vitals) -> Metric:
    family = GaugeMetricFamily(PREFIX + "build_info", "1; the version is a label.", labels=["version"])
    family.add_metric([vitals.nameplate.version], 1)
    return family


def _state(vitals: Vitals) -> Metric:
    family = GaugeMetricFamily(PREFIX + "state", "1 for the state that the node is in.", labels=["state"])
    for state in NodeState:
        family.add_metric([state], state == vitals.state)
    return family


def _refusing(vitals: Vitals) -> Metric:
    says = "1 while the node cannot be leader, with the code of the reason."
    family = GaugeMetricFamily(PREFIX + "refusing", says, labels=["reason"])
    if vitals.refusal is not None:
        family.add_metric([vitals.refusal.code], 1)
    return family


def _strange(vitals: Vitals) -> Metric:
    says = "Records of the checkpoint topic that are not the service's, or are copies, and were passed over."
    family = CounterMetricFamily(PREFIX + "rejected_checkpoints", says, labels=["kind"])
    for kind, count in (vitals.rejected_checkpoints or {}).items():
        family.add_metric([kind], count)
    return family


def _blocked(blocked: Sequence[BlockedPartition]) -> Iterator[Metric]:
    """A partition is there only while it is blocked."""
    records = GaugeMetricFamily(
        PREFIX + "buffer_blocked_records",
        "Offsets behind a last stable offset that stands still: an open transaction holds them back.",
        labels=["partition"],
    )
    seconds = GaugeMetricFamily(
        PREFIX + "buffer_blocked_seconds",
        "For how long that end has been seen to stand still.",
        labels=["partition"],
    )
    now_s = time.time()
    for one in blocked:
        records.add_metric([str(one.partition)], one.records)
        seconds.add_metric([str(one.partition)], max(0.0, now_s - one.since_ms / 1000))
    yield records
    yield seconds


def _held(holds: Holds) -> Metric:
    """A target is there only while anything of it may wait."""
    says = "Messages at most that have come up and wait, since an operator has paused their target."
    family = GaugeMetricFamily(PREFIX + "paused_messages", says, labels=["target"])
    for target, held in held_of(holds).items():
        family.add_metric([target], held.rows)
    return family


def _snapshots(vitals: Vitals) -> Iterator[Metric]:
    """Views that went from node to node."""
    given, taken = vitals.given or Given(), vitals.snapshot
    says = "Snapshots of this node's view that it has handed out, or has not to the end."
    family = CounterMetricFamily(PREFIX + "snapshots_given", says, labels=["outcome"])
    family.add_metric(["whole"], given.given)
    family.add_metric(["abandoned"], given.abandoned)
    yield family
    yield CounterMetricFamily(
        PREFIX + "snapshot_given_bytes",
        "Bytes of snapshots that this node has sent.",
        value=given.given_bytes,
    )
    yield CounterMetricFamily(
        PREFIX + "snapshots_passed_over",
        "Snapshots of peers that this node has asked for and could not use.",
        value=vitals.passed_over,
    )
    yield _gauge(
        "snapshot_taken_bytes",
        "The size of the peer's view with which this process has begun.",
        None if taken is None else taken.bytes,
    )
    yield _gauge(
        "snapshot_taken_seconds",
        "How long it took to take and look at that view.",
        None if taken is None else taken.seconds,
    )


def _rocksdb(figures: Figures | None) -> Iterator[Metric]:
    for name, says in _OF_ROCKSDB.items():
        yield _gauge(f"rocksdb_{name}", f"RocksDB: {says}", figures and getattr(figures, name))


def _counted(meter: Meter) -> Iterator[Metric]:
    yield CounterMetricFamily(
        PREFIX + "delivered",
        "Messages that this node has delivered to their targets.",
        value=meter.delivered,
    )
    yield CounterMetricFamily(
        PREFIX + "checkpoint_losses",
        "How often this node has taken over and found that the checkpoint topic had lost its end.",
        value=meter.losses,
    )
    requests = CounterMetricFamily(
        PREFIX + "requests",
        "What became of requests while this node was leader.",
        labels=["op", "outcome", "reason"],
    )
    for (op, outcome, reason), count in list(meter.requests.items()):
        requests.add_metric([op, outcome, reason or ""], count)
    yield requests
    yield _histogram(
        "delivery_lateness_seconds",
        "From when a request fell due to when the transaction that carried it was known to be committed.",
        meter.lateness,
        unit=1000,
    )
    yield _histogram("commit_seconds", "How long the commit of a transaction took.", meter.commits, unit=1000)
    yield _histogram(
        "selection_messages", "Rows and answers in a transaction that had any.", meter.selections, unit=1
    )


def _histogram(name: str, says: str, counted: Histogram, *, unit: int) -> Metric:
    family = HistogramMetricFamily(PREFIX + name, says)
    edges = [*(str(edge / unit) for edge in counted.edges), "+Inf"]
    family.add_metric([], list(zip(edges, counted.reached(), strict=True)), counted.sum / unit)
    return family
