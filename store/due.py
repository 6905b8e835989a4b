"""When what is pending falls due, and where it goes: counts for people, made within a bounded time.

Whole minutes are the store's own counts. The rows themselves are walked only where those do not help: in the
next minute, second by second, in the minute in which the position is, and for the targets, which nothing
counts. What a walk has not come to in its time is missing from its figures, and they say so: they are lower
bounds then, whatever is pending.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, Protocol, TypeVar

import msgspec

from delayline.times import DAY_MS, MINUTE_MS, SECOND_MS
from store import keys
from store.checkpoint import Frontier, Reached
from store.holds import Held, held_of
from store.keys import RowKey
from store.kv import KeyValue
from store.pending import DAY_MINUTES
from store.rows import decode_offset, target_of
from store.view import View

T = TypeVar("T")

HOUR_MINUTES: Final = 60
ANY: Final = sys.maxsize  # number of entries: time alone bounds these walks
MOST_TARGETS: Final = 10_000  # counted apart: users name as many as they like
WALK_S: Final = 0.15
"""What a walk takes at most, or twice that, or half: 0.9 s in all, while nothing else keeps the node busy."""


class DueHistogram(msgspec.Struct, frozen=True):
    """Counts by when each bucket begins (epoch ms); those of nothing are left out. `at_least`: not all was
    looked at.
    """

    width_ms: int
    counts: dict[int, int]
    at_least: bool


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """What is pending: `overdue` at `now_ms`, and what is not, in three scales that all begin there. `days`,
    in UTC, has all of it, but perhaps for what is in flight. `targets`: of those that fall due first; what is
    no message has none. `held`: what has come up, and waits since its target was paused; it is in none of the
    others.
    """

    now_ms: int
    overdue: int
    overdue_at_least: bool
    seconds: DueHistogram
    minutes: DueHistogram
    days: DueHistogram
    targets: dict[str, int]
    targets_at_least: bool
    held: dict[str, Held] = {}


class Sliced(Protocol):
    """Entries one after the other, with rests; None, and no more of them, once that has taken too long."""

    def __call__(self, entries: Iterable[T], *, most: tuple[int, float]) -> Iterator[T | None]: ...


class DueWalk:
    """The scans of one look. Made under the view's lock."""

    def __init__(
        self,
        now_ms: int,
        view: View,
        kv: KeyValue,
        aligned: Frontier,
        reached: Reached,
    ) -> None:
        self.now_ms, self.aligned, self.reached = now_ms, aligned, reached
        self.second_ms = now_ms - now_ms % SECOND_MS
        behind = keys.behind(aligned.position)
        now = max(behind, keys.row(now_ms, 0, 0))
        self.minute = max(now_ms // MINUTE_MS, _minute(behind)) + 1  # the first of which nothing is done
        end_ms = max(now_ms + MINUTE_MS, self.minute * MINUTE_MS)
        self.next_minute = kv.scan(now, keys.row(end_ms, 0, 0))
        self.tomorrow = (self.minute // DAY_MINUTES + 1) * DAY_MINUTES
        self.days = view.behind_day_of(self.minute)
        until = max(self.tomorrow, now_ms // MINUTE_MS + HOUR_MINUTES)
        self.minutes = kv.scan(keys.count(self.minute), keys.count(until))
        this_minute = now_ms // MINUTE_MS
        self.in_this_minute = view.behind_tip_in(this_minute) if self.minute == this_minute + 1 else None
        self.begun_in_this_minute = _minute(behind) == this_minute
        # What is overdue: the rest of the position's minute, whole ones, and the beginning of the present.
        first, last = _minute(behind) + 1, now_ms // MINUTE_MS
        middle = min(now, keys.row(first * MINUTE_MS, 0, 0))
        self.overdue = (
            kv.scan(behind, max(behind, middle)),
            kv.scan(max(middle, keys.row(last * MINUTE_MS, 0, 0)), now),
        )
        self.overdue_minutes = kv.scan(keys.count(first), keys.count(max(first, last)))
        self.late = kv.scan(keys.LATE, keys.end_of(keys.LATE))
        self.rows = kv.scan(behind, keys.end_of(keys.ROW))

    def counted(self, sliced: Sliced) -> Due:
        """Walks them."""
        overdue, past_of_minute, overdue_cut = self._overdue(sliced)
        seconds, rest, seconds_cut = self._seconds(sliced)
        cut = seconds_cut
        if seconds_cut and self.in_this_minute is not None and not overdue_cut:
            rest, cut = max(rest, self.in_this_minute - past_of_minute), False
        minutes, days, minutes_cut = self._minutes(sliced, rest)
        targets, targets_cut = self._targets(sliced)
        return Due(
            now_ms=self.now_ms,
            overdue=overdue,
            overdue_at_least=overdue_cut,
            seconds=DueHistogram(SECOND_MS, seconds, seconds_cut),
            minutes=DueHistogram(MINUTE_MS, minutes, cut or minutes_cut),
            days=DueHistogram(DAY_MS, days, cut or minutes_cut),
            targets=targets,
            targets_at_least=targets_cut,
            held=held_of(self.aligned.holds),
        )

    def _seconds(self, sliced: Sliced) -> tuple[dict[int, int], int, bool]:
        """The next minute by seconds, and how much of it falls into minutes that are not counted whole."""
        counts: Counter[int] = Counter()
        rest = 0
        for entry in sliced(self.next_minute, most=(ANY, 2 * WALK_S)):
            if entry is None:
                return dict(counts), rest, True
            key = keys.timed(entry[0])
            if self.aligned.overran(key):
                continue
            due_ms = key[0]
            if due_ms < self.second_ms + MINUTE_MS:
                counts[due_ms - due_ms % SECOND_MS] += 1
            rest += due_ms < self.minute * MINUTE_MS
        return dict(counts), rest, False

    def _minutes(self, sliced: Sliced, in_this_minute: int) -> tuple[dict[int, int], dict[int, int], bool]:
        """The next hour by minutes, all by days; the present ones begin now, or at the position."""
        begin = self.now_ms // MINUTE_MS
        minutes = {begin: in_this_minute} if in_this_minute else {}
        today, cut = in_this_minute, False
        for entry in sliced(self.minutes, most=(ANY, WALK_S)):
            if entry is None:
                cut = True
                break
            minute, count = keys.minute(entry[0]), decode_offset(entry[1])
            today += count if minute < self.tomorrow else 0
            if count and minute < begin + HOUR_MINUTES:
                minutes[minute] = count
        days = {self.tomorrow - DAY_MINUTES: today} if today else {}
        return _in_ms(minutes), _in_ms(days | self.days), cut

    def _overdue(self, sliced: Sliced) -> tuple[int, int, bool]:
        """How many there are, and how many of them of the present minute behind the position."""
        counts, cut = [0, 0], False
        for number, scan in enumerate(self.overdue):
            for entry in sliced(scan, most=(ANY, WALK_S / 2)):
                cut |= entry is None
                counts[number] += entry is not None and not self.aligned.overran(keys.timed(entry[0]))
        count = sum(counts)
        for entry in sliced(self.overdue_minutes, most=(ANY, WALK_S / 2)):
            cut |= entry is None
            count += 0 if entry is None else decode_offset(entry[1])
        for entry in sliced(self.late, most=(ANY, WALK_S / 2)):
            cut |= entry is None
            count += entry is not None and self._is_late(*entry)
        return count, counts[0 if self.begun_in_this_minute else 1], cut

    def _targets(self, sliced: Sliced) -> tuple[dict[str, int], bool]:
        counts, cut = TargetCounts(), False
        for entry in sliced(self.rows, most=(ANY, WALK_S)):
            if entry is None:
                cut = True
            elif not self.aligned.overran(keys.timed(entry[0])):
                counts.add(target_of(entry[1]))
        return counts.targets, cut or counts.cut

    def _is_late(self, raw_key: bytes, raw_due: bytes) -> bool:
        """One above the position is among the others."""
        key: RowKey = (keys.unpack_due(raw_due), *keys.record_id(raw_key))
        position = self.aligned.position
        return position is not None and key <= position and not self.aligned.passed(key)


def _in_ms(counts: dict[int, int]) -> dict[int, int]:
    return {minute * MINUTE_MS: count for minute, count in counts.items()}


class TargetCounts:
    """How many messages go to each target. `cut`: there are more targets than are counted."""

    def __init__(self) -> None:
        self.targets: dict[str, int] = {}
        self.cut = False

    def add(self, target: str | None) -> None:
        """Counts a message; what is none has no target."""
        if target is None:
            return
        if target in self.targets or len(self.targets) < MOST_TARGETS:
            self.targets[target] = self.targets.get(target, 0) + 1
        else:
            self.cut = True


def _minute(raw_row: bytes) -> int:
    """The minute of a row's key; -1 for what is below all of them."""
    if len(raw_row) < keys.TIMED_BYTES:
        return -1
    return keys.timed(raw_row[: keys.TIMED_BYTES])[0] // MINUTE_MS
