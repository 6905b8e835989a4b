"""Which rows a transaction takes: late ones and due ones, as far as they fit (rule 1, docs/design.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from store import keys, moves
from store.checkpoint import Frontier, Vector, WriteBack
from store.keys import RowKey
from store.kv import Damaged, KeyValue
from store.late import late_keys
from store.rows import RescheduleRow, decode_reschedule, is_reschedule

MOST_WALKED_BYTES: Final = 8 << 20
MOST_WALKED: Final = 1_000  # rows of a replay's range, or done behind the position: apply waits meanwhile

Rows = list[tuple[RowKey, bytes]]


class Undone:
    """The rows behind the position without those that are done by an overrun. It goes over so many of these
    at most, and ends there: the last one is `passed` then. Where there are fewer, the position need not move.
    """

    def __init__(self, tip: Frontier, most: int = MOST_WALKED) -> None:
        self.tip = tip
        self.passed: RowKey | None = None
        self._most = most

    def of(self, rows: Iterable[tuple[bytes, bytes]]) -> Iterable[tuple[bytes, bytes]]:
        return self._filtered(rows) if self.tip.overruns else rows

    def _filtered(self, rows: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        walked, bytes_left = 0, MOST_WALKED_BYTES
        for raw_key, raw in rows:
            key = keys.timed(raw_key)
            if not self.tip.overran(key):
                yield raw_key, raw
                continue
            walked += 1
            bytes_left -= len(raw)
            if walked == self._most or bytes_left < 0:
                self.passed = key
                return


class Taking:
    """What has been taken so far, and whether more fits."""

    def __init__(self, messages: int, bytes_: int, room: Room, named: moves.Named) -> None:
        self.rows: Rows = []
        self.reschedules: list[tuple[RowKey, RescheduleRow]] = []  # those of them, of all calls
        self.room = room
        self.left = messages  # how many more messages fit
        self._named = named
        self._bytes_left = bytes_
        self._taken_any = False

    def take(self, rows: Iterable[tuple[RowKey, bytes]]) -> RowKey | None:
        """Takes rows for as long as they fit, with what reschedules move, and there is room for that. Returns
        the first one that is left, None if all were taken.
        """
        append, messages_left, bytes_left = self.rows.append, self.left, self._bytes_left
        left: RowKey | None = None
        for row in rows:
            raw = row[1]
            bytes_left -= len(raw)
            if messages_left < 1 or bytes_left < 0 or is_reschedule(raw):
                key = row[0]
                reschedule = decode_reschedule(raw) if is_reschedule(raw) else None
                if reschedule is not None:
                    bytes_left -= self._named.bytes_of(key[1], reschedule.id)
                if (messages_left < 1 or bytes_left < 0) and self._taken_any:
                    left = key
                    break
                if reschedule is not None:
                    if not self.room.take(key[1]):
                        left = key
                        break
                    self.reschedules.append((key, reschedule))
            self._taken_any = True
            messages_left -= 1
            append(row)
        self.left, self._bytes_left = messages_left, bytes_left
        return left


class Room:
    """For how many more rows of each partition the list of what is moved has room: so many reschedules are
    taken. Where the list is full of what can be read soon, the selection ends before the next one, and waits
    for that: to defer it would only make more of the same. Where it is hidden, it is deferred.
    """

    def __init__(self, write_back: WriteBack, applied: Vector, most: int) -> None:
        self.full: Vector = {}  # as far as has to be applied before there is any
        self._awaited = write_back.awaited
        self._applied = applied
        self._most = most
        self._hidden = write_back.hidden
        self._left: dict[int, int] = {}

    def take(self, partition: int) -> bool:
        """Takes room for one reschedule; False if there is none."""
        if partition in self._hidden:
            return True
        left = self._left.get(partition)
        if left is None:
            offsets = self._awaited.moved_offsets(partition, self._applied)
            left = self._most - len(offsets)
            if left < 1:
                self.full[partition] = min(offsets) + 1
        self._left[partition] = left - 1
        return left > 0


def take_late(kv: KeyValue, tip: Frontier, applied: Vector, taking: Taking) -> Vector | None:
    """Takes late rows in (partition, offset) order. If they do not all fit, the first offset left in each
    partition, to which applied is held back (rule 1); else None.

    The entries below the tip's applied are in flight: an entry stays until the commit is known, and what a
    selection leaves holds its applied back.
    """
    late_limits: Vector = {}
    for partition in sorted(applied):
        waiting = late_keys(kv, partition, tip.applied.get(partition, 0))
        left = next(waiting, None) if late_limits else taking.take((key, _row(kv, key)) for key in waiting)
        if left is not None:
            late_limits[partition] = left[2]
    return late_limits or None


def _row(kv: KeyValue, key: RowKey) -> bytes:
    raw = kv.get(keys.row(*key))
    if raw is None:
        raise Damaged(f"the late row {key} is missing")
    return raw


def take_due(kv: KeyValue, undone: Undone, now_ms: int, taking: Taking) -> int:
    """Takes rows due by now in key order; returns the time up to which nothing due is left."""
    due = undone.of(kv.scan(keys.behind(undone.tip.position), keys.row(now_ms + 1, 0, 0)))
    timed = keys.timed
    if taking.take((timed(raw_key), raw) for raw_key, raw in due) is None:
        return now_ms if undone.passed is None else undone.passed[0] - 1
    return (taking.rows[-1][0][0] - 1) if taking.rows else 0
