"""Messages at a steady rate, each due a second after it is sent: what several scenarios read at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from bench.cluster import Cluster
from bench.figures import RATE
from bench.measured import Measured
from bench.reader import ReadJob, ReadResult

LEAD_MS: Final = 1_000
WARM_UP_MS: Final = 3_000
MEASURED_S: Final = 10
TAKES_S: Final = MEASURED_S + (WARM_UP_MS + LEAD_MS) / 1000


class Came(NamedTuple):
    """How the messages came, and at which rate they were sent."""

    read: ReadResult
    sent_per_s: float

    def measured(self, name: str, more: dict[str, float]) -> Measured:
        """The lateness, and what the scenario of this name has measured besides."""
        figures = {
            f"{name}.p50": self.read.p50_ms,
            f"{name}.p99": self.read.p99_ms,
            f"{name}.max": self.read.max_ms,
            f"{name}{RATE}": self.sent_per_s,
        }
        return Measured(figures | more, {name: self.read.histogram})


class Pace(NamedTuple):
    """So many messages a second, for as long as is measured."""

    rate: int

    @property
    def messages(self) -> int:
        """All of them, those of the warming up included."""
        return self.rate * (MEASURED_S + WARM_UP_MS // 1000)

    def come(
        self,
        cluster: Cluster,
        targets: Sequence[str] = (),
        unread: Sequence[str] = (),
        on_begin: Callable[[float], None] = lambda _: None,
    ) -> Came:
        """Sends them to all the targets in turn (default: the cluster's), and reads those that are not
        `unread`. `on_begin` is told, before the first is sent, when what is measured begins (epoch seconds).
        """
        read_from = targets or [cluster.target]
        sent_to = [*read_from, *unread]
        from_ms = int(time.time() * 1000) + LEAD_MS + WARM_UP_MS
        count = self.messages // len(sent_to) * len(read_from)
        reading = ReadJob(
            cluster.bootstrap, read_from[0], count, others=read_from[1:], lateness=True, from_ms=from_ms
        )
        load = cluster.load(self.messages, rate=self.rate, lead_ms=LEAD_MS, settings={}, targets=sent_to)
        with reading.begin() as reader:
            on_begin(from_ms / 1000)
            sent_s = load.send()
            return Came(ReadResult(**reader.result()), self.messages / sent_s)
