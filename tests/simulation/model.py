"""The plain model: what has to become of each request, from the committed log and the checkpoints alone.

It shares no code with the core. A request means what its user meant (tests/simulation/requests.py); a row is
done from the first checkpoint on whose position and ingested vector cover it; a cancel or replace counts from
the first checkpoint on whose seen vector covers it; a reschedule is decided in the transaction that makes
its own row done, by what that transaction's checkpoint had seen. All times in ms.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from store.checkpoint import Checkpoint
from tests.simulation.host import Violation
from tests.simulation.log import Entry, Partition
from tests.simulation.requests import Kind, Request

Key = tuple[int, int, int]
Place = tuple[int, int]
NEVER = 1 << 60


@dataclass(slots=True, eq=False)
class Row:
    """A request that waits for its time: a message, a reject or a reschedule."""

    place: Place
    due_ms: int
    scheduled_for_ms: int
    expire_at_ms: int | None
    request: Request  # the user's own, also of what the service wrote back
    root: Place
    origin: int
    parent: int | None = None
    removed_by: int | None = None  # offset, in the same partition
    dropped: bool = False  # written back too late: never stored
    done_in: int = NEVER  # number of the transaction (and checkpoint)

    @property
    def key(self) -> Key:
        return (self.due_ms, *self.place)


@dataclass(slots=True)
class Control:
    """A cancel, or a schedule that replaces."""

    place: Place
    request: Request
    removed: Row | None


@dataclass(slots=True)
class Model:
    """What follows from the log. Transactions are numbered by their checkpoints, from 0."""

    checkpoints: list[Checkpoint]
    rows: dict[Place, Row] = field(default_factory=dict)
    controls: list[Control] = field(default_factory=list)
    _last: dict[tuple[int, str], list[tuple[int, Row | None]]] = field(default_factory=dict)
    _cancels: dict[tuple[int, str], int] = field(default_factory=dict)
    _positions: list[Key] = field(default_factory=list)
    _ingested: dict[int, list[int]] = field(default_factory=dict)
    _seen: dict[int, list[int]] = field(default_factory=dict)

    def read(self, buffer: list[Partition], partitions: list[int]) -> None:
        """Reads the committed requests of the lane's partitions."""
        self._positions = [one.position or (-1, -1, -1) for one in self.checkpoints]
        for number in partitions:
            self._ingested[number] = [one.ingested[number] for one in self.checkpoints]
            self._seen[number] = [one.seen[number] for one in self.checkpoints]
            partition = buffer[number]
            for entry in partition.committed(0, partition.end):
                self._take(entry)

    # ------------------------------------------------------------------ when

    def seen_in(self, place: Place) -> int:
        """The first transaction whose checkpoint had seen what stands there."""
        return _first(self._seen[place[0]], place[1] + 1)

    def done_in(self, key: Key) -> int:
        """The first transaction under whose checkpoint a row with this key is done."""
        return max(_first(self._positions, key), _first(self._ingested[key[1]], key[2] + 1))

    def delivered(self, row: Row) -> bool:
        """Whether its transaction carried it: it was done, and not removed before it was selected."""
        if row.dropped or row.done_in == NEVER:
            return False
        return row.removed_by is None or row.done_in < self.seen_in((row.place[0], row.removed_by))

    def late(self, row: Row) -> bool:
        """Whether its transaction took it as a late row: the position had passed it."""
        return row.done_in > 0 and self._positions[row.done_in - 1] >= row.key

    def last_of(self, partition: int, id_: str, end: int) -> Row | None:
        """The id's last schedule below an offset, None if there is none or a cancel came after it."""
        changes = self._last.get((partition, id_), [])
        number = bisect_left(changes, end, key=lambda change: change[0])
        return changes[number - 1][1] if number else None

    def decided(self, row: Row) -> tuple[str, Row | None]:
        """What a reschedule comes to, and the row that it concerns."""
        assert row.request.id is not None, "a reschedule names an id"
        partition, offset = row.place
        seen = self.checkpoints[row.done_in].seen[partition]
        target = self.last_of(partition, row.request.id, seen)
        if target is None or target.origin > offset:
            return "unknown", None
        return ("too-late" if target.done_in <= row.done_in else "rescheduled"), target

    def written_back(self) -> list[Row]:
        """The requests that the service has written back."""
        return [row for row in self.rows.values() if row.parent is not None]

    # ------------------------------------------------------------------ the log

    def _take(self, entry: Entry) -> None:
        record, request = entry.record, entry.request
        assert record is not None, "markers are not requests"
        place = (record.partition, record.offset)
        if request is None:
            self._take_written_back(place, record.timestamp_ms, dict(record.headers))
            return
        if request.kind is Kind.CANCEL:
            self._cancel(place, request)
            return
        scheduled_for_ms = request.scheduled_for_ms(record.timestamp_ms)
        due_ms = record.timestamp_ms
        if request.kind is Kind.SCHEDULE:
            due_ms = max(scheduled_for_ms, due_ms)
        row = Row(place, due_ms, scheduled_for_ms, request.expire_at_ms, request, place, place[1])
        self._add(row)
        if request.kind is Kind.SCHEDULE and request.id is not None:
            removed = self._replace(row, request.id)
            if removed is not None:
                self.controls.append(Control(place, request, removed))

    def _add(self, row: Row) -> None:
        row.done_in = self.done_in(row.key)
        self.rows[row.place] = row

    def _replace(self, row: Row, id_: str) -> Row | None:
        """Makes the row its id's last; returns the one before, which goes."""
        partition, offset = row.place
        removed = self.last_of(partition, id_, offset)
        if removed is not None:
            removed.removed_by = offset
        self._last.setdefault((partition, id_), []).append((offset, row))
        return removed

    def _cancel(self, place: Place, request: Request) -> None:
        assert request.id is not None, "a cancel names an id"
        removed = self.last_of(place[0], request.id, place[1])
        if removed is not None:
            removed.removed_by = place[1]
        self._last.setdefault((place[0], request.id), []).append((place[1], None))
        self._cancels[place[0], request.id] = place[1]
        self.controls.append(Control(place, request, removed))

    def _take_written_back(self, place: Place, timestamp_ms: int, headers: dict[str, bytes | None]) -> None:
        parent = int(headers["delay-parent"] or b"")
        reschedule = self.rows[place[0], parent]
        if reschedule.request.forged:
            return  # what forged requests cause is their own affair
        _, moved = self.decided(reschedule)
        if moved is None:
            raise Violation("I7", f"{place}: written back by a reschedule that moves nothing")
        assert moved.request.id is not None, "only what has an id is moved"
        scheduled_for_ms = reschedule.scheduled_for_ms
        expire_at_ms = reschedule.expire_at_ms
        row = Row(
            place,
            max(scheduled_for_ms, timestamp_ms),
            scheduled_for_ms,
            moved.expire_at_ms if expire_at_ms is None else expire_at_ms,
            moved.request,
            moved.root,
            parent,
            parent,
        )
        self._add(row)
        id_ = moved.request.id
        last = self.last_of(place[0], id_, place[1])
        overtaken = last is not None and last.origin > parent
        if overtaken or self._cancels.get((place[0], id_), -1) > parent:
            row.dropped = True
        else:
            self._replace(row, id_)


def _first(values: list[int] | list[Key], wanted: int | Key) -> int:
    """The first place in a rising list whose value is `wanted` or above; `NEVER` if there is none."""
    number = bisect_left(values, wanted)
    return number if number < len(values) else NEVER
