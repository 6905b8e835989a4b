"""Which rows wait, as the nodes say: their places alone, some twenty bytes for each."""

from __future__ import annotations

import heapq
import time
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import Final, NamedTuple

from delayline.names import parse_source
from node.config import ConnectionConfig
from node.http.answers import Listed, Message
from ops.clients.nodes import LaneNodes, lanes_of
from ops.errors import UnavailableError

_PAGE: Final = 1_000
_SORTED: Final = 1 << 18  # offsets at once
_PATIENCE_S: Final = 30.0
_LAG_PATIENCE_S: Final = 10.0
_AGAIN_S: Final = 0.1


class Kind(NamedTuple):
    """What is counted together."""

    state: str
    target: str


class Rows:
    """Rows that are wanted, by partition and offset, and which of them were met."""

    def __init__(self) -> None:
        self.left = 0
        self._offsets: dict[int, array[int]] = {}
        self._met: dict[int, bytearray] = {}
        self._sorted = False

    def add(self, partition: int, offset: int) -> None:
        """Wants one more."""
        self._offsets.setdefault(partition, array("q")).append(offset)
        self._sorted = False

    def sort(self) -> None:
        """To be called once all were added: it counts them, each once."""
        self._offsets = {one: _sorted(offsets) for one, offsets in self._offsets.items()}
        self._met = {one: bytearray(len(offsets)) for one, offsets in self._offsets.items()}
        self.left = sum(map(len, self._offsets.values()))
        self._sorted = True

    def meet(self, partition: int, offset: int) -> bool:
        """Whether that row is wanted, and was not met before."""
        assert self._sorted, "all were added"
        offsets = self._offsets.get(partition)
        if offsets is None:
            return False
        index = bisect_left(offsets, offset)
        if index == len(offsets) or offsets[index] != offset or self._met[partition][index]:
            return False
        self._met[partition][index] = 1
        self.left -= 1
        return True

    def first_left(self, most: int) -> list[tuple[int, int]]:
        """Some that were not met."""
        left = (
            (partition, offset)
            for partition, offsets in sorted(self._offsets.items())
            for offset, met in zip(offsets, self._met[partition], strict=True)
            if not met
        )
        return list(islice(left, most))


def _sorted(offsets: array[int]) -> array[int]:
    """In order, each once. A list of all would take several times as much memory."""
    parts = (offsets[begin : begin + _SORTED] for begin in range(0, len(offsets), _SORTED))
    ordered = heapq.merge(*(array("q", sorted(part)) for part in parts))
    return array("q", (offset for offset, _ in groupby(ordered)))


@dataclass(slots=True)
class Listing:
    """What waits. `later`: messages whose request is at or behind the ends asked for; `others`: rejects and
    reschedules, which end by themselves.
    """

    rows: Rows = field(default_factory=Rows)
    kinds: Counter[Kind] = field(default_factory=Counter)
    first_due_ms: dict[Kind, int] = field(default_factory=dict)
    messages: int = 0
    later: int = 0
    others: int = 0

    def note(self, message: Message, ends: Mapping[int, int]) -> None:
        """Takes one row in."""
        if message.op != "schedule":
            self.others += 1
            return
        assert message.source is not None, "what is listed is a row"
        assert message.root is not None, "a message has a root"
        _, partition, offset = parse_source(message.source)
        _, _, root = parse_source(message.root)
        if root >= ends.get(partition, 0):
            self.later += 1
            return
        kind = Kind(message.state, message.target_topic or "")
        due_ms = message.due_ms or 0
        self.kinds[kind] += 1
        self.first_due_ms[kind] = min(due_ms, self.first_due_ms.get(kind, due_ms))
        self.messages += 1
        self.rows.add(partition, offset)


def list_pending(
    config: ConnectionConfig, ends: Mapping[int, int], applied: Mapping[int, int] | None = None
) -> Listing:
    """All messages that wait and were asked for below `ends`. `applied`: how far the node that answers has to
    be; None: as far as the log is when it is asked.

    Raises UnavailableError.
    """
    listing = Listing()
    _, lanes = lanes_of(config, None)
    for lane in lanes:
        _wait_for(lane, applied)
        after: str | None = None
        while True:
            page = lane.ask(Listed, "/messages", {"limit": _PAGE, "after": after})
            for message in page.messages:
                listing.note(message, ends)
            after = page.next
            if after is None:
                break
    listing.rows.sort()
    return listing


def _wait_for(lane: LaneNodes, applied: Mapping[int, int] | None) -> None:
    """Until the node that answers has read so much: what it lacks would be missing, or come once more."""
    patience_s = _LAG_PATIENCE_S if applied is None else _PATIENCE_S
    until_s = time.monotonic() + patience_s
    while True:
        node = lane.ask(Listed, "/messages", {"limit": 1}).node
        if applied is None:
            is_there = node.lag == 0
        else:
            is_there = all(node.applied[one] >= applied.get(one, 0) for one in node.applied)
        if is_there:
            return
        if time.monotonic() > until_s:
            if applied is None:
                return  # the log goes on all the time: what is missing now comes in the next round
            raise UnavailableError(
                f"{node.node} has not read the cancels within {patience_s:g} s: see 'delayline cluster"
                " status', and run it again"
            )
        time.sleep(_AGAIN_S)
