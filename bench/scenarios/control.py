"""Controls beside many pending ids: from the first one sent to the last one answered in the outcomes."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

from bench.cluster import Cluster, Clusters
from bench.loader import Load
from bench.measured import Measured
from bench.reader import ReadJob, ReadResult

HOUR_MS: Final = 3_600_000


class Control:
    """Pending messages with ids. Some are sent again, to be kept as they are; rescheduled; cancelled."""

    def __init__(self, pending: int, controls: int) -> None:
        self.messages = pending
        self._controls = controls

    def run(self, clusters: Clusters) -> Measured:
        with clusters.cluster("control") as cluster:
            node, messages = cluster.node, self.messages
            due_ms = int(time.time() * 1000) + HOUR_MS
            pending = cluster.load(messages, first_due_ms=due_ms, span_ms=HOUR_MS, order="random", ids=True)
            pending.send()
            node.start()
            node.wait("leader", lambda sample: sample.leader and sample.applied == messages)
            some = replace(pending, count=self._controls)
            return Measured(
                {
                    "control.keeps": _answered_per_s(cluster, replace(some, if_exists="keep")),
                    "control.reschedules": _answered_per_s(cluster, replace(some, op="reschedule")),
                    "control.cancels": _answered_per_s(cluster, replace(some, op="cancel")),
                    "memory.control": node.peak_memory_mb(),
                }
            )


def _answered_per_s(cluster: Cluster, controls: Load) -> float:
    with ReadJob(cluster.bootstrap, cluster.names.outcomes, controls.count).begin() as reader:
        begun_ms = time.time() * 1000
        with controls.begin():
            read = ReadResult(**reader.result())
    return controls.count / ((read.last_ms - begun_ms) / 1000)
