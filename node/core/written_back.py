"""What the service writes back to the buffer (rule 4): requests that follow from others, signed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from zlib import crc32

from delayline.names import parse_source
from delayline.recurrence import Occurrence
from delayline.signing import Keyring
from delayline.wire import Header, Schedule, carry_headers, rewrite_headers, signed_headers, user_headers
from node.core.poison import Poison, Poisoned
from node.core.ports import Outgoing, TargetSnapshot
from node.core.sizes import batch_bytes, too_large
from store.awaited import Predecessor
from store.checkpoint import Vector
from store.keys import RowKey
from store.moves import Resolution
from store.rows import RescheduleRow, ScheduledRow, encode_carry
from store.taking import Rows

FIRST_PARK_MS = 1_000
LONGEST_PARK_MS = 300_000


class Stamp:
    """Signs and numbers what one plan writes back.

    `counts`: by partition, the count of the next one; from this plan on once it has been sent, so that a plan
    made anew has the same, and none is above the offset that its record gets (store/apply.py, `_is_copy`).
    """

    def __init__(self, keyring: Keyring, as_of: Vector, counts: Vector) -> None:
        """`as_of`: where the reader stood when that was selected which is planned."""
        self.counts = dict(counts)
        self._keyring = keyring
        self._as_of = as_of

    def on(
        self, headers: list[Header], partition: int, key: bytes | None, value: bytes | None
    ) -> list[Header]:
        """The headers of a request that is written back into a partition, with the next serial, signed."""
        serial = self._as_of[partition], self.counts[partition]
        self.counts[partition] += 1
        return signed_headers(headers, self._keyring, serial, partition, key, value)


class WrittenBack:
    """What one plan writes back, last in its transaction.

    `awaits`: some of it has an id, and nothing is selected before its commit is known (rule 5). `poison`:
    the rows for which the buffer would refuse it: such a plan is not to be sent (rule 10).
    """

    def __init__(self, buffer: str, now_ms: int, targets: TargetSnapshot, stamp: Stamp) -> None:
        self.records: list[Outgoing] = []
        self.awaits = False
        self.poison: Poison = {}
        self._predecessors: list[tuple[int, Predecessor | None]] = []  # of each record, with its partition
        self._buffer = buffer
        self._now_ms = now_ms
        self._targets = targets
        self._stamp = stamp

    @property
    def counts(self) -> Vector:
        """By partition, the count of what is written back next, once this is sent."""
        return self._stamp.counts

    def add(
        self, key: RowKey, row: ScheduledRow, request: Schedule, follows: Predecessor | None = None
    ) -> None:
        """Writes back a request that follows from the one at `key`. `follows`: the row, if it is another."""
        if follows is None:
            followed = key[2] if row.id is not None or row.root is None else parse_source(row.root)[2]
            follows = Predecessor(key[1], followed, row.id is not None)
        self.send(key, row.key, row.value, rewrite_headers(request), follows)
        self.awaits = self.awaits or row.id is not None

    def carry(self, rows: Rows) -> None:
        """Writes back rows as they are. One that is too large, or whose partition takes nothing now, is left
        out, and tried again later: it waits on where it is.
        """
        for key, raw_row in rows:
            self._carry(*key, raw_row)

    def _carry(self, due_ms: int, partition: int, offset: int, raw_row: bytes) -> None:
        value, before = encode_carry(due_ms, offset, raw_row), self._stamp.counts[partition]
        signed = self._stamp.on(carry_headers(), partition, None, value)
        record = Outgoing(self._buffer, partition, None, value, signed, self._now_ms, None)
        if self._targets.problem(self._buffer, partition, None, batch_bytes(record)) is not None:
            self._stamp.counts[partition] = before
            return
        self.records.append(record)
        self._predecessors.append((partition, None))

    def send(
        self,
        key: RowKey,
        record_key: bytes | None,
        value: bytes | None,
        headers: list[Header],
        follows: Predecessor | None,
    ) -> None:
        """Writes back a record for the row at `key`."""
        signed = self._stamp.on(headers, key[1], record_key, value)
        record = Outgoing(self._buffer, key[1], record_key, value, signed, self._now_ms, key)
        why = too_large(self._targets, record)
        if why is not None:
            self.poison[key] = Poisoned(*why, is_of_what_follows=True)
        self.records.append(record)
        self._predecessors.append((key[1], follows))

    def predecessors(self, offsets: Mapping[int, Sequence[int]]) -> list[tuple[Predecessor, int]]:
        """What follows which row, each with its own offset. `offsets`: by partition, those of what was
        written back, in its order.
        """
        own = {partition: iter(each) for partition, each in offsets.items()}
        found = [(following, next(own[partition])) for partition, following in self._predecessors]
        return [(following, offset) for following, offset in found if following is not None]


def request_of(row: ScheduledRow, parent: int) -> Schedule:
    """What a row asks for, as a request that follows from another one."""
    return Schedule(
        id=row.id,
        scheduled_for_ms=row.scheduled_for_ms,
        due_ms=row.scheduled_for_ms,
        target_topic=row.target_topic,
        target_key=row.key if row.target_key is None else row.target_key[0],
        target_partition=row.target_partition,
        expire_at_ms=row.expire_at_ms,
        headers=user_headers(row.headers),
        parent=parent,
        root=row.root,
        attempt=row.attempt,
        occurrence=row.occurrence,
        recurrence=row.recurrence,
        moved_by=row.moved_by,
    )


def next_request(row: ScheduledRow, parent: int, root: str, following: Occurrence) -> Schedule:
    """The next occurrence of a chain."""
    return request_of(row, parent)._replace(
        scheduled_for_ms=following.at_ms,
        due_ms=following.at_ms,
        expire_at_ms=None,
        root=root,
        attempt=1,
        occurrence=following.number,
        recurrence=following.recurrence,
    )


def moved_request(
    row: RescheduleRow, parent: int, root: str | None, moved: ScheduledRow, resolution: Resolution
) -> Schedule:
    """What a reschedule makes of the row that it moves."""
    said_ms = resolution.expire_at_ms
    return request_of(moved, parent)._replace(
        scheduled_for_ms=row.scheduled_for_ms,
        due_ms=row.scheduled_for_ms,
        attempt=1,
        expire_at_ms=moved.expire_at_ms if said_ms is None else said_ms,
        root=root,
        moved_by=resolution.last_request,
    )


def park_ms(key: RowKey, attempt: int) -> int:
    """How long a message is parked after a failed attempt: twice as long each time, and between half of that
    and all of it, so that not all come back at once. Not drawn, so a plan made again is the same.
    """
    return jittered_ms(key, FIRST_PARK_MS << min(attempt - 1, 20))


def jittered_ms(key: RowKey, wait_ms: int) -> int:
    """Between half of a time and all of it, which is at least the first park's and at most the longest's."""
    full_ms = min(max(wait_ms, FIRST_PARK_MS), LONGEST_PARK_MS)
    return full_ms // 2 + crc32(b"%d/%d" % key[1:]) % (full_ms // 2 + 1)
