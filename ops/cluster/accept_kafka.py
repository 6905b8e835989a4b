"""Which Kafka a cluster is in. It stands beside the settings, so that who has one cluster's ZooKeeper and
another's Kafka is told.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

import msgspec

from delayline.names import ClusterNames
from election.operators import Author, HistoryEntry, KafkaIds
from election.registry import Registry
from election.znodes import Znodes
from node.config import ConnectionConfig
from ops.clients.kafka import KafkaAdmin
from ops.clients.members import members_of
from ops.clients.zookeeper import registry
from ops.errors import ConflictError

Buffer = Literal["the same", "another topic", "missing"]


@dataclass(frozen=True, slots=True)
class KafkaSurvey:
    """The id of the Kafka that the cluster is said to be in, that of the one that answers, and what its
    buffer topic is.
    """

    before: str
    after: str
    buffer: Buffer


def require_same(znodes: Registry, admin: KafkaAdmin, cluster: str) -> None:
    """ConflictError if the cluster is in another Kafka than the one that answers."""
    tied, found = znodes.kafka(), admin.cluster_id()
    if tied is not None and tied.cluster != found:
        raise ConflictError(
            f"{Znodes(cluster).kafka} says that the cluster is in the Kafka with the id {tied.cluster};"
            f" {admin.bootstrap_servers} is that with the id {found}: correct bootstrap_servers or zookeeper;"
            " if that Kafka has been restored or moved: 'delayline cluster accept-kafka'"
        )


def begins_anew(znodes: Registry, admin: KafkaAdmin, cluster: str, lanes: int) -> bool:
    """Whether `write_down` will say that the buffer is another topic than before."""
    tied = znodes.kafka()
    is_another = tied is not None and tied.buffer != admin.topic_id(ClusterNames(cluster).buffer)
    return is_another and not _has_checkpoint(znodes, lanes)


def write_down(znodes: Registry, admin: KafkaAdmin, cluster: str, lanes: int) -> None:
    """Where a cluster is that no lane has a checkpoint of in ZooKeeper: it begins. Of another one its nodes
    write it down, which know its checkpoints; and a buffer made anew beside them is to be refused.
    """
    if _has_checkpoint(znodes, lanes):
        return
    buffer = ClusterNames(cluster).buffer
    ids = KafkaIds(admin.cluster_id(), admin.topic_id(buffer))
    if znodes.tie(ids):
        return
    now_ms = time.time_ns() // 1_000_000
    why = Author("topics create", "no lane has a checkpoint: the cluster begins anew", now_ms)
    entry = HistoryEntry(what="another buffer", author=why, after=ids.buffer)
    znodes.tie_anew(lambda there: msgspec.structs.replace(there or ids, buffer=ids.buffer), entry)


def _has_checkpoint(znodes: Registry, lanes: int) -> bool:
    return any(znodes.mirror(lane).read() is not None for lane in range(lanes))


def survey(config: ConnectionConfig) -> KafkaSurvey:
    """What would be accepted. ConflictError if there is nothing to accept, or a node works where the cluster
    is: then this command's Kafka is the wrong one.
    """
    admin = KafkaAdmin(config)
    with registry(config) as znodes:
        znodes.settings()  # there is such a cluster
        tied, found = znodes.kafka(), admin.cluster_id()
        working = [node for node, member in members_of(znodes).items() if not member.refuses]
    if tied is None:
        raise ConflictError(f"nobody has written down yet which Kafka {config.cluster} is in: its nodes do")
    if tied.cluster == found:
        raise ConflictError(f"{config.cluster} is in this Kafka, {found}: there is nothing to accept")
    if working:
        raise ConflictError(
            f"{', '.join(sorted(working))} does not refuse: the cluster is in {tied.cluster}, and this is"
            f" {found}; correct bootstrap_servers, or stop all nodes if the cluster is to move here"
        )
    return KafkaSurvey(tied.cluster, found, _buffer(admin, ClusterNames(config.cluster).buffer, tied.buffer))


def accept(config: ConnectionConfig, found: KafkaSurvey, author: Author) -> None:
    """From now on the cluster is in the Kafka of the survey. Its buffer has to be the one that it was: what
    another topic of this name means is said by the nodes (`buffer-recreated`).
    """

    def moved(there: KafkaIds | None) -> KafkaIds:
        if there is None or there.cluster != found.before:
            raise ConflictError("somebody has changed it meanwhile: run this again")
        return msgspec.structs.replace(there, cluster=found.after)

    entry = HistoryEntry(what="accept-kafka", author=author, before=found.before, after=found.after)
    with registry(config) as znodes:
        znodes.tie_anew(moved, entry)


def _buffer(admin: KafkaAdmin, topic: str, was: str) -> Buffer:
    if not admin.exists(topic):
        return "missing"
    return "the same" if admin.topic_id(topic) == was else "another topic"
