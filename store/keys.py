"""The store's key spaces: one byte of prefix, then big-endian integers, so byte order is key order.

====== ============================== ==========================================================
prefix key                            value
====== ============================== ==========================================================
``r``  due, partition, offset         the row: a message or a request that waits for its time
``l``  partition, offset              due: the row arrived with a key at or below the position
``c``  partition, offset              a pending answer
``e``  partition, id or source, offset  the same one by its id or source, if it ends what was before it: empty
``i``  partition, id                  the id's last request
``t``  partition, id                  offset of the id's last cancel
``s``  partition, root's offset       the last request that was written back for it
``u``  partition, offset              offset of the last cancel that names that source
``x``  partition, last due, offset    the ids, or source, whose entries or tombstones may go then
``n``  minute                         rows stored that fall due in that minute
``p``  partition, offset              which request without an id was parked, and until when
``o``  partition, first offset        when the schedules from that offset on fall due (store/due_index.py)
``q``  partition, due, first offset   the last due time of such an entry, or when to look at it again
``h``  tag, due, partition, offset     a row that pruning has left, by its target (store/kept.py)
``k``  partition, offset              the same by offset, until nothing has to lead there any more
``g``  partition, since, offset       the due time and the id of a row that the due index does not lead to
``y``  partition, offset              its since
``m``  name                           counters and metadata
====== ============================== ==========================================================
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final, cast

from delayline.names import MAX_OFFSET, MAX_PARTITION

RecordId = tuple[int, int]
"""(partition, offset) of a record of one topic: in the store, of a request in the buffer."""

RowKey = tuple[int, int, int]
"""(due_ms, partition, offset): a total order that is a function of the log alone."""

NO_KEY: Final[RowKey] = (-1, -1, -1)
"""Below every key."""

ROW: Final = b"r"
LATE: Final = b"l"
PENDING_ANSWER: Final = b"c"
ENDING: Final = b"e"
INDEX: Final = b"i"
TOMBSTONE: Final = b"t"
SOURCE: Final = b"s"
SOURCE_TOMBSTONE: Final = b"u"
EXPIRY: Final = b"x"
COUNT: Final = b"n"
PARK_MARK: Final = b"p"
DUE_INDEX: Final = b"o"
DUE_INDEX_END: Final = b"q"
HELD: Final = b"h"
KEPT: Final = b"k"
QUEUE: Final = b"g"
SINCE: Final = b"y"
META: Final = b"m"

APPLIED: Final = META + b"applied"
READ: Final = META + b"read"
NEWEST: Final = META + b"newest"
LAST_MOVES: Final = META + b"last moves"
ALIGNED: Final = META + b"aligned"
LOW_WATER: Final = META + b"low-water"
GONE_TO: Final = META + b"gone-to"  # the highest low water from which pruning has begun again
IDENTITY: Final = META + b"identity"
SERIALS: Final = META + b"serials"
KEYS: Final = META + b"keys"
BEGUN: Final = META + b"begun"

BLOCK: Final = 512  # offsets of one entry of due index, at most; a power of two

_timed = Struct(">cQIQ")
_queued = Struct(">cIQQ")
_by_record = Struct(">cIQ")
_tagged = Struct(">cQQIQ")
_named = Struct(">cI")
_counted = Struct(">cQ")
_due = Struct(">Q")
_unnamed = Struct(">cQ")
_NO_ID: Final = b"\xff"  # no byte of UTF-8
_sized = Struct(">cIH")
_last = Struct(">Q")

TIMED_BYTES: Final = _timed.size
_pack_timed = _timed.pack
_pack_by_record = _by_record.pack


def row(due_ms: int, partition: int, offset: int) -> bytes:
    """A row, by due time."""
    return _pack_timed(ROW, due_ms, partition, offset)


def last_due_by(time_ms: int) -> RowKey:
    """The last key that is due by a time."""
    return time_ms, MAX_PARTITION, MAX_OFFSET


def expiry(partition: int, due_ms: int, offset: int) -> bytes:
    """An entry of a partition's expiry queue, in the order in which they go: the last due time of what it
    holds, and the first offset.
    """
    return _queued.pack(EXPIRY, partition, due_ms, offset)


def queued(raw: bytes) -> RowKey:
    """The (due, partition, offset) that an expiry entry's key names, or that of the end of due index."""
    _, partition, due_ms, offset = _queued.unpack(raw)
    return due_ms, partition, offset


