"""How many rows wait, without walking them: they are counted by the minute in which they fall due; in the
tip's own minute, where some are behind the tip and some are done, by what comes and goes. Days are sums of
their minutes, kept in memory: a year has half a million minutes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from delayline.times import MINUTE_MS
from store import keys
from store.keys import RowKey
from store.kv import Batch, KeyValue
from store.rows import decode_offset, encode

MOST_CACHED = 4096
DAY_MINUTES = 1440


class Changed(NamedTuple):
    """A minute's count, and by how much it has changed."""

    rows: int
    by: int


class Count(NamedTuple):
    """A count under way: what is known, and what must be walked. `later`: the rest of the tip's day;
    `behind`: the rows of the days behind it.
    """

    jumps: int
    change: int
    known: int
    behind: int
    of_this_minute: Iterator[tuple[bytes, bytes]]
    later: Iterator[tuple[bytes, bytes]]
    late: Iterator[tuple[bytes, bytes]]


class Pending:
    """The counts of one view, whose lock its callers hold but where it says otherwise."""

    def __init__(self, kv: KeyValue, position: RowKey | None) -> None:
        self._kv = kv
        self._cached: dict[int, int] = {}
        self._minute = _minute(position)
        self._left: int | None = None  # rows of the tip's minute behind the tip; None: not counted
        self._change = 0  # what such rows have become more by, since the tip last jumped
        self._jumps = 0
        self._days: dict[int, int] = {}
        for raw_minute, raw in kv.scan(keys.COUNT, keys.end_of(keys.COUNT)):
            self._add_to_day(keys.minute(raw_minute), decode_offset(raw))

    def stored(self, minute: int) -> int:
        """The rows that fall due in a minute, done or not."""
        known = self._cached.get(minute)
        if known is not None:
            return known
        raw = self._kv.get(keys.count(minute))
        return 0 if raw is None else decode_offset(raw)

    def read(self, minutes: Collection[int]) -> dict[int, int]:
        """What `stored` would have to read for these minutes; it says the same, without the lock, until
        something is written. For the thread that calls `taken`.
        """
        asked = [minute for minute in minutes if minute not in self._cached]
        found = self._kv.get_many([keys.count(minute) for minute in asked]) if asked else []
        return {
            minute: 0 if raw is None else decode_offset(raw) for minute, raw in zip(asked, found, strict=True)
        }

    def write(self, batch: Batch, changes: Mapping[int, int], known: Mapping[int, int]) -> dict[int, Changed]:
        """Puts the counts as changed into the batch, and returns them for `taken`. `known`: by `read`.

        Of a day that was pruned nothing is counted, and what is held there may still be removed.
        """
        counts = {}
        for minute, change in changes.items():
            before = known.get(minute, -1)
            before = self.stored(minute) if before < 0 else before
            counts[minute] = Changed(max(0, before + change), max(-before, change))
        for minute, changed in counts.items():
            if changed.rows:
                batch.put(keys.count(minute), encode(changed.rows))
            else:
                batch.delete(keys.count(minute))
        return counts

    def taken(
        self, counts: Mapping[int, Changed], changes: Mapping[int, int], below: Mapping[int, int]
    ) -> None:
        """The batch is written. `below`: the part of the changes that is at or below the tip."""
        if len(self._cached) > MOST_CACHED:
            self._cached = {}
        for minute, changed in counts.items():
            self._cached[minute] = changed.rows
            self._add_to_day(minute, changed.by)
        self._move(changes.get(self._minute, 0) - below.get(self._minute, 0))

    def advance(self, due: Sequence[tuple[RowKey, bytes]]) -> None:
        """The tip has passed these rows, which were the next ones, in key order."""
        if not due:
            return
        minute = _minute(due[-1][0])
        if minute == self._minute:
            self._move(-len(due))
            return
        first = bisect_left(due, minute * MINUTE_MS, key=lambda row: row[0][0])
        self.jump(due[-1][0])
        self._left = self.stored(minute) - (len(due) - first)

    def jump(self, position: RowKey | None) -> None:
        """The tip has been set."""
        self._minute, self._left, self._change = _minute(position), None, 0
        self._jumps += 1

    def forget(self, minute: int) -> None:
        """The counts of the minutes before are gone; with it a day begins."""
        self._cached = {m: count for m, count in self._cached.items() if m >= minute}
        self._days = {day: count for day, count in self._days.items() if day >= minute // DAY_MINUTES}

    def behind_tip_in(self, minute: int) -> int | None:
        """The rows of a minute that are behind the tip, as far as that is known without walking them."""
        if minute == self._minute:
            return self._left
        return self.stored(minute) if minute > self._minute else None

    def behind_day_of(self, minute: int) -> dict[int, int]:
        """The rows that fall due in the days behind a minute's, by the minute in which each begins."""
        return {
            day * DAY_MINUTES: count
            for day, count in self._days.items()
            if day > minute // DAY_MINUTES and count > 0
        }

    def count(self, position: RowKey | None) -> Count:
        """What is to be counted behind the tip, as it is now. The scans are walked without the lock."""
        begin = keys.behind(position)
        of_this_minute = self._kv.scan(begin, keys.row((self._minute + 1) * MINUTE_MS, 0, 0))
        tomorrow = (self._minute // DAY_MINUTES + 1) * DAY_MINUTES
        later = self._kv.scan(keys.count(self._minute + 1), keys.count(tomorrow))
        behind = sum(self.behind_day_of(self._minute).values())
        late = self._kv.scan(keys.LATE, keys.end_of(keys.LATE))
        known = iter(()) if self._left is not None else of_this_minute
        return Count(self._jumps, self._change, self._left or 0, behind, known, later, late)

    def counted(self, count: Count, walked: int) -> None:
        """The rows of the tip's minute were `walked`: from now on they need not be."""
        if self._left is None and count.jumps == self._jumps:
            self._left = walked + self._change - count.change

    def _add_to_day(self, minute: int, change: int) -> None:
        day = minute // DAY_MINUTES
        self._days[day] = self._days.get(day, 0) + change

    def _move(self, change: int) -> None:
        self._change += change
        if self._left is not None:
            self._left += change


def whole_days(minute: int) -> int:
    """Where the day of a minute begins. Counts go by the day: the sum of one is that of all its minutes."""
    return minute - minute % DAY_MINUTES


def _minute(position: RowKey | None) -> int:
    return 0 if position is None else position[0] // MINUTE_MS
