"""Poison (rule 10): what the brokers refuse is found by ever shorter selections, and remembered."""

from __future__ import annotations

import msgspec

from delayline.rejects import Code
from node.core.ports import RecordRefused
from store.keys import RowKey
from store.selection import Selection


class Poisoned(msgspec.Struct, frozen=True):
    """Why a row's record was refused: the dead-letter code and detail. `letter_too`: its dead letter has then
    been refused as well. `is_of_what_follows`: it was only what would be written back; the row may go out.
    """

    code: Code
    detail: str
    letter_too: bool = False
    is_of_what_follows: bool = False


Poison = dict[RowKey, Poisoned]
"""Rows of which something was refused."""


class Isolation:
    """One leadership's poison, and how much it may select until the rest of it is found.

    `rows`: what is known to be poison. `most`: so many rows are selected at most.
    """

    def __init__(self, most: int) -> None:
        self.rows: Poison = {}
        self.most = most
        self._all = most

    def isolate(self, error: RecordRefused, sent: Selection | None) -> bool:
        """What was refused is remembered; if that is not known, a shorter prefix is tried next. False if that
        brings nothing new: what is refused is no row's own record.
        """
        found = error.codes
        if not found and sent is not None:
            rows = [key for key, _ in sent.rows]
            if len(rows) > 1:
                self.shorten(sent)
                return True
            found = dict.fromkeys(rows, (error.code, str(error)))
        condemned = [self._mark_poison(key, *why) for key, why in found.items()]
        return any(condemned)

    def _mark_poison(self, key: RowKey, code: Code, detail: str) -> bool:
        """Remembers a row that was refused; False if its barest dead letter was refused already."""
        known = self.rows.get(key)
        if known is not None and known.is_of_what_follows:
            known = None  # the brokers have not refused it before
        if known is not None and known.letter_too:
            return False
        first = known or Poisoned(code, detail)
        self.rows[key] = msgspec.structs.replace(first, letter_too=known is not None)
        return True

    def give_up(self, poison: Poison, chosen: Selection) -> None:
        """What a plan has found that the buffer would refuse is remembered. Half as much is selected next, so
        that what comes meanwhile cannot go on so.
        """
        self.rows |= poison
        self.shorten(chosen)

    def shorten(self, chosen: Selection) -> None:
        """Half as much is selected next."""
        self.most = max(1, len(chosen.rows) // 2)

    def note_committed(self, chosen: Selection) -> None:
        """What is committed is poison no more, and twice as much may be selected next."""
        self.most = min(self._all, self.most * 2)
        for key, _ in chosen.rows if self.rows else ():
            self.rows.pop(key, None)
