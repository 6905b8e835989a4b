"""Which cancels and replaces the next transaction answers, and how (rule 2, docs/design.md)."""

from __future__ import annotations

import msgspec

from store import keys
from store.checkpoint import Frontier, Vector, WriteBack
from store.keys import RecordId
from store.kv import KeyValue
from store.rows import PendingAnswer, decode_pending_answer


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What became of a cancel or replace. `at`: where that is."""

    at: RecordId
    pending: PendingAnswer
    effective: bool


class Answering:
    """The answers that wait, up to `most`. `undecided`: one of them is not known yet, and not before so much
    is applied as `waits_for` says.
    """

    def __init__(self, tip: Frontier, write_back: WriteBack, most: int) -> None:
        self.answers: list[Answer] = []
        self.undecided = False
        self.waits_for: Vector = {}
        self._tip = tip
        self._awaited = write_back.awaited
        self._most = most
        self._known = write_back.written_back is not None

    def take(self, kv: KeyValue, applied: Vector) -> Vector | None:
        """Takes them. If not all can be given, the seen vector that the first of them reach; else None."""
        seen: Vector = {}
        for partition in sorted(applied):
            begin = keys.pending_answer(partition, self._tip.seen.get(partition, 0))
            for raw_key, raw in kv.scan(begin, keys.pending_answer(partition, applied[partition])):
                at = keys.record_id(raw_key)
                pending = decode_pending_answer(raw)
                effective = self._is_effective(partition, pending)
                undecided = not effective and self._may_be_followed(partition, pending, applied)
                if undecided:
                    self.undecided = True
                if undecided or len(self.answers) == self._most:
                    seen[partition] = at[1]
                    break
                self.answers.append(Answer(at, pending, effective=effective))
        return {**applied, **seen} if seen else None

    def _is_effective(self, partition: int, pending: PendingAnswer) -> bool:
        """Not if the removed row is done under the previous transaction's checkpoint (rule 2), and nothing
        follows it: what does, stands behind the pending answer, which will therefore have ended it.
        """
        removed = pending.removed
        if pending.effective or not pending.ends:
            return pending.effective
        if removed is not None and not self._tip.done(
            (removed.due_ms, partition, removed.offset), removed.tag
        ):
            return True
        if pending.id is not None:
            return removed is not None and self._awaited.successor(partition, removed.offset) is not None
        assert pending.source is not None, "it names one of the two"
        return _is_first(pending) and self._awaited.follows_source(partition, pending.source)

    def _may_be_followed(self, partition: int, pending: PendingAnswer, applied: Vector) -> bool:
        """Whether something may have been written back after what it removed, that it will have ended: it is
        not listed, or, without an id, of the transaction that is being sent.
        """
        if not pending.ends or not _is_first(pending):
            return False
        if self._awaited.may_hide(partition, applied):
            self.waits_for[partition] = self._awaited.unlisted[partition]
            return True
        return not self._known and pending.id is None


def _is_first(pending: PendingAnswer) -> bool:
    """Whether what follows what was there would be ended by this one: of a source, another cancel may stand
    before it.
    """
    return pending.removed is not None or (pending.id is None and pending.previous < 0)
