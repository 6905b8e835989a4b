"""The checkpoint in its two places, the topic and the znode, and what a difference between them means."""

from __future__ import annotations

from dataclasses import dataclass

from delayline.names import ClusterNames
from node.checkpoints import read_last
from node.config import ConnectionConfig
from ops.cluster import mirrored_checkpoint
from ops.errors import NotFoundError
from ops.kafka import KafkaAdmin
from ops.zookeeper import registry
from store.checkpoint import Checkpoint, UnreadableCheckpoint


@dataclass(frozen=True, slots=True)
class CheckpointPair:
    """A lane's last checkpoint in the topic and its mirror in the znode; None where there is none."""

    lane: int
    topic_exists: bool
    in_topic: Checkpoint | None
    in_znode: Checkpoint | None

    @property
    def alarming(self) -> bool:
        """Whether the two differ in a way that a healthy cluster never shows."""
        if self.in_topic is None:
            return self.in_znode is not None or not self.topic_exists
        return self.in_znode is not None and self.in_znode.order > self.in_topic.order

    @property
    def meaning(self) -> str:
        """What the pair says about the cluster, and what to do if that is bad."""
        if not self.topic_exists:
            return (
                "the checkpoint topic is missing: run 'delayline topics create', then the next master resumes"
                " from the znode; what was delivered after that may be delivered again"
            )
        if self.in_topic is None:
            return _TOPIC_EMPTY if self.in_znode else "no checkpoint yet: no master has committed one"
        if self.in_znode is None:
            return "no mirror yet: the topic decides"
        if self.alarming:
            return (
                "the znode is ahead, so the topic has lost records: it decides all the same, and what was"
                " delivered after it may be delivered again"
            )
        if self.in_znode.order == self.in_topic.order:
            return "both are the same"
        return "the znode is behind, as it may: the master mirrors at most 5 checkpoints a second"


_TOPIC_EMPTY = (
    "the checkpoint topic is empty: the next master resumes from the znode, and what was delivered after that"
    " may be delivered again"
)


def show(config: ConnectionConfig, lane: int | None = None) -> list[CheckpointPair]:
    """The checkpoints of one lane, or of all.

    Raises ZnodeMissing if the cluster was never created, NotFoundError if it has no such lane, and what says
    that Kafka or ZooKeeper does not answer.
    """
    topic = ClusterNames(config.cluster).checkpoint
    with registry(config) as znodes:
        lanes = znodes.settings().lanes
        if lane is not None and not 0 <= lane < lanes:
            raise NotFoundError(
                f"cluster {config.cluster} has no lane {lane}: it has"
                f" {'lane 0 alone' if lanes == 1 else f'lanes 0 to {lanes - 1}'}"
            )
        wanted = range(lanes) if lane is None else [lane]
        # The mirror first: a commit between the two reads then never makes it look ahead of the topic.
        mirrors = {number: mirrored_checkpoint(znodes, number) for number in wanted}
    exists = KafkaAdmin(config).exists(topic)
    return [
        CheckpointPair(number, exists, _in_topic(config, topic, number) if exists else None, mirror)
        for number, mirror in mirrors.items()
    ]


def _in_topic(config: ConnectionConfig, topic: str, lane: int) -> Checkpoint | None:
    try:
        return read_last(config.client_config() | {"log_level": 0}, topic, lane)
    except UnreadableCheckpoint as error:
        raise UnreadableCheckpoint(f"{topic}/{lane}: {error}") from error
