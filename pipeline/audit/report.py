"""The verdict in a few numbers: what fits on a screen, and in the memory of whoever asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from pyspark.sql import Row

KINDS: Mapping[str, str] = {
    "lost": "neither delivered nor ended otherwise by its time; an occurrence that is missing; a control "
    "request without an answer",
    "duplicated": "delivered, dead-lettered or answered more than once; a duplicate that was delivered",
    "early": "delivered before its due time",
    "altered": "key, value, headers, topic or partition are not what was asked for",
    "out_of_order": "delivered behind a message with a greater key that was no late one (I4)",
    "wrong_occurrence": "of a recurring message: not the one that its rule gives, or at another time",
    "false_outcome": "the outcomes topic says what the log and the checkpoints do not bear out (I7)",
    "checkpoint_moved_back": "a checkpoint covers less than the one before it (I5)",
    "epochs_overlapping": "two leaders have committed in turns (I6)",
    "missing_from_buffer": "acknowledged to its producer, and not in the buffer as it was sent; or the "
    "log begins behind what may still wait",
    "unexplained": "a record of the service's for which there is no request",
}

INVARIANTS: Mapping[str, str] = {
    "lost": "I1", "duplicated": "I1", "early": "I2", "altered": "I3", "out_of_order": "I4",
    "wrong_occurrence": "I1",
    "false_outcome": "I7", "checkpoint_moved_back": "I5", "epochs_overlapping": "I6",
    "missing_from_buffer": "I1", "unexplained": "I1",
}  # fmt: skip
"""Which invariant of docs/design.md a violation of each kind breaks."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that is wrong: its kind (of `KINDS`), the record to look at, and what is wrong with it."""

    kind: str
    source: str
    detail: str


@dataclass(frozen=True, slots=True)
class Lateness:
    """How long after their due times messages were delivered, in ms; None if none was."""

    p50: int | None = None
    p99: int | None = None
    max: int | None = None


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What an audit has found. `lost` counts what is overdue too; `overdue` is that part of it alone."""

    requests: int  # of users, in the buffer
    classes: Mapping[str, int]  # of CLASSES, all of them; they sum to `requests`
    ledger: int | None  # lines in the ledger; None without one
    lost: int = 0
    duplicated: int = 0
    early: int = 0
    altered: int = 0
    out_of_order: int = 0
    wrong_occurrence: int = 0
    false_outcomes: int = 0
    overdue: int = 0
    checkpoint_moved_back: int = 0
    epochs_overlapping: int = 0
    missing_from_buffer: int = 0
    unexplained: int = 0
    begins: Mapping[str, int] = field(
        default_factory=dict
    )  # of the partitions that have lost their beginning
    gone: int = 0  # places before that, which other records speak of; what became of them is not judged
    unseen: tuple[str, ...] = ()  # targets that this user may not see; what was delivered there is not judged
    occurrences: Mapping[str, int] = field(default_factory=dict)  # of recurring messages, by ENDS
    lateness_ms: Lateness = field(default_factory=Lateness)
    violations: tuple[Violation, ...] = ()  # the first ones; the counts are of all

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not any(map(self.found, KINDS))

    def found(self, kind: str) -> int:
        """How many violations of `kind` (of `KINDS`) there are."""
        count: int = getattr(self, _FIELDS.get(kind, kind))
        return count

    def as_dict(self) -> dict[str, Any]:
        """For JSON: the fields by name, and `clean`."""
        return {"clean": self.clean, **asdict(self)}


_SHOWN: Final = 5
# Where the count of a kind has another name than the kind.
_FIELDS = {"false_outcome": "false_outcomes"}


def by_field(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts of kinds as fields of `AuditReport`."""
    return {_FIELDS.get(kind, kind): counts.get(kind, 0) for kind in KINDS}


def unseen_words(topics: Sequence[str]) -> str:
    """What is to be said of targets that this user may not see."""
    more = f" and {len(topics) - _SHOWN} others" if len(topics) > _SHOWN else ""
    return (
        f"this user may not see {', '.join(topics[:_SHOWN])}{more}, and what was delivered there, if there"
        " are such topics, is not known: give it Read and DescribeConfigs on each target"
    )


def listed(rows: Iterable[Row]) -> tuple[Violation, ...]:
    """Rows of a violations frame as values."""
    return tuple(Violation(row["kind"], row["source"], row["detail"]) for row in rows)
