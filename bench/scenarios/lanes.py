"""One, two and four lanes on the same machine: what comes in, what goes out, and how late.

A node of each lane, each a process; all of them take in as many messages, then deliver them, then carry a
steady rate. While the messages are sent and fall due the nodes stand still (SIGSTOP), so that each rate is
that of the one thing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from bench.cluster import PATIENCE_S, POLL_S, BenchNode, Cluster, Clusters, Sample
from bench.measured import Measured
from bench.scenarios.delivery import wait_until
from bench.scenarios.steady import Pace

NUMBERS: Final = (1, 2, 4)
PARTITIONS: Final = 4
SPAN_MS: Final = 1_000
AHEAD_MS: Final = 60_000
"""Sent, and taken in, before the first is due."""


class Lanes:
    """A cluster of so many lanes."""

    def __init__(self, lanes: int, messages: int, rate: int) -> None:
        self._lanes = lanes
        self._backlog = messages
        self._pace = Pace(rate)
        self.messages = messages + self._pace.messages

    def run(self, clusters: Clusters) -> Measured:
        with (
            clusters.cluster("lanes", lanes=self._lanes, partitions=PARTITIONS) as cluster,
            leading_nodes(cluster, self._lanes) as nodes,
        ):
            due_ms = int(time.time() * 1000) + AHEAD_MS
            _each(nodes, BenchNode.pause)
            cluster.load(self._backlog, first_due_ms=due_ms, span_ms=SPAN_MS).send()
            measured = self._ingest(nodes) | self._deliver(nodes, due_ms)
            came = self._pace.come(cluster)
            memory_mb = sum(node.peak_memory_mb() for node in nodes)
            return measured | came.measured(
                f"lanes.{self._lanes}.lateness.{self._pace.rate}", {f"memory.lanes.{self._lanes}": memory_mb}
            )

    def _ingest(self, nodes: Sequence[BenchNode]) -> Measured:
        return self._timed("ingest", nodes, lambda: _all_applied(nodes, self._backlog))

    def _deliver(self, nodes: Sequence[BenchNode], due_ms: int) -> Measured:
        if time.time() * 1000 > due_ms - SPAN_MS:
            raise TimeoutError(f"{self._backlog} messages were not applied before the first was due")
        wait_until(due_ms - SPAN_MS)  # no longer than that: who stands still for long has no session any more
        _each(nodes, BenchNode.pause)
        all_due_ms = due_ms + SPAN_MS
        wait_until(all_due_ms)
        return self._timed("delivery", nodes, lambda: _all_delivered(nodes, all_due_ms))

    def _timed(self, what: str, nodes: Sequence[BenchNode], wait: Callable[[], list[Sample]]) -> Measured:
        """The nodes go on, and have done it at the last of the samples, one of each."""
        before = [node.newest() for node in nodes]
        begun_ms = time.time() * 1000
        _each(nodes, BenchNode.resume)
        after = wait()
        seconds = (max(sample.at_ms for sample in after) - begun_ms) / 1000
        node_us = sum(last.node_cpu_us - first.node_cpu_us for first, last in zip(before, after, strict=True))
        broker_us = max(last.broker_cpu_us for last in after) - min(first.broker_cpu_us for first in before)
        name = f"lanes.{self._lanes}.{what}"
        return Measured(
            {
                name: self._backlog / seconds,
                f"cpu.{name}.node": node_us / self._backlog,
                f"cpu.{name}.broker": broker_us / self._backlog,
            }
        )


@contextmanager
def leading_nodes(cluster: Cluster, lanes: int) -> Iterator[list[BenchNode]]:
    """A node of each lane, all of them leaders; ended at the end."""
    nodes = [cluster.node, *(cluster.node.of_lane(lane) for lane in range(1, lanes))]
    try:
        for node in nodes:
            node.launch()
        for node in nodes:
            node.wait("leader", lambda sample: sample.leader)
        yield nodes
    finally:
        for node in nodes[1:]:
            node.stop()


def _each(nodes: Sequence[BenchNode], do: Callable[[BenchNode], None]) -> None:
    for node in nodes:
        do(node)


def _all_applied(nodes: Sequence[BenchNode], messages: int) -> list[Sample]:
    """Until all together have so many: of each the first sample that shows its own. How many those are
    depends on the keys.
    """
    wait_applied(nodes, messages)
    return [_first(node, "applied", node.newest().applied) for node in nodes]


def wait_applied(nodes: Sequence[BenchNode], messages: int) -> None:
    """Until all together have so many. Raises `TimeoutError`."""
    deadline_s = time.monotonic() + PATIENCE_S
    while sum(node.newest().applied for node in nodes) < messages:
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{messages} messages were not applied within {PATIENCE_S:g} s")
        time.sleep(POLL_S)


def _all_delivered(nodes: Sequence[BenchNode], all_due_ms: int) -> list[Sample]:
    return [_first(node, "delivered_up_to_ms", all_due_ms) for node in nodes]


def _first(node: BenchNode, what: str, reached: int) -> Sample:
    return node.wait(f"{what} {reached}", lambda sample: getattr(sample, what) >= reached)
