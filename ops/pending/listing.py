"""Which rows wait, as the nodes say: their places alone, some twenty bytes for each."""

from __future__ import annotations

import heapq
import time
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import Final, NamedTuple

from delayline.names import ClusterNames, parse_source
from node.config import ConnectionConfig
from node.core.ports import Unanswered
from node.http.answers import AnsweringNode, Listed, Message
from node.kafka.reader import TopicReader
from ops.clients.kafka import KafkaAdmin
from ops.clients.nodes import LaneNodes, lanes_of
from ops.errors import UnavailableError

_PAGE: Final = 1_000
_SORTED: Final = 1 << 18  # offsets at once
_PATIENCE_S: Final = 30.0
_HIDDEN_PATIENCE_S: Final = 10.0
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
    reschedules, which end by themselves; `hidden`: offsets below the ends that nobody can read yet, for they
    are behind somebody's open transaction; `ends`: of the ends asked for what is not behind it.
    """

    rows: Rows = field(default_factory=Rows)
    kinds: Counter[Kind] = field(default_factory=Counter)
    first_due_ms: dict[Kind, int] = field(default_factory=dict)
    messages: int = 0
    later: int = 0
    others: int = 0
    hidden: int = 0
    ends: dict[int, int] = field(default_factory=dict)

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


def hidden_words(offsets: int) -> str:
    """What is to be said of what is hidden."""
    return (
        f"{offsets} offsets of the buffer are behind somebody's open transaction: what they have nobody can"
        " read yet; run it again for that"
    )


def list_pending(config: ConnectionConfig, ends: Mapping[int, int]) -> Listing:
    """All messages that wait and were asked for below `ends`, as nodes know it that have read all that can be
    read now.

    Raises UnavailableError.
    """
    listing = Listing()
    settings, lanes = lanes_of(config, None)
    stable = _stable_ends(config)
    listing.ends = {partition: min(end, stable.get(partition, 0)) for partition, end in ends.items()}
    listing.hidden = sum(ends.values()) - sum(listing.ends.values())
    for lane in lanes:
        of_lane = {one: end for one, end in stable.items() if settings.lane_of(one) == lane.lane}
        for message in _messages(lane, of_lane):
            listing.note(message, ends)
    listing.rows.sort()
    return listing


def _stable_ends(config: ConnectionConfig) -> dict[int, int]:
    """Up to where the buffer can be read. Where a transaction hides the end that it has now, that is waited
    for: the service's own are short. Somebody else's may stay open.

    Raises UnavailableError.
    """
    buffer = ClusterNames(config.cluster).buffer
    ends = KafkaAdmin(config).ends(buffer)
    until_s = time.monotonic() + _HIDDEN_PATIENCE_S
    with closing(TopicReader(config.client_config(), buffer)) as reader:
        try:
            while True:
                stable = {partition: reader.bounds(partition)[1] for partition in ends}
                if time.monotonic() > until_s or all(stable[one] >= end for one, end in ends.items()):
                    return stable
                time.sleep(_AGAIN_S)
        except Unanswered as error:
            raise UnavailableError(f"{error}: run it again") from error


def _messages(lane: LaneNodes, ends: Mapping[int, int]) -> Iterator[Message]:
    after: str | None = None
    while True:
        page = page_of(lane, ends, after)
        yield from page.messages
        after = page.next
        if after is None:
            return


def page_of(lane: LaneNodes, ends: Mapping[int, int], after: str | None) -> Listed:
    """A page, of a node that has read the lane's partitions to these ends: what it lacks would be missing, or
    come once more. Another one may answer each time.

    Raises UnavailableError where none has read so much after a while.
    """
    until_s = time.monotonic() + _PATIENCE_S
    while True:
        page = lane.ask(Listed, "/messages", {"limit": _PAGE, "after": after})
        if _has_read(page.node, ends):
            return page
        behind = page.node.node
        if time.monotonic() > until_s:
            raise UnavailableError(
                f"{behind} has not read the buffer to its end within {_PATIENCE_S:g} s, so it does not know"
                " all that waits: see 'delayline cluster status', and run it again"
            )
        lane.nodes = sorted(lane.nodes, key=lambda one: one.node == behind)  # another one first
        time.sleep(_AGAIN_S)


def _has_read(node: AnsweringNode, ends: Mapping[int, int]) -> bool:
    if node.read is None:  # an older version
        return node.lag == 0
    return all(node.read.get(partition, 0) >= end for partition, end in ends.items())
