"""The settings of a cluster: what a request means depends on them, so no node can have its own.

They are written once, to the settings znode, by `delayline topics create`, and read by every node.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from delayline.names import MAX_PARTITION, ClusterNames
from delayline.times import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

FORMAT_VERSION: Final = 2
FORMAT_VERSION_UNCARRIED: Final = 1
"""Of a cluster that carries nothing: as versions know it that cannot carry."""

KAFKA_MAX_MESSAGE_BYTES = 1_048_588  # the default of `max.message.bytes`

# RocketMQ's default table (messageDelayLevel), so that its users keep their numbers.
ROCKETMQ_LEVELS_MS = (
    *(seconds * SECOND_MS for seconds in (1, 5, 10, 30)),
    *(minutes * MINUTE_MS for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)),
    *(hours * HOUR_MS for hours in (1, 2)),
)

# A timestamp plus the longest delay must stay a signed 64-bit number of milliseconds.
_MAX_DELAY_LIMIT_MS = 1_000 * 366 * DAY_MS


class NewerSettings(ValueError):
    """The settings have a format that only a newer version knows: not damaged, and not to be replaced."""


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The settings of one cluster; ValueError says which one is wrong and what it may be.

    `partitions` of the buffer topic; `lanes` they are split into; `levels_ms`, the delay of level 1, 2, ...;
    `max_delay_ms`, counted from a request's own timestamp; `targets`, glob patterns of the topics that may be
    delivered to (empty: every topic); `dedup_window_ms`, how long after its due time an id is still known to
    `delay-if-exists: keep`; `retention_ms`, for how long the buffer keeps a record: what waits for longer is
    carried (docs/design.md, rule 12). None: for the longest delay, and nothing is carried.
    """

    cluster: str = "delay"
    partitions: int = 4
    lanes: int = 1
    levels_ms: tuple[int, ...] = ROCKETMQ_LEVELS_MS
    max_delay_ms: int = 366 * DAY_MS
    targets: tuple[str, ...] = ()
    dedup_window_ms: int = HOUR_MS
    retention_ms: int | None = None

    def __post_init__(self) -> None:
        _require(
            1 <= self.partitions <= MAX_PARTITION,
            f"partitions is {self.partitions}: it must be 1 to {MAX_PARTITION}",
        )
        ClusterNames(self.cluster)  # says what is wrong with a name that could not name a topic
        _require(
            1 <= self.lanes <= self.partitions,
            f"lanes is {self.lanes}: it must be 1 to the number of partitions, {self.partitions}",
        )
        _require(
            0 < self.max_delay_ms <= _MAX_DELAY_LIMIT_MS,
            f"max_delay_ms is {self.max_delay_ms}: it must be 1 to {_MAX_DELAY_LIMIT_MS}",
        )
        _require(
            0 <= self.dedup_window_ms <= _MAX_DELAY_LIMIT_MS,
            f"dedup_window_ms is {self.dedup_window_ms}: it must be 0 to {_MAX_DELAY_LIMIT_MS}",
        )
        _require(
            self.retention_ms is None or 0 < self.retention_ms <= _MAX_DELAY_LIMIT_MS,
            f"retention_ms is {self.retention_ms}: it must be 1 to {_MAX_DELAY_LIMIT_MS}",
        )
        _require(len(self.levels_ms) > 0, "levels_ms is empty: give at least one level")
        _require(
            all(0 <= level <= self.max_delay_ms for level in self.levels_ms),
            f"levels_ms must each be 0 to max_delay_ms, {self.max_delay_ms}",
        )
        _require(all(self.targets), "targets has an empty pattern: take it out, or write * for every topic")

    @property
    def format_version(self) -> int:
        """The one in which they are written: a version that cannot carry refuses those of a cluster that
        does, as newer ones.
        """
        return FORMAT_VERSION_UNCARRIED if self.retention_ms is None else FORMAT_VERSION

    def lane_of(self, partition: int) -> int:
        """The lane that delivers a partition of the buffer, also one that was added later."""
        return partition % self.lanes

    def partitions_of(self, lane: int, there: int = 0) -> list[int]:
        """The partitions of the buffer that a lane delivers. `there`: how many there are now, where some were
        added.
        """
        return list(range(lane, max(there, self.partitions), self.lanes))

    def to_json(self) -> str:
        """The content of the settings znode."""
        written = asdict(self) | {"format_version": self.format_version}
        if self.retention_ms is None:
            del written["retention_ms"]
        return json.dumps(written, sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> ClusterSettings:
        """Read `to_json`'s text; ValueError (one line) if it is not the settings of a cluster, and
        `NewerSettings` if they may be those of a newer version.
        """
        try:
            raw = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"cluster settings are no JSON: {error}") from None
        _require(isinstance(raw, dict), "cluster settings must be a JSON object")
        _require_known(raw, _version(raw))
        return cls(**{name: _typed(name, raw[name]) for name in raw if name in _KINDS})


_KINDS: dict[str, str] = {field.name: str(field.type) for field in fields(ClusterSettings)}


def _require(holds: object, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


def _version(raw: dict[str, Any]) -> int:
    """Before anything else is looked at: a newer format may have other keys."""
    _require("format_version" in raw, "cluster settings have no format_version")
    version: int = _of(int, "format_version", raw["format_version"])
    if version > FORMAT_VERSION:
        raise NewerSettings(
            f"format_version is {version}, this version reads up to {FORMAT_VERSION}: upgrade it"
        )
    least = FORMAT_VERSION_UNCARRIED
    _require(version >= least, f"format_version is {version}: it must be {least} to {FORMAT_VERSION}")
    return version


def _require_known(raw: dict[str, Any], version: int) -> None:
    known = {*_KINDS, "format_version"}
    if version == FORMAT_VERSION_UNCARRIED:
        known.remove("retention_ms")
    unknown, missing = sorted(set(raw) - known), sorted(known - set(raw))
    _require(
        not unknown, f"cluster settings have an unknown key {', '.join(unknown)}: was a newer version used?"
    )
    _require(not missing, f"cluster settings lack {', '.join(missing)}")


def _typed(name: str, value: Any) -> Any:
    kind = _KINDS[name]
    if kind == "str":
        return _of(str, name, value)
    if kind in {"int", "int | None"}:  # None is not written
        return _of(int, name, value)
    element = int if "int" in kind else str
    _require(isinstance(value, list), f"cluster setting {name} must be a list")
    return tuple(_of(element, name, item) for item in value)


def _of(kind: type, name: str, value: Any) -> Any:
    # type() and not isinstance(): to Python, true is an int.
    _require(type(value) is kind, f"cluster setting {name} has {value!r}: it must be of type {kind.__name__}")
    return value
