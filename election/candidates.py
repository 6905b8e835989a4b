"""The queue for a lane's leadership: whose turn it is, told from the znodes' names alone.

A candidacy is an ephemeral sequential znode called `<guid>-<sequence>`. ZooKeeper counts the sequence up, the
lowest is leader. The GUID is drawn anew for every candidacy: the answer to `create` can get lost while the
znode is there, and only by the GUID does the candidate know it again (as ZooKeeper's lock recipe advises).
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from election.decoding import UNDECODABLE
from election.znodes import can_name_node

MOST_CANDIDACIES: Final = 64
"""Of a lane in which somebody is preferred: whoever leads reads all of them, again and again."""

_NAME = re.compile(r"([0-9a-f]{32})-(-?[0-9]{9,10})", re.ASCII)


class Candidate(msgspec.Struct, frozen=True):
    """What a candidacy's znode says: its node, where its peer port is, and when it was made (epoch time)."""

    node: str
    host: str
    peer_port: Annotated[int, msgspec.Meta(ge=0, le=65_535)]
    at_ms: int

    def encode(self) -> bytes:
        """As JSON."""
        return msgspec.json.encode(self)

    @staticmethod
    def decode(data: bytes) -> Candidate:
        """Read `encode`'s bytes; UNREADABLE if they are something else: it is in the queue all the same."""
        try:
            return msgspec.json.decode(data, type=Candidate)
        except UNDECODABLE:
            return UNREADABLE


UNREADABLE = Candidate("?", "", 0, 0)


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """Where one candidate stands in the queue.

    `mine` is its znode (None: not queued), `ahead` are those before it, lowest first, `surplus` are further
    znodes of the same candidacy, left by a `create` that was carried out twice.
    """

    mine: str | None
    ahead: tuple[str, ...]
    surplus: tuple[str, ...] = ()

    @property
    def leads(self) -> bool:
        """Whether it is this candidate's turn."""
        return self.mine is not None and not self.ahead


def new_guid() -> str:
    """The name of one candidacy: 32 hexadecimal digits."""
    return uuid.uuid4().hex


def guid_of(name: str) -> str:
    """The GUID in a znode's name; ValueError if it is no candidacy's."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"{name!r} is no candidacy: its name must be <guid>-<sequence>")
    return match[1]


def in_order(children: Iterable[str]) -> list[str]:
    """The candidacies among `children`, lowest first; what has another kind of name is not in the queue."""
    return sorted(filter(_NAME.fullmatch, children), key=_sequence)


def queue_position_of(guid: str | None, children: Iterable[str]) -> QueuePosition:
    """Where the candidacy `guid` stands; without one (None) everybody is ahead."""
    queue = in_order(children)
    own = [name for name in queue if guid is not None and guid_of(name) == guid]
    if not own:
        return QueuePosition(None, tuple(queue))
    return QueuePosition(own[0], tuple(queue[: queue.index(own[0])]), tuple(own[1:]))


def preferred_of(nodes: Iterable[str], lane: int, lanes: int) -> str | None:
    """Which of a lane's candidates is to lead it, if all are well; None if there are none, or more than
    `MOST_CANDIDACIES`, and in a cluster of one lane, where none is better than another. `nodes`: one for each
    candidacy; what is no node's id stands there for nobody.

    It follows from the candidates alone, so that all who know them agree. Where the same machines run every
    lane, under ids that sort alike in each, the lanes go round the machines.
    """
    stand = list(nodes)
    if lanes == 1 or len(stand) > MOST_CANDIDACIES:
        return None
    ranked = sorted({node for node in stand if can_name_node(node)})
    return ranked[lane % len(ranked)] if ranked else None


def _sequence(name: str) -> int:
    # After 2^31 - 1 ZooKeeper counts on from -2^31; for that a lane would need a candidacy a second for 68
    # years.
    return int(name[33:])
