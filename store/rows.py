"""What the store keeps under its keys, and how it is written: msgpack arrays, a tag first; index
entries as plain numbers.

A row keeps the request whole (key, value, all headers), since a dead letter must be the request as
it was; beside it what the parser made of it, so that delivery does not parse again.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

import msgspec

from delayline.recurrence import Recurrence
from delayline.signing import Serial
from store.holds import NO_TAG, tag_of

Headers = list[tuple[str, bytes | None]]


class ScheduledRow(msgspec.Struct, frozen=True, array_like=True, tag=0, gc=False):
    """A message that waits for its due time. `followed`: it is done, has no id, and its chain has gone on, as
    who carries it says: who begins need not know more of the chain than that.
    """

    key: bytes | None
    value: bytes | None
    headers: Headers
    id: str | None
    target_topic: str
    target_partition: int  # -1: by the key
    target_key: tuple[bytes | None] | None  # None: the request's own key
    scheduled_for_ms: int
    expire_at_ms: int | None
    parent: int | None  # offset of the request that made the service write this one back
    root: str | None  # source of the user's own request, where this is not it
    attempt: int
    occurrence: int | None  # None with a recurrence: the first one is still to be found
    recurrence: Recurrence | None = None
    moved_by: int | None = None  # offset of the user's last reschedule of it
    followed: bool = False


class RescheduleRow(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """A reschedule or run-now: due at once; what it means is decided when it is selected. One that was put
    off has the source of the user's own as its root, and an attempt above 1. `overtaken`: by a cancel, as who
    carries it says, for who begins behind that.
    """

    key: bytes | None
    value: bytes | None
    headers: Headers
    id: str
    scheduled_for_ms: int
    expire_at_ms: int | None
    root: str | None = None
    attempt: int = 1
    overtaken: bool = False


class RejectRow(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """A request that could not be accepted: a message for the dead-letter topic, due at once."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    code: str
    detail: str


Row = ScheduledRow | RescheduleRow | RejectRow

_SCHEDULED_TAG: Final = 0
_RESCHEDULE_TAG: Final = 1
_row_decoder = msgspec.msgpack.Decoder(Row)
_encoder = msgspec.msgpack.Encoder()

decode_row = _row_decoder.decode
decode_message = msgspec.msgpack.Decoder(ScheduledRow).decode
decode_reschedule = msgspec.msgpack.Decoder(RescheduleRow).decode
encode = _encoder.encode


def is_reschedule(raw_row: bytes) -> bool:
    """Tells without decoding: behind the array header stands the tag. That header is one byte, or three for
    a schedule, which has more than 15 fields: the second one is 0 then, as a schedule's tag is.
    """
    return raw_row[1] == _RESCHEDULE_TAG


def is_schedule(raw_row: bytes) -> bool:
    """Tells in the same way."""
    return raw_row[1] == _SCHEDULED_TAG


def message_target(raw_row: bytes) -> str | None:
    """Where it is to be delivered; None if it is no message. A cron expression's first row is none."""
    row = decode_scheduled(raw_row)
    return None if row is None else target_of_message(row)


def decode_scheduled(raw_row: bytes) -> ScheduledRow | None:
    """A row, if it is one of a schedule."""
    return decode_message(raw_row) if raw_row[1] == _SCHEDULED_TAG else None


def target_of_message(row: ScheduledRow) -> str | None:
    """As `message_target`, of one that is decoded."""
    to_be_found = row.recurrence is not None and row.occurrence is None
    return None if to_be_found else row.target_topic


def row_tag(raw_row: bytes) -> int:
    """The tag of what a hold may hold: of a message; of all else there is none."""
    target = message_target(raw_row)
    return NO_TAG if target is None else tag_of(target)


