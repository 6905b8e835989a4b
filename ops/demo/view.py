"""The live view, on stderr: a table that changes in place, or a line every few seconds without a terminal."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ops.demo.episode import Failover
from ops.demo.measure import ReceivedLateness
from ops.demo.proof import ProofRound

LINE_EVERY_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class LiveStatus:
    """What there is to see at one moment."""

    stage: str
    leader: str | None = None
    epoch: int = 0
    states: dict[str, str] = field(default_factory=dict)
    acknowledged: int = 0
    pending: int = 0
    delivered: int = 0
    lateness: ReceivedLateness = field(default_factory=ReceivedLateness)  # of what came last
    failovers: tuple[Failover, ...] = ()
    rounds: tuple[ProofRound, ...] = ()


class LiveView:
    """Shows `picture()` again and again, on a thread of its own, while the block lasts."""

    def __init__(self, picture: Callable[[], LiveStatus], console: Console) -> None:
        self._picture = picture
        self._console = console
        self._begin_s = time.monotonic()
        self._live = Live(console=console, get_renderable=self._table, refresh_per_second=4, transient=True)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._speak, name="view", daemon=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        else:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._console.is_terminal:
            self._live.stop()
        else:
            self._thread.join()

    def _speak(self) -> None:
        while not self._ended.wait(LINE_EVERY_S):
            self._console.print(self._clock(), *_words(self._picture()), soft_wrap=True, highlight=False)

    def _table(self) -> RenderableType:
        picture = self._picture()
        table = Table.grid(padding=(0, 2))
        table.add_row(Text(self._clock(), style="bold"), Text(picture.stage, style="bold cyan"))
        table.add_row("leader", _leader(picture))
        table.add_row("nodes", "  ".join(f"{node} {state}" for node, state in sorted(picture.states.items())))
        table.add_row("messages", _counts(picture))
        table.add_row("lateness", _late(picture.lateness))
        table.add_row("proven", proven(picture.rounds))
        parts: list[RenderableType] = [table]
        if picture.failovers:
            parts.append(failover_table(picture.failovers))
        return Group(*parts)

    def _clock(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self._begin_s), 60)
        return f"{minutes:02}:{seconds:02}"


def failover_table(failovers: tuple[Failover, ...]) -> Table:
    """The faults so far."""
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for heading in ("fault", "leader", "gap", "due +-1 s", "whole after", "worst pause"):
        table.add_column(heading, no_wrap=True, justify="left" if heading in ("fault", "leader") else "right")
    for failover in failovers:
        stayed = failover.leader == failover.leader_before
        table.add_row(
            FAULT_NAMES[failover.kind],
            f"{failover.leader} stays" if stayed else f"{failover.leader_before} -> {failover.leader}",
            f"{failover.gap_ms:.0f} ms",
            str(failover.due_within_1s),
            f"{failover.healthy_after_ms / 1000:.1f} s",
            f"{failover.pause_until_healthy_ms:.0f} ms",
        )
    return table


def proven(rounds: tuple[ProofRound, ...]) -> str:
    """What the watch has proven so far."""
    if not rounds:
        return "nothing yet"
    last = rounds[-1]
    up_to = datetime.fromtimestamp(last.proven_up_to_ms / 1000, UTC)
    return (
        f"up to {up_to:%H:%M:%S} UTC, {_many(len(rounds), 'round')}: {last.requests:,} requests, "
        f"{_many(last.violations, 'violation')}"
    )


def _many(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


FAULT_NAMES: Final = {
    "kill": "leader killed",
    "term": "switchover",
    "pause": "leader paused",
    "zookeeper": "ZooKeeper away",
}


def _words(picture: LiveStatus) -> list[str]:
    done = [f"{failover.kind} {failover.gap_ms:.0f} ms" for failover in picture.failovers]
    words = [
        picture.stage,
        f"leader {_leader(picture)}",
        _counts(picture),
        f"lateness {_late(picture.lateness)}",
        f"proven {proven(picture.rounds)}",
    ]
    return [" | ".join([*words, f"gaps: {', '.join(done)}"] if done else words)]


def _leader(picture: LiveStatus) -> str:
    return f"{picture.leader}, epoch {picture.epoch}" if picture.leader else "none"


def _counts(picture: LiveStatus) -> str:
    return (
        f"{picture.acknowledged:,} acknowledged, {picture.pending:,} pending, {picture.delivered:,} delivered"
    )


def _late(lateness: ReceivedLateness) -> str:
    if lateness.p50 is None:
        return "-"
    return f"p50 {lateness.p50:.0f} ms, p99 {lateness.p99:.0f} ms, max {lateness.max:.0f} ms"
