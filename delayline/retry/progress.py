"""How far a partition is handled, and whether the process that got so far has died of it.

A message that kills the process is never answered, so that nothing but the process itself can count it. It
counts in the metadata of the group's committed offset, which every commit writes anyway:

    closed     whoever committed it has let go of the partition in good order
    open       a consumer has the partition, or has died with it
    in-hand n  the message at the offset was given to a handler, for the nth time by a process that
               knew of a death before

A consumer that finds the partition closed commits `open` before its first message, and then as seldom as it
likes. One that finds it open or in hand is careful: for as many messages as may have been handled without a
commit it commits `in-hand` before each and the offset after it, so that the next one finds the culprit's
offset and its count. It lets go of the partition with `closed`, or with what it has found, if it is not past
it.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, NamedTuple, Self

MOST_UNCOMMITTED: Final = 1_000
"""The most messages that are handled in a partition without a commit; so many a careful consumer marks."""

_METADATA = re.compile(r"delayline-retry (closed|open|in-hand)(?: ([0-9]{1,9}))?", re.ASCII)


class State(StrEnum):
    """What was last done with the partition."""

    CLOSED = "closed"
    OPEN = "open"
    IN_HAND = "in-hand"


class Mark(NamedTuple):
    """What the metadata of a committed offset says."""

    state: State
    times: int = 0  # in-hand only

    @classmethod
    def parse(cls, metadata: str | None) -> Self:
        """From a commit's metadata; what another program has committed is closed."""
        match = _METADATA.fullmatch(metadata or "")
        return cls(State.CLOSED) if match is None else cls(State(match[1]), int(match[2] or 0))

    @property
    def metadata(self) -> str:
        """As it is committed."""
        return f"delayline-retry {self.state}" + (f" {self.times}" if self.times else "")


CLOSED: Final = Mark(State.CLOSED)
OPEN: Final = Mark(State.OPEN)


class PartitionProgress:
    """One assigned partition. Touched by the polling thread alone.

    Args:
        offset: what the group has committed; negative: nothing.
        found: the metadata of it.
    """

    def __init__(self, offset: int, found: Mark) -> None:
        self.next_offset = offset  # the first message that is not finished
        self.uncommitted = 0
        self._found_at = offset
        self._found = found
        self._careful_left = 0 if found.state is State.CLOSED else MOST_UNCOMMITTED
        self._is_open = False

    def times_in_hand(self, offset: int) -> int:
        """How many processes are known to have died with this message in hand."""
        return self._found.times if offset == self._found_at else 0

    def mark_before(self, offset: int) -> Mark | None:
        """What must be committed, with this offset, before its message is handed over; None: nothing."""
        if self._careful_left:
            return Mark(State.IN_HAND, self.times_in_hand(offset) + 1)
        return None if self._is_open else OPEN

    def marked(self, offset: int) -> None:
        """What `mark_before` said is committed: the message can be handed over."""
        self.next_offset = offset
        self.uncommitted = 0
        self._is_open = True

    def finished(self, offset: int) -> bool:
        """The message is handled, or its answer acknowledged; whether this must be committed at once."""
        self.next_offset = offset + 1
        self._is_open = True
        self.uncommitted += 1
        was_careful = self._careful_left > 0
        self._careful_left -= was_careful
        return was_careful or self.uncommitted >= MOST_UNCOMMITTED

    def committed(self) -> None:
        """`next_offset` is committed."""
        self.uncommitted = 0

    def mark_at_release(self) -> Mark | None:
        """What is committed with `next_offset` when the partition is let go; None: it is as it was found."""
        if not self._is_open:
            return None
        if times := self.times_in_hand(self.next_offset):
            return Mark(State.IN_HAND, times)
        return OPEN if self._careful_left else CLOSED
