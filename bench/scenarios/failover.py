"""How long nothing is delivered when the leader is killed, or stands still.

Three nodes deliver a steady load; the leader gets a SIGKILL, or a SIGSTOP, again and again. The gap is the
longest pause in the receipts of a read_committed consumer round that, as in the demo (ops/demo). What it is
to be held against is how long the longest pause is when nothing happens to anybody.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.figures import RATE
from bench.loader import Load
from bench.measured import Measured
from delayline.names import ClusterNames
from ops.demo.cluster import SESSION_TIMEOUT_S, DemoCluster
from ops.demo.episode import longest_undisturbed_pause_ms, measured
from ops.demo.faults import Fault, Scene, suffer
from ops.demo.lookout import Lookout, now_ms
from ops.demo.measure import Stretch
from ops.demo.receipts import Receipts
from ops.stack import SHIPPED_JVM

TARGET: Final = "bench.target"
NODES: Final = 3
LEAD_MS: Final = 1_000
WARM_UP_S: Final = 60.0  # until the broker's compiler has done most of its work
CALM_S: Final = 2.0
ENDLESS_S: Final = 3_600
FAULT_S: Final = 10  # from one to the next, at the most


class RepeatedFailover:
    """A fault so many times at so many messages a second; on a stack of its own."""

    def __init__(self, name: str, rate: int, times: int, fault: type[Fault]) -> None:
        """`name`: what the figures are called, before the rate."""
        self._name = f"{name}.{rate}"
        self._rate = rate
        self._times = times
        self._fault = fault
        self.messages = rate * times * FAULT_S

    def run(self) -> Measured:
        with tempfile.TemporaryDirectory(prefix="delayline-bench-") as folder:
            cluster = DemoCluster(Path(folder), NODES, {TARGET: 4}, SHIPPED_JVM)
            receipts, lookout = Receipts(cluster.stack.bootstrap, [TARGET]), Lookout(cluster.config)
            with cluster, lookout, receipts, self._load(cluster).begin():
                scene = Scene(cluster.stack, cluster.nodes, lookout, receipts.received, SESSION_TIMEOUT_S)
                scene.wait_healthy()
                first_epoch = _epoch(scene)
                time.sleep(WARM_UP_S)
                return self._suffer(scene, first_epoch)

    def _load(self, cluster: DemoCluster) -> Load:
        return Load(
            cluster.stack.bootstrap,
            ClusterNames(cluster.config.cluster).buffer,
            TARGET,
            self._rate * ENDLESS_S,
            rate=self._rate,
            lead_ms=LEAD_MS,
            settings={},
        )

    def _suffer(self, scene: Scene, first_epoch: int) -> Measured:
        gaps_ms: list[float] = []
        calm: list[Stretch] = []
        for _ in range(self._times):
            begin_ms = now_ms()
            time.sleep(CALM_S)
            calm.append(Stretch(begin_ms, now_ms()))
            gaps_ms.append(measured(suffer(scene, self._fault()), scene.received).gap_ms)
        unasked = _epoch(scene) - first_epoch - self._times
        # What was due before the last fault has all come by now.
        dues_ms = [message.scheduled_for_ms for message in scene.received]
        pauses_ms = [longest_undisturbed_pause_ms([stretch], scene.received) for stretch in calm]
        offered = offered_per_s(dues_ms, Stretch(calm[0].begin_ms, calm[-1].end_ms))
        return gaps(self._name, gaps_ms, pauses_ms, offered, unasked)


def _epoch(scene: Scene) -> int:
    leader = scene.lookout.view.leader_status
    assert leader is not None, "healthy: one node leads"
    return leader.epoch


def gaps(
    name: str, gaps_ms: list[float], undisturbed_ms: list[float], offered: float, unasked: int
) -> Measured:
    """The gap of each fault, the longest pause before each, what the load was, and how many leaderships there
    were beside those that the faults have made necessary.
    """
    return Measured(
        {
            f"{name}.p90": sorted(gaps_ms)[math.ceil(0.9 * len(gaps_ms)) - 1],
            f"{name}.max": max(gaps_ms),
            f"{name}.unasked": float(unasked),
            f"{name}{RATE}": offered,
        },
        samples={name: gaps_ms, f"{name}.undisturbed": undisturbed_ms},
    )


def offered_per_s(dues_ms: Sequence[int], stretch: Stretch) -> float:
    """How many messages a second were due, and so sent, in a stretch of time."""
    seconds = (stretch.end_ms - stretch.begin_ms) / 1000
    return sum(stretch.begin_ms <= due_ms <= stretch.end_ms for due_ms in dues_ms) / seconds
