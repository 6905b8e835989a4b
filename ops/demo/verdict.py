"""What the demo has shown, for people and as JSON."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any, Final

import confluent_kafka
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ops.demo.episode import Failover
from ops.demo.measure import ReceivedLateness
from ops.demo.proof import ProofRound
from ops.demo.view import failover_table, proven
from ops.setup.jars import kafka_jars, zookeeper_jars
from ops.setup.java import find_java, java_version
from pipeline.audit import AuditReport

MEMORY_LIMIT_MB: Final = 512
"""What a node may take at most, whatever is pending: caches, memtables, clients' queues are bounded."""

_PENDING: Final = "pending"
_CHECKS: Final = (
    ("I1", "lost", "lost"),
    ("I1", "duplicated", "duplicated"),
    ("I1", "overdue", "overdue"),
    ("I1", "missing_from_buffer", "acknowledged, not in the buffer"),
    ("I1", "wrong_occurrence", "wrong occurrence"),
    ("I1", "unexplained", "unexplained"),
    ("I2", "early", "early"),
    ("I3", "altered", "altered"),
    ("I4", "out_of_order", "out of order"),
    ("I5", "checkpoint_moved_back", "checkpoint moved back"),
    ("I6", "epochs_overlapping", "two leaders at once"),
    ("I7", "false_outcomes", "false outcomes"),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """All of it. `audited` is the Spark audit's report, `rounds` are the watch's: the last at the end."""

    audited: AuditReport
    rounds: tuple[ProofRound, ...]
    failovers: tuple[Failover, ...]
    lateness: ReceivedLateness  # in the undisturbed stretches
    longest_undisturbed_pause_ms: float
    undisturbed_s: float
    peak_memory_mb: dict[str, int]  # by node
    duration_s: float
    settings: dict[str, Any]

    @property
    def holds(self) -> bool:
        """Whether I1 to I8 hold and nothing overdue is left."""
        found = self.audited.clean and self.audited.overdue == 0
        return found and self.rounds[-1].violations == 0 and self.differences == 0 and self._fits

    @property
    def differences(self) -> int:
        """How many requests and occurrences the watch has seen end in the end otherwise than the audit. That
        comes later: what was pending may have ended meanwhile.
        """
        last, audited = self.rounds[-1], self.audited
        pairs = (last.classes, audited.classes), (last.occurrences, audited.occurrences)
        ended_otherwise = sum(
            max(0, count - found.get(name, 0))
            for watched, found in pairs
            for name, count in watched.items()
            if name != _PENDING
        )
        return ended_otherwise + abs(last.requests - audited.requests)

    @property
    def _fits(self) -> bool:
        return all(used <= MEMORY_LIMIT_MB for used in self.peak_memory_mb.values())

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        counts = {name: getattr(self.audited, name) for _, name, _ in _CHECKS}
        return {
            "holds": self.holds,
            **counts,
            "requests": self.audited.requests,
            "ledger": self.audited.ledger,
            "classes": dict(self.audited.classes),
            "occurrences": dict(self.audited.occurrences),
            "violations": [asdict(violation) for violation in self.audited.violations],
            "rounds": [asdict(one) | {"requests": one.requests} for one in self.rounds],
            "failovers": [asdict(failover) for failover in self.failovers],
            "lateness_ms": asdict(self.lateness),
            "longest_undisturbed_pause_ms": self.longest_undisturbed_pause_ms,
            "undisturbed_s": round(self.undisturbed_s, 1),
            "peak_memory_mb": self.peak_memory_mb,
            "duration_s": round(self.duration_s, 1),
            "settings": self.settings,
            "versions": versions(),
        }

    def show(self, console: Console) -> None:
        """Print it."""
        counts = f"{self.audited.requests:,} requests, {self.audited.ledger:,} acknowledged"
        console.print(f"\n{counts}: {_listed(self.audited.classes)}")
        occurrences = sum(self.audited.occurrences.values())
        console.print(f"\n{occurrences:,} occurrences: {_listed(self.audited.occurrences)}\n")
        console.print(self._table())
        console.print(f"\nmeanwhile the watch has proven: {proven(self.rounds)}\n")
        console.print(failover_table(self.failovers))
        console.print(
            f"\nundisturbed, {self.undisturbed_s:.0f} s: lateness p50 {self.lateness.p50} ms, "
            f"p99 {self.lateness.p99} ms, max {self.lateness.max} ms; "
            f"longest pause {self.longest_undisturbed_pause_ms:.0f} ms"
        )
        for violation in self.audited.violations[:10]:
            console.print(Text(f"{violation.kind} {violation.source}: {violation.detail}", style="red"))
        console.print(
            Text("Every promise was kept.", style="bold green")
            if self.holds
            else Text("A PROMISE WAS BROKEN.", style="bold red")
        )

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 2))
        table.add_column("")
        table.add_column("Spark's audit found")
        table.add_column("", justify="right")
        for rule, name, words in _CHECKS:
            table.add_row(rule, words, _count(getattr(self.audited, name)))
        table.add_row("", "open at the end of the watch's last round", _count(self.rounds[-1].violations))
        table.add_row("", "classed otherwise by the watch", _count(self.differences))
        worst = max(self.peak_memory_mb.values(), default=0)
        table.add_row("I8", f"a node's memory at its peak ({MEMORY_LIMIT_MB} MB allowed)", _mb(worst))
        return table


def versions() -> dict[str, str]:
    """Of everything that took part."""
    return {
        "delayline": version("delayline"),
        "python": platform.python_version(),
        "java": str(java_version(find_java())),
        "kafka": _revision([jar.stem for jar in kafka_jars()], "kafka_2.13-"),
        "zookeeper": _revision([jar.stem for jar in zookeeper_jars()], "zookeeper-"),
        "confluent-kafka": version("confluent-kafka"),
        "librdkafka": confluent_kafka.libversion()[0],
        "rocksdict": version("rocksdict"),
        "kazoo": version("kazoo"),
        "pyspark": version("pyspark"),
    }


def _revision(names: list[str], prefix: str) -> str:
    """The revision in the one jar's name that is the prefix and a number."""
    found = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
    return next((revision for revision in found if revision[:1].isdigit()), "?")


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count) or "none"


def _count(count: int) -> Text:
    return Text(f"{count}", style="green" if count == 0 else "bold red")


def _mb(used: int) -> Text:
    return Text(f"{used} MB", style="green" if used <= MEMORY_LIMIT_MB else "bold red")
