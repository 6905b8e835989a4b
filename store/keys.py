"""The store's key spaces: one byte of prefix, then big-endian integers, so byte order is key order.

====== ============================== ==========================================================
prefix key                            value
====== ============================== ==========================================================
``r``  due, partition, offset         the row: a message or a request that waits for its time
``l``  partition, offset              due: the row arrived with a key at or below the position
``c``  partition, offset              a control request that waits for its answer
``e``  partition, id, offset          the same one by its id, if it ends what was before it: empty
``i``  partition, id                  the id's last request
``t``  partition, id                  offset of the id's last cancel
``x``  partition, due, offset         the id whose index entry or tombstone may go with that row
``n``  minute                         rows stored that fall due in that minute
``p``  partition, offset              which request without an id was put off, and until when
``m``  name                           counters and metadata
====== ============================== ==========================================================
"""

from __future__ import annotations

from struct import Struct
from typing import Final

Key = tuple[int, int, int]
"""(due_ms, partition, offset): a total order that is a function of the log alone."""

ROW: Final = b"r"
LATE: Final = b"l"
CONTROL: Final = b"c"
ENDING: Final = b"e"
INDEX: Final = b"i"
TOMBSTONE: Final = b"t"
EXPIRY: Final = b"x"
COUNT: Final = b"n"
PUT_OFF: Final = b"p"
META: Final = b"m"

INGESTED: Final = META + b"ingested"
READ: Final = META + b"read"
NEWEST: Final = META + b"newest"
ALIGNED: Final = META + b"aligned"
LOW_WATER: Final = META + b"low-water"
IDENTITY: Final = META + b"identity"
SERIALS: Final = META + b"serials"
KEYS: Final = META + b"keys"
UNKNOWN_KEY: Final = META + b"unknown-key/"

MINUTE_MS: Final = 60_000

_timed = Struct(">cQIQ")
_queued = Struct(">cIQQ")
_placed = Struct(">cIQ")
_named = Struct(">cI")
_counted = Struct(">cQ")
_due = Struct(">Q")
_sized = Struct(">cIH")
_last = Struct(">Q")

TIMED_BYTES: Final = _timed.size
_pack_timed = _timed.pack
_unpack_timed = _timed.unpack
_pack_placed = _placed.pack


def row(due_ms: int, partition: int, offset: int) -> bytes:
    """A row, by due time."""
    return _pack_timed(ROW, due_ms, partition, offset)


def expiry(partition: int, due_ms: int, offset: int) -> bytes:
    """An entry of a partition's expiry queue, in the order in which its rows go."""
    return _queued.pack(EXPIRY, partition, due_ms, offset)


def queued(raw: bytes) -> Key:
    """The (due, partition, offset) of the row that an expiry entry's key names."""
    _, partition, due_ms, offset = _queued.unpack(raw)
    return due_ms, partition, offset


def timed(raw: bytes) -> Key:
    """The (due, partition, offset) of a row's key."""
    _, due_ms, partition, offset = _unpack_timed(raw)
    return due_ms, partition, offset


def late(partition: int, offset: int) -> bytes:
    """A late row's entry."""
    return _pack_placed(LATE, partition, offset)


def control(partition: int, offset: int) -> bytes:
    """A control request's row."""
    return _pack_placed(CONTROL, partition, offset)


def ending(partition: int, id_: str, offset: int) -> bytes:
    """A control's entry among those of its id, in the order of their offsets."""
    raw_id = id_.encode()
    return _sized.pack(ENDING, partition, len(raw_id)) + raw_id + _last.pack(offset)


def ending_offset(raw: bytes) -> int:
    """The offset in such an entry's key."""
    offset: int = _last.unpack(raw[-_last.size :])[0]
    return offset


def placed(raw: bytes) -> tuple[int, int]:
    """The (partition, offset) of a late entry's or a control row's key."""
    _, partition, offset = _placed.unpack(raw)
    return partition, offset


def unknown_key(id_: str) -> bytes:
    """The mark of a key with which something was signed before the node knew it."""
    return UNKNOWN_KEY + id_.encode()


def put_off(partition: int, offset: int) -> bytes:
    """The mark of a request that has stepped back for a later one of its own."""
    return _pack_placed(PUT_OFF, partition, offset)


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
    """The count of a minute (epoch ms // `MINUTE_MS`)."""
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


def unknown_key_id(raw: bytes) -> str:
    """The key's id in such a mark's key."""
    return raw.removeprefix(UNKNOWN_KEY).decode()


def after(raw: bytes) -> bytes:
    """The smallest key above `raw`."""
    return raw + b"\x00"


def end_of_name(prefix: bytes) -> bytes:
    """The first key behind all that begin with a longer prefix."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def end_of(prefix: bytes) -> bytes:
    """The first key behind a one-byte prefix's space."""
    return bytes([prefix[0] + 1])
