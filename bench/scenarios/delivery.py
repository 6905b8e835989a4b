"""From the view to the target: what is overdue is delivered as fast as it goes, without and with an ingest
of as much again beside it.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

from bench.cluster import Cluster, Clusters
from bench.measured import Measured

HOUR_MS: Final = 3_600_000
SPAN_MS: Final = 1_000
"""Over which a backlog's due times are spread: up to when all is delivered says how much that is."""


class Backlog:
    """A node that was away finds a backlog: it reads all of it, is elected, and delivers."""

    def __init__(self, messages: int, *, ids: bool = False) -> None:
        """`ids`: each message has one."""
        self.messages = messages
        self._ids = ids
        self._name = "delivery.ids" if ids else "delivery"

    def run(self, clusters: Clusters) -> Measured:
        with clusters.cluster("delivery") as cluster:
            cluster.load(self.messages, ids=self._ids).send()
            last_due_ms = time.time() * 1000
            node, name = cluster.node, self._name
            node.start()
            node.wait("all applied", lambda sample: sample.applied == self.messages)
            begun = node.before(node.wait("leader", lambda sample: sample.leader))
            ended = node.wait("all delivered", lambda sample: sample.delivered_up_to_ms > last_due_ms)
            return Measured(
                {
                    name: self.messages / ((ended.at_ms - begun.at_ms) / 1000),
                    f"memory.{name}": node.peak_memory_mb(),
                    f"cpu.{name}.node": (ended.node_cpu_us - begun.node_cpu_us) / self.messages,
                    f"cpu.{name}.broker": (ended.broker_cpu_us - begun.broker_cpu_us) / self.messages,
                }
            )


class Both:
    """A node stands still while a backlog falls due and as much again is sent: then it does both at once.

    Each rate is that of the time in which both are at work.
    """

    def __init__(self, messages: int) -> None:
        self._backlog = messages
        self.messages = 2 * messages

    def run(self, clusters: Clusters) -> Measured:
        with clusters.cluster("both") as cluster:
            return self._measure(cluster)

    def _measure(self, cluster: Cluster) -> Measured:
        node, messages = cluster.node, self._backlog
        node.lead()
        backlog = cluster.load_ahead(messages, SPAN_MS)
        due_ms = backlog.first_due_ms
        wait_until(due_ms - SPAN_MS)
        node.pause()
        replace(backlog, first_due_ms=due_ms + HOUR_MS).send()
        wait_until(due_ms + SPAN_MS)
        node.resume()
        begun_ms = time.time() * 1000
        ended = node.wait(
            "either done",
            lambda one: one.delivered_up_to_ms >= due_ms + SPAN_MS or one.applied == 2 * messages,
        )
        seconds = (ended.at_ms - begun_ms) / 1000
        delivered = messages * min(1.0, max(0.0, (ended.delivered_up_to_ms - due_ms) / SPAN_MS))
        return Measured(
            {
                "both.delivery": delivered / seconds,
                "both.ingest": (ended.applied - messages) / seconds,
                "memory.both": node.peak_memory_mb(),
            }
        )


def wait_until(moment_ms: float) -> None:
    """Returns at the moment, or at once if it has passed."""
    time.sleep(max(0.0, moment_ms / 1000 - time.time()))