class ParkMark(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What was written back for a request without an id: until when it waits, and for what time it is."""

    due_ms: int
    scheduled_for_ms: int


def target_of(raw_row: bytes) -> str | None:
    """The topic that a message goes to; None for what is none. Reads nothing else of it."""
    return _decode_target(raw_row).target_topic if raw_row[1] == _SCHEDULED_TAG else None


class _Targeted(msgspec.Struct, frozen=True, array_like=True, tag=0, gc=False):
    """The beginning of a `ScheduledRow`."""

    key: msgspec.Raw
    value: msgspec.Raw
    headers: msgspec.Raw
    id: msgspec.Raw
    target_topic: str


_decode_target = msgspec.msgpack.Decoder(_Targeted).decode


class IndexEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The last schedule of an id: where its row is, and which request it goes back to."""

    due_ms: int
    offset: int
    origin: int  # own offset, or that of the parent of a written-back request
    root: int | None  # offset of the user's own request, where this is not it
    tag: int = NO_TAG  # of its target
    moved_by: int | None = None  # offset of the user's last reschedule of it

    @property
    def source(self) -> int:
        """The offset of the user's own request."""
        return self.offset if self.root is None else self.root

    @property
    def last_request(self) -> int:
        """The offset of the user's last request that counts: what is older changes nothing."""
        return self.source if self.moved_by is None else self.moved_by


_own_entry = Struct(">qqq")
_entry = Struct(">qqqq")
_rooted_entry = Struct(">qqqqq")
_moved_entry = Struct(">qqqqqq")
pack_own_index = _own_entry.pack
"""The index entry of a user's own request: due, offset, tag. One for each message with an id: no object is
made of it.
"""


def encode_index(entry: IndexEntry) -> bytes:
    """What `decode_index` reads: as few numbers as tell it."""
    due_ms, offset, origin, root, tag = entry.due_ms, entry.offset, entry.origin, entry.root, entry.tag
    if root is not None:
        if entry.moved_by is not None:
            return _moved_entry.pack(due_ms, offset, origin, root, tag, entry.moved_by)
        return _rooted_entry.pack(due_ms, offset, origin, root, tag)
    if origin == offset:
        return pack_own_index(due_ms, offset, tag)
    return _entry.pack(due_ms, offset, origin, tag)


def decode_index(raw: bytes) -> IndexEntry:
    """The index entry, or the entry of a source."""
    if len(raw) == _own_entry.size:
        due_ms, offset, tag = _own_entry.unpack(raw)
        return IndexEntry(due_ms, offset, offset, None, tag)
    if len(raw) == _entry.size:
        due_ms, offset, origin, tag = _entry.unpack(raw)
        return IndexEntry(due_ms, offset, origin, None, tag)
    if len(raw) == _moved_entry.size:
        return IndexEntry(*_moved_entry.unpack(raw))
    return IndexEntry(*_rooted_entry.unpack(raw))


CARRY_FORMAT: Final = 1
_carry = Struct(">BQQ")


class NewerCarry(ValueError):
    """A carry that a newer version has written."""


def encode_carry(due_ms: int, offset: int, raw_row: bytes) -> bytes:
    """The value of a carry: the rest of the row's key, its partition being the carry's own, and the row."""
    return _carry.pack(CARRY_FORMAT, due_ms, offset) + raw_row


def decode_carry(raw: bytes) -> tuple[int, int, bytes]:
    """The due time, the offset and the row. Raises `NewerCarry`."""
    if raw[0] != CARRY_FORMAT:
        raise NewerCarry(f"a carry has format {raw[0]}; this version reads {CARRY_FORMAT}")
    _, due_ms, offset = _carry.unpack_from(raw)
    return due_ms, offset, raw[_carry.size :]


def carried_offset(raw: bytes) -> int:
    """The offset alone, of one that `decode_carry` has read before."""
    offset: int = _carry.unpack_from(raw)[2]
    return offset


class QueueEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A row that the due index does not lead to, among those that may have to be carried."""

    due_ms: int
    id: str | None  # of a schedule


class Expiry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What may be forgotten together: when each is due, its offset, in order, and whose it is: an id's, or
    a source's, told by its offset.
    """

    dues_ms: list[int]
    offsets: list[int]
    whose: list[str | int]


class PendingAnswer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A cancel or replace that was carried out at apply and waits for its answer."""

    op: str  # cancel; schedule: it replaces; keep: it is a duplicate
    id: str | None  # None: a cancel by source, of a message without an id, or of none that is known
    removed: IndexEntry | None  # of a duplicate: what it is one of
    effective: bool  # it kept a written-back request from being stored
    previous: int = -1  # the offset of the id's last schedule or cancel before it; -1: none is known
    source: int | None = None  # of a cancel by source: the offset that it names
    cancelled: int = -1  # the offset of the id's last cancel before it; -1: none is known

    @property
    def ends(self) -> bool:
        """Whether it ends what was there under its id, or its source."""
        return self.op != "keep"

    @property
    def who(self) -> str | int:
        """The id, or the source of what has none."""
        if self.id is not None:
            return self.id
        assert self.source is not None, "it names one of the two"
        return self.source


decode_queue_entry = msgspec.msgpack.Decoder(QueueEntry).decode
decode_expiry = msgspec.msgpack.Decoder(Expiry).decode
decode_park_mark = msgspec.msgpack.Decoder(ParkMark).decode
decode_pending_answer = msgspec.msgpack.Decoder(PendingAnswer).decode
decode_offset = msgspec.msgpack.Decoder(int).decode
decode_vector = msgspec.msgpack.Decoder(dict[int, int]).decode
decode_serials = msgspec.msgpack.Decoder(dict[int, Serial]).decode
