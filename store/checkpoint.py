"""The checkpoint: what the lane has delivered, exactly. One record of the checkpoint topic, written
in the same Kafka transaction as the messages it covers (docs/design.md, "Exactly-once: the rule").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Self

import msgspec

from store import holds
from store.awaited import NOTHING, Awaited
from store.holds import Hold, Holds, Target
from store.keys import NO_KEY, RowKey
from store.operations import Operation, OperatorRequest, taken_up
from store.overrun import Overrun, Overruns, with_one
from store.told import Told

Vector = dict[int, int]
"""Per partition of the lane, an offset + 1."""


FORMAT: Final = 6
FORMAT_UNCARRIED: Final = 5
"""Of a checkpoint of a cluster that carries nothing: as versions know it that cannot carry."""
FORMATS: Final = frozenset((FORMAT_UNCARRIED, FORMAT))


class Reached(msgspec.Struct, frozen=True):
    """How far the view has read the log: offsets of messages + 1, and where the reader stands, which
    also passes transaction markers (rule 7).
    """

    applied: Vector
    read: Vector


class UnreadableCheckpoint(ValueError):
    """What stands where a checkpoint should be is none, or of a format that this version does not read."""


class NewerCheckpoint(UnreadableCheckpoint):
    """It is of a newer version: whoever went on from an older one would deliver again what it covers."""


class Frontier(msgspec.Struct, frozen=True):
    """How far a selection reaches: the part of a checkpoint that decides which rows are done.

    `read` decides nothing: it is where the reader stood, behind the markers that follow the last message. It
    tells whether what retention has removed was all applied (node/kafka/applier.py). `newest_ms`: per
    partition, the newest timestamp of what *seen* had passed when `carried` was found: who begins there knows
    by it which ids are known.
    """

    position: RowKey | None
    applied: Vector
    seen: Vector
    read: Vector
    delivered_up_to_ms: int
    operation: Operation = Operation()
    overruns: Overruns = ()
    holds: Holds = ()
    carried: Vector = {}
    newest_ms: Vector = {}

    def passed(self, key: RowKey) -> bool:
        """Whether key <= position and offset < applied[partition], here or in an overrun."""
        if self.position is not None and key <= self.position and key[2] < self.applied.get(key[1], 0):
            return True
        return any(one.covers(key) for one in self.overruns)

    def overran(self, key: RowKey) -> bool:
        """Whether a row behind the position is done, as it was by a clock that was ahead."""
        if not self.overruns or (self.position is not None and key <= self.position):
            return False
        return any(one.covers(key) for one in self.overruns)

    @property
    def once_delivered_up_to_ms(self) -> int:
        """The highest that delivered-up-to has been: by that was pruned."""
        return max(self.delivered_up_to_ms, *(one.delivered_up_to_ms for one in self.overruns), 0)

    @property
    def furthest_ms(self) -> int:
        """When what was done last falls due at the latest."""
        positions = (self.position or NO_KEY, *(one.position for one in self.overruns))
        return max(0, max(positions)[0])

    def taken_up(
        self, request: OperatorRequest, now_ms: int, window_ms: int, written_back: Vector
    ) -> Operation:
        """What the operation is once a request has been taken up here: a replay reaches back as far as the
        replay window. `written_back`: how far the service has written back so far.
        """
        kept_from_ms = self.once_delivered_up_to_ms - window_ms
        return taken_up(
            self.operation,
            request,
            self.position,
            self.applied,
            now_ms,
            kept_from_ms,
            written_back,
            self.held,
        )

    def is_behind(self, last: Frontier) -> bool:
        """Whether of the rows behind the position others may be done, or pruned, than were behind the last
        one's: after a rewind, or where an end was lost.
        """
        return self.overruns != last.overruns or (self.position or NO_KEY) < (last.position or NO_KEY)

    def rewound(self, now_ms: int) -> Frontier:
        """The same rows are done; what is due by now, and at or below the position, is late if it is not, and
        nothing else is. A skip ends where what is due does.
        """
        assert self.position is not None, "nothing was selected before"
        now, skip_to = (now_ms, 0, 0), self.operation.skip_to
        skip_to = None if skip_to is None else min(skip_to, now)
        numbers = (*(one.number for one in self.overruns), *(hold.since for hold in self.holds), 0)
        last = Overrun(self.position, self.applied, self.delivered_up_to_ms, max(numbers) + 1)
        return msgspec.structs.replace(
            self,
            position=min(self.position, now),
            delivered_up_to_ms=min(self.delivered_up_to_ms, now_ms, self.position[0] - 1),
            operation=msgspec.structs.replace(self.operation, skip_to=skip_to),
            overruns=with_one(self.overruns, last, holds.needed_by(self.holds, self.overruns)),
        )

    def done(self, key: RowKey, target: Target) -> bool:
        """A row is done iff it is passed and not held."""
        return self.passed(key) and not self.is_held(key, target)

    @property
    def held(self) -> tuple[Holds, Overruns]:
        """What is held: the holds, and the overruns that they rest on."""
        needed = holds.needed_by(self.holds, self.overruns)
        return self.holds, tuple(one for one in self.overruns if one.number in needed)

    def is_held(self, key: RowKey, target: Target) -> bool:
        """Whether a row with this key is held."""
        return self.hold_of(key, target) is not None

    def hold_of(self, key: RowKey, target: Target) -> Hold | None:
        """What a row with this key waits for."""
        return holds.hold_of(self.holds, self.overruns, key, target)


class WriteBack(NamedTuple):
    """The part of a checkpoint that says what was written back. While a transaction is being sent that writes
    back, nobody knows how far: None. `awaited` is then what was so before. `hidden`: the partitions in which
    that cannot be read for now, as the leader finds.
    """

    awaited: Awaited = NOTHING
    written_back: Vector | None = None
    hidden: frozenset[int] = frozenset()


NO_WRITE_BACK: Final = WriteBack(written_back={})


def nothing(partitions: Sequence[int]) -> Frontier:
    """The frontier before the first checkpoint."""
    nowhere = dict.fromkeys(partitions, 0)
    return Frontier(position=None, applied=nowhere, seen=nowhere, read=nowhere, delivered_up_to_ms=0)


MOST_BEFORE: Final = 8
"""Of topics in a lineage: who still knows of one before those has been away for as many losses."""


class Lineage(msgspec.Struct, frozen=True, omit_defaults=True):
    """The checkpoint topic as a leadership has found it: Kafka's id of it, and the leader epoch of the lane's
    partition. A partition loses its end only where its leader changes, and each change raises that epoch.

    `before`: where the topic was made anew, the ids of those that were known of before it, `MOST_BEFORE` at
    most, the latest last.
    """

    topic_id: str
    leader_epoch: int
    before: tuple[str, ...] = ()

    def after(self, known: Iterable[Lineage]) -> Lineage:
        """This one, of who knows of those, and goes on from the last of them."""
        topics = dict.fromkeys(topic for one in known for topic in (*one.before, one.topic_id))
        before = [topic for topic in topics if topic not in {self.topic_id, NO_LINEAGE.topic_id}]
        return Lineage(self.topic_id, self.leader_epoch, tuple(before[-MOST_BEFORE:]))


NO_LINEAGE: Final = Lineage(topic_id="", leader_epoch=0)


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One lane's checkpoint. Times in epoch ms; vectors hold the lane's partitions.

    `number`: how many there were of the lane before; the first one of an epoch repeats it, as all else.
    `settings_version`: the latest that the leader knew; all that began below `carried` are no later.
    `told`: what the outcomes topic tells still; None: no leader has looked yet, or nothing is carried.
    """

    format: int = FORMAT
    lane: int
    epoch: int
    number: int
    position: RowKey | None
    applied: Vector
    seen: Vector
    read: Vector
    written_back: Vector
    delivered_up_to_ms: int
    operation: Operation = Operation()
    holds: Holds = ()
    awaited: Awaited = NOTHING
    overruns: Overruns = ()
    carried: Vector = {}
    newest_ms: Vector = {}
    settings_version: int = 0
    told: Told | None = None
    node: str
    at_ms: int
    first: bool = False
    lineage: Lineage

    @property
    def write_back(self) -> WriteBack:
        return WriteBack(self.awaited, self.written_back)

    @property
    def frontier(self) -> Frontier:
        return Frontier(
            self.position,
            self.applied,
            self.seen,
            self.read,
            self.delivered_up_to_ms,
            self.operation,
            self.overruns,
            self.holds,
            self.carried,
            self.newest_ms,
        )

    def beginning(self, partitions: Iterable[int]) -> Reached:
        """Where an empty view of these partitions begins, and as if it had applied how much: where the place
        is above what was seen, there are but markers between them.
        """
        carried = {partition: self.carried.get(partition, 0) for partition in partitions}
        seen = {partition: min(at, self.seen.get(partition, 0)) for partition, at in carried.items()}
        return Reached(seen, carried)

    @property
    def record_key(self) -> bytes:
        """The lane; the first checkpoint of an epoch has a key of its own and so outlives compaction."""
        return b"%d/%d" % (self.lane, self.epoch) if self.first else b"%d" % self.lane

    @property
    def order(self) -> tuple[int, int]:
        """Later checkpoints of a lane compare greater."""
        return self.epoch, self.number

    def encode(self) -> bytes:
        return _encode(self)

    @classmethod
    def decode(cls, raw: bytes | str) -> Self:
        """Raises `UnreadableCheckpoint`."""
        try:
            of = _format(raw).format
            if of not in FORMATS:
                reads = " and ".join(map(str, sorted(FORMATS)))
                said = f"checkpoint has format {of}; this version reads {reads}"
                raise NewerCheckpoint(f"{said}: upgrade it") if of > FORMAT else UnreadableCheckpoint(said)
            return _decode(raw)  # type: ignore[return-value]
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise UnreadableCheckpoint(f"this is no checkpoint: {error}") from error


def format_of(carried: Vector) -> int:
    """The format of a checkpoint."""
    return FORMAT if carried else FORMAT_UNCARRIED


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Checkpoint).decode


class _CheckpointFormat(msgspec.Struct, frozen=True):
    """What every version says of a checkpoint."""

    format: int


_format = msgspec.json.Decoder(_CheckpointFormat).decode
