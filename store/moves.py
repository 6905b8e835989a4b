"""What the reschedules of a selection mean (rule 3, docs/design.md).

A reschedule is a row that is due at once. Of those of one id in one selection the last word counts; it
moves the id's row, unless that is done already. Where the row has been moved or followed by what cannot be
read yet, nobody can say: then the reschedule is deferred, behind that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec

from delayline.names import parse_source
from delayline.outcome_kinds import OutcomeKind
from store import keys
from store.checkpoint import Frontier, WriteBack
from store.keys import RecordId, RowKey
from store.kv import KeyValue
from store.rows import IndexEntry, RescheduleRow, decode_index, decode_offset, message_target

MOST_DEFERRED: Final = 2
"""So often is one deferred for a row that is done: for a chain that goes on meanwhile it might be for ever.
"""

RESCHEDULED: Final = OutcomeKind.RESCHEDULED
DEFERRED: Final = OutcomeKind.DEFERRED
TOO_LATE: Final = OutcomeKind.TOO_LATE
OVERTAKEN: Final = OutcomeKind.OVERTAKEN
UNKNOWN: Final = OutcomeKind.UNKNOWN
CONCERNED: Final = frozenset((RESCHEDULED, TOO_LATE))
"""The outcomes that are about the message that the index entry points to."""
_CARRIED_OUT: Final = frozenset((RESCHEDULED, DEFERRED))
_NO_CONCERN: Final = frozenset((OVERTAKEN, UNKNOWN))


class Resolution(msgspec.Struct, frozen=True, gc=False):
    """What a selected reschedule comes to: the index entry that it concerns, and the row to move.

    `outcome`: `rescheduled`; `deferred`, it is written back as it is; `too-late`; `overtaken`, a later
    request of the id stands; `unknown`. `expire_at_ms`: what it says of that, or what those say that it has
    overtaken in this selection. `last_request`: see `last_request_of`. `again`: it is deferred for a row that
    is done.
    """

    outcome: OutcomeKind
    entry: IndexEntry | None
    raw: bytes | None
    last_request: int
    expire_at_ms: int | None
    again: bool = False


def last_request_of(row: RescheduleRow, offset: int) -> int:
    """The offset of the user's own reschedule, which may have been deferred since."""
    return offset if row.root is None else parse_source(row.root)[2]


def is_overtaken(kv: KeyValue, partition: int, id_: str, last_request: int) -> bool:
    """Whether a cancel of the id, or a later request of it, stands behind that offset."""
    raw_end = kv.get(keys.tombstone(partition, id_))
    if raw_end is not None and decode_offset(raw_end) > last_request:
        return True
    raw_entry = kv.get(keys.index(partition, id_))
    return raw_entry is not None and decode_index(raw_entry).last_request > last_request


def _last_word_first(
    reschedules: Iterable[tuple[RowKey, RescheduleRow]],
) -> list[tuple[RowKey, RescheduleRow]]:
    return sorted(reschedules, key=lambda one: last_request_of(one[1], one[0][2]), reverse=True)


def _may_be_deferred(row: RescheduleRow) -> bool:
    """Whether it may be deferred once more for a row that is done."""
    return row.attempt <= MOST_DEFERRED


class Named:
    """The rows that the reschedules of one selection name, each read once, however many name it."""

    def __init__(self, kv: KeyValue) -> None:
        self._kv = kv
        self._found: dict[tuple[int, str], tuple[IndexEntry | None, bytes | None]] = {}

    def find(self, partition: int, id_: str) -> tuple[IndexEntry | None, bytes | None]:
        """The id's index entry and its row, as far as they are there."""
        name = partition, id_
        if name not in self._found:
            raw_entry = self._kv.get(keys.index(partition, id_))
            entry = None if raw_entry is None else decode_index(raw_entry)
            raw = None if entry is None else self._kv.get(keys.row(entry.due_ms, partition, entry.offset))
            self._found[name] = entry, raw
        return self._found[name]

    def bytes_of(self, partition: int, id_: str) -> int:
        """How many more bytes a transaction carries if it moves an id's row: none where it was named."""
        if (partition, id_) in self._found:
            return 0
        _, moved = self.find(partition, id_)
        return 0 if moved is None else len(moved)


