"""How long nothing is delivered when the master is killed: `python -m bench.failover`.

Three nodes on this machine deliver a steady load; the master gets a SIGKILL, again and again. The gap is the
longest pause in the receipts of a read_committed consumer round the kill, as in the demo (ops/demo).
"""

from __future__ import annotations

import argparse
import logging
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final, Self

from delayline import DelayProducer
from ops import logs
from ops.demo.cluster import SESSION_TIMEOUT_S, DemoCluster, own_settings_only
from ops.demo.episode import longest_undisturbed_pause_ms, measured
from ops.demo.faults import Kill, Scene, suffer
from ops.demo.measure import Stretch, lateness_within
from ops.demo.receipts import Receipts
from ops.demo.watch import Watch, now_ms
from ops.demo.workload import KIND_HEADER

TARGETS: Final = {"bench.target": 4}
KIND: Final = "deliver-at"
LEAD_MS: Final = 1_000
TICK_S: Final = 0.01
WARM_UP_S: Final = 5.0
CALM_S: Final = 2.0
MEDIAN_GOAL_MS: Final = 100
MAX_GOAL_MS: Final = 600


class Load:
    """Schedules messages at a steady rate on a thread of its own, each due a second later."""

    def __init__(self, producer: DelayProducer, rate: int) -> None:
        self._producer = producer
        self._rate = rate
        self._failure: Exception | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def expect_sound(self) -> None:
        """Raises what has ended the load: a gap without one would mean nothing."""
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._send()
        except Exception as error:
            self._failure = error

    def _send(self) -> None:
        begin_s, sent = time.monotonic(), 0
        while not self._ending.wait(TICK_S):
            while sent < (time.monotonic() - begin_s) * self._rate:
                due_ms = int(now_ms()) + LEAD_MS
                self._producer.schedule(
                    "bench.target",
                    b"x" * 200,
                    key=b"%d" % sent,
                    headers={KIND_HEADER: KIND},
                    deliver_at=due_ms,
                )
                sent += 1


def main() -> int:
    """Kill, measure, print. Exit code 1 if the goals are missed."""
    parser = argparse.ArgumentParser(description="Kill the master under load and measure the gaps.")
    parser.add_argument("--kills", type=int, default=20, help="how many times (default: 20)")
    parser.add_argument("--rate", type=int, default=1_000, help="messages a second (default: 1000)")
    parser.add_argument("--nodes", type=int, default=3, help="delay nodes (default: 3)")
    chosen = parser.parse_args()
    own_settings_only()
    logs.configure(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="delayline-failover-") as folder:
        met = _measure(DemoCluster(Path(folder), chosen.nodes, TARGETS), chosen.kills, chosen.rate)
    return 0 if met else 1


def _measure(cluster: DemoCluster, kills: int, rate: int) -> bool:
    """Whether the goals are met."""
    receipts = Receipts(cluster.stack.bootstrap, list(TARGETS))
    watch = Watch(cluster.config)
    with (
        cluster,
        watch,
        receipts,
        DelayProducer(cluster.stack.bootstrap) as producer,
        Load(producer, rate) as load,
    ):
        scene = Scene(cluster.stack, cluster.nodes, watch, receipts.arrivals, SESSION_TIMEOUT_S)
        scene.wait_healthy()
        time.sleep(WARM_UP_S)
        gaps: list[float] = []
        calm: list[Stretch] = []
        for number in range(1, kills + 1):
            begin_ms = now_ms()
            time.sleep(CALM_S)
            calm.append(Stretch(begin_ms, now_ms()))
            load.expect_sound()
            gaps.append(measured(suffer(scene, Kill()), receipts.arrivals).gap_ms)
            _say(f"kill {number:2}: {gaps[-1]:.0f} ms")
        late = lateness_within(receipts.arrivals, calm, frozenset({KIND}))
        pause_ms = longest_undisturbed_pause_ms(calm, receipts.arrivals)
    _say(f"gap: median {statistics.median(gaps):.0f} ms, max {max(gaps):.0f} ms over {kills} kills")
    _say(f"undisturbed: lateness p50 {late.p50} ms, p99 {late.p99} ms; longest pause {pause_ms:.0f} ms")
    met = statistics.median(gaps) < MEDIAN_GOAL_MS and max(gaps) <= MAX_GOAL_MS
    _say(
        f"goals, a median under {MEDIAN_GOAL_MS} ms and none over {MAX_GOAL_MS}: {'met' if met else 'MISSED'}"
    )
    return met


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
