"""How far a view is, along the log and along the checkpoints.

- *aligned*: the last checkpoint known to be committed, kept in the store;
- *tip*: where the last selection leads, in memory only. It is ahead of *aligned* while transactions
  are in flight, and falls back to it when they are abandoned;
- *applied*: how far the log was applied, kept in the store with the rows, in the same batch; *read* goes
  past the markers behind it, and is kept with each checkpoint.

After a crash the store is exactly some earlier state, and the log replays the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from delayline.signing import Serial
from store import keys
from store.arrivals import Arrival, Kind
from store.checkpoint import Checkpoint, Frontier, Reached, Vector, nothing
from store.kv import Batch, KeyValue
from store.rows import decode_serials, decode_vector, encode


class Heard(NamedTuple):
    """What the log has said, as far as it was applied: a function of it, but for `newest_read_ms`.

    By partition: `newest_ms`, the newest timestamp; `newest_read_ms`, the same, where something has come
    since the start; `last_moves`, when the last reschedule is due, in ms; `serials`, the highest.
    """

    applied: Vector
    newest_ms: Vector
    newest_read_ms: Vector
    last_moves: Vector
    serials: dict[int, Serial]


class Frontiers:
    """One view's. The view alone changes them, under its lock and only after the store has taken the write.
    Vectors are replaced as a whole, but for `read`: whoever takes one up without the lock has it as it was.
    """

    def __init__(self, kv: KeyValue, partitions: Sequence[int]) -> None:
        """`partitions` are the lane's."""
        stored = _vector(kv, keys.APPLIED)
        partitions = sorted({*partitions, *stored})  # what was read once is the lane's for ever
        applied: Vector = {partition: stored.get(partition, 0) for partition in partitions}
        raw_serials = kv.get(keys.SERIALS)
        serials: dict[int, Serial] = {} if raw_serials is None else decode_serials(raw_serials)
        self.heard = Heard(applied, _vector(kv, keys.NEWEST), {}, _vector(kv, keys.LAST_MOVES), serials)
        read = _vector(kv, keys.READ)  # older than applied, perhaps
        self.read: Vector = {p: max(offset, read.get(p, 0)) for p, offset in applied.items()}
        raw_aligned = kv.get(keys.ALIGNED)
        self.checkpoint = None if raw_aligned is None else Checkpoint.decode(raw_aligned)
        self.aligned = nothing(partitions) if self.checkpoint is None else self.checkpoint.frontier
        self.tip: Frontier = self.aligned

    @property
    def applied(self) -> Vector:
        return self.heard.applied

    def reached(self) -> Reached:
        """A copy."""
        return Reached(dict(self.applied), dict(self.read))

    def has_read_to(self, ends: Vector) -> bool:
        """Whether the reader has passed the ends: there may be nothing but markers below them."""
        return all(self.read.get(partition, 0) >= end for partition, end in ends.items())

    def write_heard(
        self, batch: Batch, fresh: Sequence[Arrival], last_moves: Vector, serials: dict[int, Serial]
    ) -> Heard:
        """Puts what is known of the log once `fresh` has been applied, and returns it."""
        known, newest_ms = self.heard, _newest_of(fresh, self.heard.newest_ms)
        heard = Heard(
            known.applied | {a.partition: a.offset + 1 for a in fresh if a.kind is not Kind.SPENT},
            known.newest_ms | newest_ms,
            known.newest_read_ms | newest_ms,
            last_moves,
            serials,
        )
        batch.put(keys.APPLIED, encode(heard.applied))
        batch.put(keys.NEWEST, encode(heard.newest_ms))
        if last_moves != known.last_moves:
            batch.put(keys.LAST_MOVES, encode(last_moves))
        if serials != known.serials:
            batch.put(keys.SERIALS, encode(serials))
        return heard

    def write_beginning(self, batch: Batch, partition: int, applied: int, serial: Serial | None) -> Heard:
        """Puts that all is done below an offset of a partition, and that a serial is spent, with all below
        it; returns what is known then.
        """
        serials = self.heard.serials
        if serial is not None:
            serials = serials | {partition: max(serial, serials.get(partition, serial))}
        heard = self.heard._replace(applied=self.applied | {partition: applied}, serials=serials)
        batch.put(keys.APPLIED, encode(heard.applied))
        batch.put(keys.SERIALS, encode(serials))
        return heard

    def write_beginnings(self, batch: Batch, begins: Vector, applied: Vector, newest_ms: Vector) -> Heard:
        """Puts that an empty view begins at these offsets, as if so much was applied, with these timestamps
        as the newest: what was written back with an as-of below is nothing to it.
        """
        serials = self.heard.serials | {partition: (begin, -1) for partition, begin in begins.items()}
        heard = self.heard._replace(
            serials=serials, applied=self.applied | applied, newest_ms=self.heard.newest_ms | newest_ms
        )
        batch.put(keys.APPLIED, encode(heard.applied))
        batch.put(keys.NEWEST, encode(heard.newest_ms))
        batch.put(keys.SERIALS, encode(serials))
        return heard

    def read_on(self, read: Mapping[int, int]) -> None:
        """The reader stands there."""
        # It never moves back: what is written back rests on that (store/apply.py, `_is_copy`).
        self.read.update({p: max(offset, self.read.get(p, 0)) for p, offset in read.items()})

    def write_aligned(self, batch: Batch, checkpoint: Checkpoint) -> None:
        """Puts the checkpoint, and where the reader stands."""
        batch.put(keys.ALIGNED, checkpoint.encode())
        batch.put(keys.READ, encode(self.read))

    def align(self, checkpoint: Checkpoint) -> None:
        """It is the last one known to be committed; the tip stays where it is."""
        self.checkpoint, self.aligned = checkpoint, checkpoint.frontier


def _vector(kv: KeyValue, key: bytes) -> Vector:
    raw = kv.get(key)
    return {} if raw is None else decode_vector(raw)


def _newest_of(arrivals: Sequence[Arrival], newest_ms: Vector) -> Vector:
    """The newest timestamp of each partition that something has come from."""
    found: Vector = {}
    for arrival in arrivals:
        partition, timestamp_ms = arrival.partition, arrival.timestamp_ms
        if timestamp_ms > found.get(partition, -1):
            found[partition] = timestamp_ms
    return {partition: max(at_ms, newest_ms.get(partition, 0)) for partition, at_ms in found.items()}
