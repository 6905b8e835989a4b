"""A cluster's settings and what they were before: by which of them a record of the buffer is read.

What a request means may change, and must not change for what is in the log already. So a change makes a new
*version*, which counts in each partition from a *mark* on: a record there that the service has signed
(docs/design.md, rule 13).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Protocol

from delayline.names import MAX_OFFSET
from delayline.settings import (
    FIRST_MEANING,
    ClusterSettings,
    format_version_of,
    json_object,
    newer,
)
from delayline.times import DAY_MS

FORMAT_VERSION: Final = 3
"""Of settings that were changed. Those that never were are written as before, so that older versions read
them.
"""
MOST_BYTES: Final = 512 << 10  # a znode takes a megabyte
DIGEST_BYTES: Final = 16
NO_END: Final = MAX_OFFSET + 1
CLOCKS_APART_MS: Final = DAY_MS


class Begin(NamedTuple):
    """Where a version begins in a partition. `newest_ms`: no record before has a later timestamp."""

    offset: int
    newest_ms: int


@dataclass(frozen=True, slots=True)
class SettingsVersion:
    """Settings, and from where on they count in which partitions; who has changed them, why and when."""

    number: int
    settings: ClusterSettings
    begins: Mapping[int, Begin] = field(default_factory=dict)
    by: str = ""
    reason: str = ""
    at_ms: int = 0


class Span(NamedTuple):
    """The version that holds for a record, and the offset before which it does."""

    version: SettingsVersion
    end: int


class SettingsSource(Protocol):
    """Who knows the versions; they may become more."""

    @property
    def versions(self) -> SettingsVersions: ...


@dataclass(frozen=True, slots=True)
class SettingsVersions:
    """All that there were, in order. The first counts from the beginning of each partition.

    A version counts only in the partitions that it has a mark in. One that came after the change has none:
    it is read by the first version, until the next change marks it. (Were the newest to count there from its
    beginning, a node that had read of it before it knew of the change would have read it otherwise.)
    """

    all: tuple[SettingsVersion, ...]

    @classmethod
    def of(cls, settings: ClusterSettings) -> SettingsVersions:
        """Those of settings that were never changed."""
        return cls((SettingsVersion(1, settings),))

    @property
    def versions(self) -> SettingsVersions:
        """Itself: a source that never changes."""
        return self

    @property
    def latest(self) -> SettingsVersion:
        """The last one."""
        return self.all[-1]

    @property
    def settings(self) -> ClusterSettings:
        """As they are now."""
        return self.latest.settings

    @property
    def longest_dedup_window_ms(self) -> int:
        """Of all."""
        return self.settings.longest_dedup_window_ms

    def span(self, partition: int, offset: int) -> Span:
        """By which version a record is read, and so are those behind it: the last of those that have begun.

        Where the log has lost its end, an earlier one may begin behind a later one: it counts no more.
        """
        found, end = self.all[0], NO_END
        for version in self.all[1:]:
            begin = version.begins.get(partition)
            if begin is None:
                continue
            if begin.offset <= offset:
                found, end = version, NO_END
            else:
                end = min(end, begin.offset)
        return Span(found, end)

    def settings_at(self, partition: int, offset: int) -> ClusterSettings:
        """What a record is read by."""
        return self.span(partition, offset).version.settings

    def is_mark(self, number: int, partition: int, offset: int) -> bool:
        """Whether the version begins with that record."""
        if not 1 <= number <= len(self.all):
            return False
        begin = self.all[number - 1].begins.get(partition)
        return begin is not None and begin.offset == offset

    def known_from_ms(self, partition: int, offset: int, newest_ms: int) -> int:
        """The due time above which an id is known to a record that asks to keep, where `newest_ms` is the
        partition's newest timestamp.

        It is the dedup window before that, but for a window that has become longer: what the shorter one had
        let go is not known again, or it would matter whether a node has forgotten it already. So the shorter
        one holds on until the timestamps have reached what none before the mark had, and what it has let go
        by then stays unknown.
        """
        known_from_ms = -1
        for version in reversed(self.all):
            begin = version.begins.get(partition)
            if version is not self.all[0] and (begin is None or begin.offset > offset):
                continue
            known_from_ms = max(known_from_ms, newest_ms - version.settings.dedup_window_ms)
            if begin is not None:
                newest_ms, offset = min(newest_ms, begin.newest_ms), begin.offset
        return known_from_ms

    def unmarked(self, partitions: Collection[int]) -> list[int]:
        """Those in which the last version does not count."""
        if len(self.all) == 1:
            return []
        return sorted(partition for partition in partitions if partition not in self.latest.begins)

    def changed(
        self, settings: ClusterSettings, begins: Mapping[int, Begin], by: str, reason: str, at_ms: int
    ) -> SettingsVersions:
        """And one more. ValueError if it changes what cannot be changed, or they become too many."""
        require_changeable(self.settings, settings)
        settings = settings.after(self.settings)
        version = SettingsVersion(self.latest.number + 1, settings, begins, by, reason, at_ms)
        changed = SettingsVersions((*self.all, version))
        if changed.size_bytes > MOST_BYTES:
            raise ValueError(
                f"the settings with all that they were have {changed.size_bytes} bytes, {MOST_BYTES} at most:"
                " give shorter lists, or move what waits to another cluster (`delayline pending`)"
            )
        return changed

    def united(self, other: SettingsVersions) -> SettingsVersions:
        """The later of two states of the same settings. ValueError if neither is."""
        for earlier, later in ((other, self), (self, other)):
            if earlier.leads_to(later):
                return later
        raise ValueError(f"they differ: {differences(self.settings, other.settings) or 'in their versions'}")

    def anew(self) -> SettingsVersions:
        """For another buffer than that of their marks: the settings as they are, as the first ones."""
        return SettingsVersions.of(replace(self.settings))

    def until(self, number: int) -> SettingsVersions:
        """What they were when the version of that number was the last one."""
        return SettingsVersions(self.all[:number])

    @property
    def digest(self) -> str:
        """Tells them from all others where they are too long to be shown."""
        return blake2b(self.to_json().encode(), digest_size=DIGEST_BYTES).hexdigest()

    @property
    def size_bytes(self) -> int:
        """As they are written."""
        return len(self.to_json())

    def leads_to(self, later: SettingsVersions) -> bool:
        """Whether `later` is what became of these."""
        return self.all == later.all[: len(self.all)]

    def to_json(self) -> str:
        """The content of the settings znode, and of their record in Kafka."""
        if len(self.all) == 1 and self.latest.number == 1:
            return self.settings.to_json()
        data = {"format_version": FORMAT_VERSION, "versions": _versions_data(self.all)}
        return json.dumps(data, sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> SettingsVersions:
        """Read `to_json`'s text; ValueError (one line) if it is none, `NewerSettings` if it is a newer
        version's.
        """
        raw = json_object(text)
        version = format_version_of(raw)
        if version > FORMAT_VERSION:
            raise newer(version, FORMAT_VERSION)
        if version < FORMAT_VERSION:
            return cls.of(ClusterSettings.from_data(raw))
        try:
            versions = _versions(raw["versions"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"the cluster settings' versions cannot be read: {error!r}") from None
        numbers = [one.number for one in versions]
        if not numbers or numbers != list(range(1, len(numbers) + 1)):
            raise ValueError(f"the cluster settings' versions are not in order: {numbers}")
        return cls(versions)


def later_of(one: str, other: str) -> str:
    """Of two states of the same settings, as they are written, the later one. ValueError if neither is."""
    return SettingsVersions.from_json(one).united(SettingsVersions.from_json(other)).to_json()


def require_changeable(there: ClusterSettings, wanted: ClusterSettings) -> None:
    """ValueError if a change of settings would change what cannot be: where a request belongs, and whether
    what waits is carried.
    """
    for name in ("cluster", "partitions", "lanes"):
        if getattr(there, name) != getattr(wanted, name):
            raise ValueError(f"{name} cannot be changed: export what is pending, and import it elsewhere")
    if (there.retention_ms is None) != (wanted.retention_ms is None):
        raise ValueError(
            "whether what waits is written again cannot be changed: export what is pending, and import it"
            " elsewhere"
        )
    if wanted.meaning < there.meaning:
        raise ValueError(f"meaning is {there.meaning}: it cannot become less, {wanted.meaning}")
    if wanted.meaning == FIRST_MEANING:
        raise ValueError(f"settings of meaning {wanted.meaning} cannot be changed: change the meaning, too")


def differences(there: ClusterSettings, here: ClusterSettings) -> str:
    """Each setting in which the two differ; empty if they are the same."""
    changed = differing(there, here)
    return "; ".join(
        f"{name} is {getattr(there, name)!r} there, {getattr(here, name)!r} here" for name in changed
    )


def differing(there: ClusterSettings, here: ClusterSettings) -> list[str]:
    """The names of those that differ."""
    names = (*there.as_data(), *here.as_data())
    found = dict.fromkeys(name for name in names if name != "format_version")
    return [name for name in found if getattr(there, name) != getattr(here, name)]


def _versions_data(versions: Iterable[SettingsVersion]) -> list[dict[str, Any]]:
    """Of each what differs from the one before: a list may be long, and hardly ever changes."""
    found, before = [], dict[str, Any]()
    for version in versions:
        settings = version.settings.as_data()
        differs = {
            name: value for name, value in settings.items() if name not in before or before[name] != value
        }
        found.append(
            {
                "number": version.number,
                "settings": differs,
                "begins": {str(partition): list(begin) for partition, begin in version.begins.items()},
                "by": version.by,
                "reason": version.reason,
                "at_ms": version.at_ms,
            }
        )
        before = settings
    return found


def _versions(raw: list[dict[str, Any]]) -> tuple[SettingsVersion, ...]:
    found: list[SettingsVersion] = []
    data = dict[str, Any]()
    for one in raw:
        data |= one["settings"]
        settings = ClusterSettings.from_data(data)
        found.append(_version(one, settings.after(found[-1].settings) if found else settings))
    return tuple(found)


def _version(raw: dict[str, Any], settings: ClusterSettings) -> SettingsVersion:
    begins = {int(partition): Begin(*map(_whole, begin)) for partition, begin in raw["begins"].items()}
    return SettingsVersion(
        _whole(raw["number"]), settings, begins, str(raw["by"]), str(raw["reason"]), _whole(raw["at_ms"])
    )


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:  # type() and not isinstance(): to Python, true is an int
        raise ValueError(f"the cluster settings' versions have {value!r}: it must be a whole number")
    return value
