"""The settings of a cluster: what a request means depends on them, so no node can have its own.

`delayline topics create` writes the first ones. What they become later is delayline/settings_versions.py's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from delayline.names import MAX_PARTITION, ClusterNames
from delayline.times import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

FORMAT_VERSION: Final = 2
FIRST_FORMAT_VERSION: Final = 1
"""Of those whose meaning is the first: 0.1.0 reads them, and no others."""

FIRST_MEANING: Final = 1
MEANING: Final = 2
"""The latest reading of the wire format that this code knows; `ClusterSettings.meaning` says which one holds.

1: as 0.1.0 reads it. 2: what waits for long is carried, settings can be changed, and a copy of what the
service has written back is nothing, where it was a reject.
"""

KAFKA_MAX_MESSAGE_BYTES = 1_048_588  # the default of `max.message.bytes`

BUFFER_MAX_MESSAGE_BYTES: Final = 1_000_000
"""The largest batch that the buffer takes in the first meaning, as it is made. Targets made with Kafka's
default take every request, with what is beside it.
"""
OVERHEAD_BYTES: Final = 4096
"""The headers of a delivered record that its request did not have: source, scheduled-for, attempt,
occurrence, 410 bytes with the longest names and numbers; of a dead letter source, error and its detail. And
what the service writes beside a request when it writes it again (`delayline.sizes`).
"""
MOST_REQUEST_BYTES: Final = (16 << 20) - (64 << 10)
"""No larger record is read."""

# RocketMQ's default table (messageDelayLevel), so that its users keep their numbers.
ROCKETMQ_LEVELS_MS = (
    *(seconds * SECOND_MS for seconds in (1, 5, 10, 30)),
    *(minutes * MINUTE_MS for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)),
    *(hours * HOUR_MS for hours in (1, 2)),
)

# A timestamp plus the longest delay must stay a signed 64-bit number of milliseconds.
_MAX_DELAY_LIMIT_MS = 1_000 * 366 * DAY_MS


class NewerSettings(ValueError):
    """Only a newer version knows what they say: not damaged, and not to be replaced."""


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The settings of one cluster; ValueError says which one is wrong and what it may be.

    `partitions` of the buffer topic; `lanes` they are split into; `levels_ms`, the delay of level 1, 2, ...;
    `max_delay_ms`, counted from a request's own timestamp; `targets`, glob patterns of the topics that may be
    delivered to (empty: every topic); `dedup_window_ms`, how long after its due time an id is still known to
    `delay-if-exists: keep`; `retention_ms`, for how long the buffer keeps a record: what waits for longer is
    carried (docs/design.md, rule 12). None: for the longest delay, and nothing is carried. `meaning`: how the
    wire format is read. `max_request_bytes`: of a schedule (`delayline.sizes`); in the first meaning there is
    no limit.
    """

    cluster: str = "delay"
    partitions: int = 4
    lanes: int = 1
    levels_ms: tuple[int, ...] = ROCKETMQ_LEVELS_MS
    max_delay_ms: int = 366 * DAY_MS
    targets: tuple[str, ...] = ()
    dedup_window_ms: int = HOUR_MS
    retention_ms: int | None = None
    meaning: int = MEANING
    max_request_bytes: int = 1_000_000
    longest_delay_ms: int = field(default=0, init=False, compare=False, repr=False)
    longest_dedup_window_ms: int = field(default=0, init=False, compare=False, repr=False)
    """Of this version and those before it; they are not written."""

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
        _require(
            FIRST_MEANING <= self.meaning <= MEANING,
            f"meaning is {self.meaning}: it must be {FIRST_MEANING} to {MEANING}",
        )
        _require(
            self.retention_ms is None or self.meaning > FIRST_MEANING,
            f"meaning is {FIRST_MEANING}, and retention_ms is given: what is carried has no meaning there",
        )
        _require(
            0 < self.max_request_bytes <= MOST_REQUEST_BYTES,
            f"max_request_bytes is {self.max_request_bytes}: it must be 1 to {MOST_REQUEST_BYTES}",
        )
        _require(len(self.levels_ms) > 0, "levels_ms is empty: give at least one level")
        _require(
            all(0 <= level <= self.max_delay_ms for level in self.levels_ms),
            f"levels_ms must each be 0 to max_delay_ms, {self.max_delay_ms}",
        )
        _require(all(self.targets), "targets has an empty pattern: take it out, or write * for every topic")
        _set_longest(self, self.max_delay_ms, self.dedup_window_ms)

    @property
    def format_version(self) -> int:
        """The one in which they are written: who does not know their meaning does not know it."""
        return FIRST_FORMAT_VERSION if self.meaning == FIRST_MEANING else FORMAT_VERSION

    @property
    def carries(self) -> bool:
        """Whether what waits for long is written again (docs/design.md, rule 12)."""
        return self.retention_ms is not None

    def after(self, before: ClusterSettings) -> ClusterSettings:
        """The same, where those were before."""
        same = replace(self)
        _set_longest(
            same,
            max(before.longest_delay_ms, self.max_delay_ms),
            max(before.longest_dedup_window_ms, self.dedup_window_ms),
        )
        return same

    def lane_of(self, partition: int) -> int:
        """The lane that delivers a partition of the buffer, also one that was added later."""
        return partition % self.lanes

    def partitions_of(self, lane: int, there: int = 0) -> list[int]:
        """The partitions of the buffer that a lane delivers. `there`: how many there are now, where some were
        added.
        """
        return list(range(lane, max(there, self.partitions), self.lanes))

    def as_data(self) -> dict[str, Any]:
        """What is written of them."""
        unwritten = _NOT_IN_FIRST if self.meaning == FIRST_MEANING else frozenset()
        written = {name: getattr(self, name) for name in SETTINGS if name not in unwritten}
        return written | {"format_version": self.format_version}

    def to_json(self) -> str:
        """Settings that were never changed."""
        return json.dumps(self.as_data(), sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> ClusterSettings:
        """Read `to_json`'s text; ValueError (one line) if it is not the settings of a cluster, and
        `NewerSettings` if they may be those of a newer version.
        """
        return cls.from_data(json_object(text))

    @classmethod
    def from_data(cls, raw: dict[str, Any]) -> ClusterSettings:
        """Read `as_data`'s. Raises as `from_json`."""
        version = format_version_of(raw)
        if version > FORMAT_VERSION:
            raise newer(version, FORMAT_VERSION)
        _require_known(raw, version)
        meaning = _typed("meaning", raw.get("meaning", FIRST_MEANING))
        if meaning > MEANING:
            raise NewerSettings(f"meaning is {meaning}, this version knows up to {MEANING}: upgrade it")
        fields_ = {name: _typed(name, raw[name]) for name in raw if name in _KINDS}
        return cls(**fields_ | {"meaning": meaning})


_KINDS: dict[str, str] = {field.name: str(field.type) for field in fields(ClusterSettings)}
_NOT_IN_FIRST: Final = frozenset(("retention_ms", "meaning", "max_request_bytes"))
SETTINGS: Final = tuple(field.name for field in fields(ClusterSettings) if field.init)
"""The names of what is set."""


def _set_longest(settings: ClusterSettings, delay_ms: int, dedup_window_ms: int) -> None:
    object.__setattr__(settings, "longest_delay_ms", delay_ms)
    object.__setattr__(settings, "longest_dedup_window_ms", dedup_window_ms)


def _require(holds: object, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


def json_object(text: str | bytes) -> dict[str, Any]:
    """What the text has; ValueError if it is none."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"cluster settings are no JSON: {error}") from None
    _require(isinstance(raw, dict), "cluster settings must be a JSON object")
    found: dict[str, Any] = raw
    return found


def format_version_of(raw: dict[str, Any]) -> int:
    """Before anything else is looked at: a newer format may have other keys. ValueError."""
    _require("format_version" in raw, "cluster settings have no format_version")
    version: int = _of(int, "format_version", raw["format_version"])
    least = FIRST_FORMAT_VERSION
    _require(version >= least, f"format_version is {version}: it must be {least} or more")
    return version


def newer(version: int, known: int) -> NewerSettings:
    """What is raised of a format that is not known."""
    return NewerSettings(f"format_version is {version}, this version reads up to {known}: upgrade it")


def _require_known(raw: dict[str, Any], version: int) -> None:
    known = {*SETTINGS, "format_version"}
    if version == FIRST_FORMAT_VERSION:
        known -= _NOT_IN_FIRST
    unknown, missing = sorted(set(raw) - known), sorted(known - set(raw))
    _require(
        not unknown, f"cluster settings have an unknown key {', '.join(unknown)}: was a newer version used?"
    )
    _require(not missing, f"cluster settings lack {', '.join(missing)}")


def _typed(name: str, value: Any) -> Any:
    kind = _KINDS[name]
    if kind == "str":
        return _of(str, name, value)
    if kind == "int" or (kind == "int | None" and value is not None):
        return _of(int, name, value)
    if kind == "int | None":
        return None
    element = int if "int" in kind else str
    _require(isinstance(value, list), f"cluster setting {name} must be a list")
    return tuple(_of(element, name, item) for item in value)


def _of(kind: type, name: str, value: Any) -> Any:
    # type() and not isinstance(): to Python, true is an int.
    _require(type(value) is kind, f"cluster setting {name} has {value!r}: it must be of type {kind.__name__}")
    return value