class Moving:
    """The reschedules of one selection."""

    def __init__(
        self, kv: KeyValue, named: Named, tip: Frontier, frontier: Frontier, write_back: WriteBack, most: int
    ) -> None:
        """`tip`: the frontier of the selection before; `frontier`: this one's; `most`: so many moved rows of
        a partition can be listed.
        """
        awaited = write_back.awaited
        self.resolutions: dict[RowKey, Resolution] = {}
        self._kv = kv
        self._named = named
        self._tip = tip
        self._frontier = frontier
        self._awaited = awaited
        self._most = most
        self._moved: set[RecordId] = set(awaited.moved)
        self._counts: dict[int, int] = {}  # of moved rows, by partition

    def resolve(
        self, reschedules: Sequence[tuple[RowKey, RescheduleRow]], poison: AbstractSet[RowKey]
    ) -> None:
        """Decides them all: within an id the last word first, which alone is carried out. Those that are
        poison are to be dead letters; what they have overtaken is no less so, or each would be refused in
        its turn.
        """
        last_requests: dict[tuple[int, str], RowKey] = {}  # by partition and id
        for key, row in _last_word_first(reschedules):
            name = key[1], row.id
            last = last_requests.get(name)
            if key in poison:
                last_requests.setdefault(name, key)
                continue
            found = self._resolve(key, row, is_last=last is None)
            if last is None:
                if found.outcome not in _NO_CONCERN:
                    last_requests[name] = key
            elif found.outcome in _CARRIED_OUT:
                self._pass_on_expiry(found, last)
                found = msgspec.structs.replace(found, outcome=OVERTAKEN, raw=None)
            self.resolutions[key] = found

    def moved_of(self, rows: Sequence[tuple[RowKey, bytes]]) -> AbstractSet[RowKey]:
        """Those of the rows that are not where they are to be: moved before, or by this selection."""
        return frozenset(key for key, _ in rows if key[1:] in self._moved) if self._moved else frozenset()

    def _pass_on_expiry(self, overtaken: Resolution, last: RowKey) -> None:
        """As if one had been carried out after the other: what the last word does not say stays."""
        if last in self.resolutions and self.resolutions[last].expire_at_ms is None:
            expire_at_ms = overtaken.expire_at_ms
            self.resolutions[last] = msgspec.structs.replace(
                self.resolutions[last], expire_at_ms=expire_at_ms
            )

    def _resolve(self, key: RowKey, row: RescheduleRow, *, is_last: bool) -> Resolution:
        """As if it were alone; but the row is moved only by the last word.

        A row that has gone was done, or the index entry would have gone with it.
        """
        _, partition, offset = key
        last_request, raw, again = last_request_of(row, offset), None, False
        entry, stored = self._named.find(partition, row.id)
        if entry is None:
            outcome = self._without_entry(partition, row, last_request)
        elif entry.last_request > last_request:
            outcome = OVERTAKEN
        elif self._may_be_followed(partition, entry, stored):
            again = _may_be_deferred(row)
            outcome = DEFERRED if again else TOO_LATE
        else:
            outcome = self._against(partition, entry, stored, offset, last_request)
        if outcome == RESCHEDULED:
            assert entry is not None, "it has been looked at"
            raw = stored
            if raw is None:
                outcome = TOO_LATE
            elif is_last:
                self._moved.add((partition, entry.offset))
                self._counts[partition] = self._count(partition) + 1
        return Resolution(outcome, entry, raw, last_request, row.expire_at_ms, again)

    def _without_entry(self, partition: int, row: RescheduleRow, last_request: int) -> OutcomeKind:
        overtaken = row.overtaken or is_overtaken(self._kv, partition, row.id, last_request)
        return OVERTAKEN if overtaken else UNKNOWN

    def _may_be_followed(self, partition: int, entry: IndexEntry, stored: bytes | None) -> bool:
        """Whether the id's row is done, and something may follow that cannot be read yet."""
        successor = self._awaited.successor(partition, entry.offset)
        if successor is not None:
            return successor.moved_by is None
        hides = self._awaited.may_hide(partition, self._frontier.seen)
        return hides and self._done(partition, entry, stored)

    def _against(
        self, partition: int, entry: IndexEntry, stored: bytes | None, offset: int, last_request: int
    ) -> OutcomeKind:
        """What becomes of it otherwise, by where the id's row stands.

        The row is too late to move if it is done under the previous transaction's frontier, as it is to
        cancel: one that is in this selection is moved.
        """
        successor = self._awaited.successor(partition, entry.offset)
        if successor is not None and successor.moved_by is not None:
            return OVERTAKEN if successor.moved_by > last_request else DEFERRED
        if self._done(partition, entry, stored):
            return TOO_LATE
        # What it writes back has to stand behind what its row follows from, or would be dropped (rule 4).
        if entry.origin > offset or self._count(partition) >= self._most:
            return DEFERRED
        return RESCHEDULED

    def _done(self, partition: int, entry: IndexEntry, stored: bytes | None) -> bool:
        target = entry.tag if stored is None or not self._tip.holds else message_target(stored)
        return self._tip.done((entry.due_ms, partition, entry.offset), target)

    def _count(self, partition: int) -> int:
        """How many moved rows of a partition are listed, this selection's included."""
        if partition not in self._counts:
            self._counts[partition] = len(self._awaited.moved_offsets(partition, self._frontier.seen))
        return self._counts[partition]