timed = cast("Callable[[bytes], RowKey]", Struct(">xQIQ").unpack)
"""The (due, partition, offset) of a row's key. Asked of each one that is looked at: no call in Python."""


def late(partition: int, offset: int) -> bytes:
    """A late row's entry."""
    return _pack_by_record(LATE, partition, offset)


def pending_answer(partition: int, offset: int) -> bytes:
    """A pending answer's row."""
    return _pack_by_record(PENDING_ANSWER, partition, offset)


def ending(partition: int, who: str | int, offset: int) -> bytes:
    """A pending answer's entry among those of its id, or of its source, in the order of their offsets."""
    name = who.encode() if isinstance(who, str) else _unnamed.pack(_NO_ID, who)
    return _sized.pack(ENDING, partition, len(name)) + name + _last.pack(offset)


def ending_offset(raw: bytes) -> int:
    """The offset in such an entry's key."""
    offset: int = _last.unpack(raw[-_last.size :])[0]
    return offset


def record_id(raw: bytes) -> RecordId:
    """The (partition, offset) of a late entry's or a pending answer's key."""
    _, partition, offset = _by_record.unpack(raw)
    return partition, offset


def park_mark(partition: int, offset: int) -> bytes:
    """The mark of a request that was parked: a later one of its own is the message."""
    return _pack_by_record(PARK_MARK, partition, offset)


def source(partition: int, root: int) -> bytes:
    """The entry of a user's request, after which something was written back."""
    return _pack_by_record(SOURCE, partition, root)


def source_tombstone(partition: int, root: int) -> bytes:
    """The tombstone of a user's request that was cancelled by its source."""
    return _pack_by_record(SOURCE_TOMBSTONE, partition, root)


def due_index(partition: int, first: int) -> bytes:
    """The due times from an offset on."""
    return _pack_by_record(DUE_INDEX, partition, first)


def due_index_end(partition: int, last_due_ms: int, first: int) -> bytes:
    """When an entry of due times may go."""
    return _queued.pack(DUE_INDEX_END, partition, last_due_ms, first)


def queue(partition: int, since: int, offset: int) -> bytes:
    """The entry of a row among those that may have to be carried, in the order in which they are."""
    return _queued.pack(QUEUE, partition, since, offset)


def queued_since(raw: bytes) -> tuple[int, int]:
    """The since and the offset of such an entry's row."""
    _, _, since, offset = _queued.unpack(raw)
    return since, offset


def since(partition: int, offset: int) -> bytes:
    """What leads from a row to its entry there."""
    return _pack_by_record(SINCE, partition, offset)


def held(tag: int, due_ms: int, partition: int, offset: int) -> bytes:
    """A row that pruning has left, by its target."""
    return _tagged.pack(HELD, tag, due_ms, partition, offset)


def tagged(raw: bytes) -> tuple[int, RowKey]:
    """The tag, and the (due, partition, offset), of such a key."""
    _, tag, due_ms, partition, offset = _tagged.unpack(raw)
    return tag, (due_ms, partition, offset)


def kept(partition: int, offset: int) -> bytes:
    """A row that pruning has left, by its offset."""
    return _pack_by_record(KEPT, partition, offset)


def index(partition: int, id_: str) -> bytes:
    """An id's index entry."""
    return _named.pack(INDEX, partition) + id_.encode()


def named(raw: bytes) -> int:
    """The partition of an index entry's key."""
    partition: int = _named.unpack_from(raw)[1]
    return partition


def tombstone(partition: int, id_: str) -> bytes:
    """An id's tombstone."""
    return _named.pack(TOMBSTONE, partition) + id_.encode()


def count(minute: int) -> bytes:
    """The count of a minute (epoch ms // 60,000)."""
    return _counted.pack(COUNT, minute)


def minute(raw: bytes) -> int:
    """The minute of a count's key."""
    number: int = _counted.unpack(raw)[1]
    return number


def pack_due(due_ms: int) -> bytes:
    """A late entry's value."""
    return _due.pack(due_ms)


def unpack_due(raw: bytes) -> int:
    """The due time in a late entry's value."""
    due_ms: int = _due.unpack(raw)[0]
    return due_ms


def after(raw: bytes) -> bytes:
    """The smallest key above `raw`."""
    return raw + b"\x00"


def behind(position: RowKey | None) -> bytes:
    """Where the rows behind a position begin; all of them do if there is none."""
    return ROW if position is None else after(row(*position))


def end_of(prefix: bytes) -> bytes:
    """The first key behind a one-byte prefix's space."""
    return bytes([prefix[0] + 1])
