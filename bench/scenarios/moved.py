"""How late messages come while a client sets one timer anew, again and again."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Final

from bench.cluster import Cluster, Clusters
from bench.job import JobProcess
from bench.measured import Measured
from bench.scenarios.steady import TAKES_S, Pace

MOVES: Final = (0, 100, 2_000)
"""Reschedules of one id, a second."""
HOUR_MS: Final = 3_600_000


class Moved:
    """A steady rate, as `lateness.Steady`, beside the reschedules of one id."""

    def __init__(self, moves: int, rate: int) -> None:
        self._moves = moves
        self._pace = Pace(rate)
        self.messages = self._pace.messages + int(moves * TAKES_S)

    def run(self, clusters: Clusters) -> Measured:
        with clusters.cluster("moved") as cluster, ExitStack() as stack:
            cluster.node.lead()
            if self._moves:
                stack.enter_context(self._mover(cluster))
            return self._pace.come(cluster).measured(f"moved.{self._moves}", {})

    def _mover(self, cluster: Cluster) -> JobProcess:
        """Sends the message, and then what moves it."""
        later_ms = time.time_ns() // 1_000_000 + HOUR_MS
        cluster.load(1, first_due_ms=later_ms, ids=True).send()
        count = int(self._moves * TAKES_S)
        moves = cluster.load(count, op="move", rate=self._moves, first_due_ms=later_ms, settings={})
        return moves.begin()
