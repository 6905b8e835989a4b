"""The checkpoint in its two places, the topic and the znode, what a difference between them means, and what
operators have asked for.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from delayline.names import ClusterNames
from delayline.signing import Keyring
from election.errors import Malformed
from election.operators import PauseState
from election.registry import Registry
from node.config import ConnectionConfig
from node.kafka.checkpoints import read_last
from ops.clients.kafka import KafkaAdmin
from ops.clients.zookeeper import mirrored_checkpoint, registry, required_keys
from ops.errors import NotFoundError
from store.checkpoint import Checkpoint, UnreadableCheckpoint
from store.operations import OperatorRequest

MARKER_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class CheckpointPair:
    """A lane's last checkpoint in the topic and its mirror in the znode; None where there is none.

    `waits`: the operator's request that no leader has taken up yet.
    """

    lane: int
    topic_exists: bool
    in_topic: Checkpoint | None
    in_znode: Checkpoint | None
    waits: OperatorRequest | None = None

    @property
    def alarming(self) -> bool:
        """Whether the two differ in a way that a healthy cluster never shows."""
        if self.in_topic is None:
            return self.in_znode is not None or not self.topic_exists
        return self.in_znode is not None and self.in_znode.order > self.in_topic.order

    @property
    def _of_one_topic(self) -> bool:
        return len({one.lineage.topic_id for one in (self.in_topic, self.in_znode) if one is not None}) == 1

    @property
    def meaning(self) -> str:
        """What the pair says about the cluster, and what to do if that is bad."""
        if not self.topic_exists:
            return (
                "the checkpoint topic is missing: run 'delayline topics create', then the next leader goes on"
                " from the znode; what was delivered after that may be delivered again"
            )
        if self.in_topic is None:
            return _TOPIC_EMPTY if self.in_znode else "no checkpoint yet: no leader has committed one"
        if self.in_znode is None:
            return "no mirror yet: the topic decides"
        if self.alarming:
            return _TOPIC_BEHIND if self._of_one_topic else _OTHER_TOPIC
        if self.in_znode.order == self.in_topic.order:
            return "both are the same"
        return "the znode is behind, as it may: the leader mirrors at most 5 checkpoints a second"


_TOPIC_BEHIND = (
    "the znode is ahead, so the topic has lost its end: the next leader goes on from the znode; what was"
    " delivered after that, and no node knows of, may be delivered again"
)
_OTHER_TOPIC = (
    "the znode is ahead, of a topic that was lost since: the topic decides, and what"
    " was delivered after it may be delivered again"
)
_TOPIC_EMPTY = (
    "the checkpoint topic is empty: the next leader goes on from the znode, and what was delivered after that"
    " may be delivered again"
)


@dataclass(frozen=True, slots=True)
class ShownCheckpoints:
    """The lanes' checkpoints, and what is paused."""

    pairs: Sequence[CheckpointPair]
    pauses: PauseState


def show(config: ConnectionConfig, lane: int | None = None) -> ShownCheckpoints:
    """The checkpoints of one lane, or of all.

    Raises ZnodeMissing if the cluster was never created, NotFoundError if it has no such lane, and what says
    that Kafka or ZooKeeper does not answer.
    """
    topic = ClusterNames(config.cluster).checkpoint
    with registry(config) as znodes:
        wanted = wanted_lanes(config, znodes, lane)
        pauses, _ = znodes.pauses()
        # The mirror first: a commit between the two reads then never makes it look ahead of the topic.
        mirrors = {number: mirrored_checkpoint(znodes, number) for number in wanted}
        asked = {number: last_request(znodes, number) for number in wanted}
        ring = required_keys(znodes)
    exists = KafkaAdmin(config).exists(topic)
    found = {
        number: _in_topic(config, ring, topic, number, mirror) if exists else None
        for number, mirror in mirrors.items()
    }
    return ShownCheckpoints(
        [
            CheckpointPair(
                number, exists, found[number], mirror, _waiting(asked[number], found[number], mirror)
            )
            for number, mirror in mirrors.items()
        ],
        pauses,
    )


def wanted_lanes(config: ConnectionConfig, znodes: Registry, lane: int | None) -> Sequence[int]:
    """One lane, or all. Raises ZnodeMissing if there is no such cluster, NotFoundError if no such lane."""
    lanes = znodes.settings().lanes
    if lane is not None and not 0 <= lane < lanes:
        raise NotFoundError(
            f"cluster {config.cluster} has no lane {lane}: it has"
            f" {'lane 0 alone' if lanes == 1 else f'lanes 0 to {lanes - 1}'}"
        )
    return range(lanes) if lane is None else [lane]


def last_request(znodes: Registry, lane: int) -> OperatorRequest | None:
    """The last request to the lane's leader, taken up or not. Raises Malformed."""
    data = znodes.asked(lane)
    try:
        return None if data is None else _decode_request(data)
    except msgspec.MsgspecError as error:
        raise Malformed(f"the request to the leader of lane {lane} cannot be read: {error}") from error


def _waiting(asked: OperatorRequest | None, *known: Checkpoint | None) -> OperatorRequest | None:
    taken_up = max((one.operation.number for one in known if one is not None), default=0)
    return asked if asked is not None and asked.number > taken_up else None


_decode_request = msgspec.json.Decoder(OperatorRequest).decode


def _in_topic(
    config: ConnectionConfig, ring: Keyring, topic: str, lane: int, mirror: Checkpoint | None
) -> Checkpoint | None:
    """A commit is known, and mirrored, before its marker lets others read it: where the mirror is ahead, the
    topic is looked at again for a while.
    """
    until_s = time.monotonic() + MARKER_S
    while True:
        try:
            found = read_last(config.client_config() | {"log_level": 0}, topic, lane, ring)
        except UnreadableCheckpoint as error:
            raise UnreadableCheckpoint(f"{topic}/{lane}: {error}") from error
        behind = mirror is not None and (found is None or found.order < mirror.order)
        if not behind or time.monotonic() > until_s:
            return found
