"""How late messages come while the lane carries what waits for long."""

from __future__ import annotations

import time
from typing import Final, Literal, get_args

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from bench.cluster import PATIENCE_S, POLL_S, QUIET, Cluster, Clusters
from bench.measured import Measured
from bench.scenarios.steady import Pace
from delayline.headers import H_OP, OP_CARRY

What = Literal["nothing", "all"]
"""What is carried of what waits: nothing, since the log is kept for a week; or all of it, twice a minute."""
CARRIES: Final[tuple[What, ...]] = get_args(What)

WAITING: Final = 50_000
"""Carried once in half of the retention each: 100,000 a minute."""
RETENTION_MS: Final = 60_000
WINDOW_S: Final = 1.0
HOUR_MS: Final = 3_600_000
READ_AT_ONCE: Final = 1_000

_Offsets = dict[int, int]


class Carried:
    """A steady rate, as `lateness.Steady`, beside messages that wait for an hour."""

    def __init__(self, what: What, rate: int) -> None:
        self._what = what
        self._pace = Pace(rate)
        self.messages = self._pace.messages + 4 * WAITING  # with what is carried of them

    def run(self, clusters: Clusters) -> Measured:
        """Raises `TimeoutError` if nothing is carried though it should be."""
        name = f"carried.{self._what}.{self._pace.rate}"
        chosen = {"retention_ms": RETENTION_MS} if self._what == "all" else {}
        # What was delivered a second ago is not kept for replays, nor its id: a minute is short for that.
        node, window_ms = {"replay_window_s": WINDOW_S}, round(WINDOW_S * 1000)
        with clusters.cluster("carried", node, dedup_window_ms=window_ms, **chosen) as cluster:
            cluster.node.lead()
            # As fast as they are carried again.
            cluster.load(WAITING, rate=WAITING * 2_000 // RETENTION_MS, lead_ms=HOUR_MS).send()
            cluster.node.wait("all applied", lambda sample: sample.applied >= WAITING)
            if chosen:
                self._wait_for_carries(cluster)
            begins, began_s = _ends(cluster), time.monotonic()
            came = self._pace.come(cluster)
            ends, took_s = _ends(cluster), time.monotonic() - began_s
            carries = _carries(cluster, begins, ends)
            return came.measured(name, {f"{name}.carries": carries * 60 / took_s})

    def _wait_for_carries(self, cluster: Cluster) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        begins = _ends(cluster)
        while not _carries(cluster, begins, _ends(cluster)):
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"nothing was carried within {PATIENCE_S:.0f} s")
            time.sleep(POLL_S)


def _ends(cluster: Cluster) -> _Offsets:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    topic = cluster.names.buffer
    partitions = admin.list_topics(topic).topics[topic].partitions
    asked = {TopicPartition(topic, one): OffsetSpec.latest() for one in partitions}
    return {at.partition: found.result().offset for at, found in admin.list_offsets(asked).items()}


def _carries(cluster: Cluster, begins: _Offsets, ends: _Offsets) -> int:
    """How many there are in that part of the buffer."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "bench", "enable.partition.eof": True, **QUIET}
    )
    found, left = 0, {one for one, end in ends.items() if end > begins[one]}
    consumer.assign([TopicPartition(cluster.names.buffer, one, begins[one]) for one in left])
    while left:
        for message in consumer.consume(READ_AT_ONCE, POLL_S):
            partition, offset = message.partition(), message.offset()
            assert partition is not None, "it was read from one"
            if message.error() or offset is None or offset >= ends[partition] - 1:
                left.discard(partition)
            found += not message.error() and (H_OP, OP_CARRY) in (message.headers() or ())
    consumer.close()
    return found
