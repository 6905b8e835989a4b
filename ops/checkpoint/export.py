"""A cluster's checkpoints as JSON: to keep them elsewhere, and to begin from them again when the checkpoint
topic and the znodes are lost.

What was delivered after the export is delivered again, so an import never goes behind a checkpoint that is
known somewhere: not behind a record of the topic, nor behind the znode's mirror.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec
from confluent_kafka import KafkaException, Producer

from delayline.names import ClusterNames
from delayline.settings import ClusterSettings
from delayline.signing import Keyring
from delayline.times import render_time
from election.operators import Author, HistoryEntry
from election.registry import Registry
from node.config import ConnectionConfig
from node.kafka.own_checkpoints import headers_of
from node.kafka.own_transactions import OwnTransactions
from ops.checkpoint.leaderships import leaderships
from ops.checkpoint.show import CheckpointPair, last_request, show, wanted_lanes
from ops.clients.kafka import KafkaAdmin
from ops.clients.zookeeper import mirrored_checkpoint, read_keys, registry
from ops.errors import ConfigError, ConflictError, NotFoundError, from_kafka
from store.checkpoint import FORMATS, Checkpoint

FORMAT: Final = 2
KAFKA_TIMEOUT_S: Final = 20.0
_PASSED: Final = "it was asked for before the import"


class LaneFile(msgspec.Struct, frozen=True):
    """A lane's last checkpoint, and the first one of each epoch."""

    lane: int
    last: Checkpoint
    leaderships: list[Checkpoint]


class _ExportFormat(msgspec.Struct, frozen=True):
    """What every version says of an export."""

    format: int


class CheckpointFile(msgspec.Struct, frozen=True):
    """What is exported. The buffer's offsets in it are those of the cluster's own buffer topic alone."""

    cluster: str
    at_ms: int
    lanes: list[LaneFile]
    format: int = FORMAT


def exported(config: ConnectionConfig, lane: int | None, now_ms: int) -> CheckpointFile:
    """The checkpoints of one lane, or of all: the topic's, or the znode's where the topic has none.

    Raises NotFoundError if a lane has none, and what `ops.checkpoint.show.show` raises.
    """
    found = [_lane_file(config, pair) for pair in show(config, lane).pairs]
    return CheckpointFile(config.cluster, now_ms, found)


def _lane_file(config: ConnectionConfig, pair: CheckpointPair) -> LaneFile:
    last = pair.in_topic or pair.in_znode
    if last is None:
        raise NotFoundError(f"lane {pair.lane} has no checkpoint yet: there is nothing to export")
    firsts = leaderships(config, read_keys(config), pair.lane) if pair.in_topic is not None else []
    return LaneFile(pair.lane, last, firsts)


def read_file(raw: bytes, where: str) -> CheckpointFile:
    """What `exported` has given, as JSON. Raises ConfigError."""
    try:
        of = msgspec.json.decode(raw, type=_ExportFormat).format
        if of != FORMAT:
            raise ConfigError(f"{where} has format {of}; this version reads format {FORMAT}")
        found = msgspec.json.decode(raw, type=CheckpointFile)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ConfigError(
            f"{where} is no export of checkpoints ({error}): 'delayline checkpoint export' makes one"
        ) from error
    for one in found.lanes:
        if any(checkpoint.format not in FORMATS for checkpoint in (one.last, *one.leaderships)):
            raise ConfigError(f"{where} has checkpoints of another format than {max(FORMATS)}")
        if any(checkpoint.lane != one.lane for checkpoint in (one.last, *one.leaderships)):
            raise ConfigError(f"{where} has checkpoints of other lanes below lane {one.lane}")
    if not found.lanes or len({one.lane for one in found.lanes}) < len(found.lanes):
        raise ConfigError(f"{where} has no lane, or one of them twice")
    return found


@dataclass(frozen=True, slots=True)
class LanePlan:
    """What an import writes into a lane's partition, in order."""

    lane: int
    records: Sequence[Checkpoint]

    @property
    def last(self) -> Checkpoint:
        """Where the lane goes on from."""
        return self.records[-1]


def plan(config: ConnectionConfig, file: CheckpointFile, lane: int | None = None) -> list[LanePlan]:
    """What an import of one lane, or of all that the file has, would write.

    Raises ConflictError where it would go behind what is known, or where a lane has a leader; NotFoundError
    if the topic or a lane is missing.
    """
    wanted = [one for one in file.lanes if lane in (None, one.lane)]
    if not wanted:
        raise NotFoundError(f"the export has no lane {lane}: it has {[one.lane for one in file.lanes]}")
    if file.cluster != config.cluster:
        raise ConflictError(f"the export is of cluster {file.cluster}, not of {config.cluster}")
    with registry(config) as znodes:
        settings = znodes.settings()
        ends = KafkaAdmin(config).ends(ClusterNames(config.cluster).buffer)
        for one in wanted:
            wanted_lanes(config, znodes, one.lane)
            _require_no_leader(znodes, one.lane)
            _require_own_buffer(config, settings, one.last, ends)
            _require_not_behind(znodes, one.last)
            _require_empty(config, one.lane)
        return [LanePlan(one.lane, _records(znodes, one)) for one in wanted]


def carry_out(
    config: ConnectionConfig, plans: Sequence[LanePlan], author: Author, say: Callable[[str], None]
) -> None:
    """Writes what is planned, each lane in one transaction, and before that into the history what is going
    to be. `say` is told of each lane that is written.

    The lane's own transactional ids are taken first, as a leader takes them: what became of their last
    transactions is asked before that. So a leader that nobody saw can commit no more, and what is there then
    is all there is. Raises ConflictError if that is something, and `Unanswered`.
    """
    for one in plans:
        producers: list[Producer] = []
        try:
            _settle(config, one.lane)
            producers += [_producer(config, one.lane, suffix) for suffix in "ab"]
            for producer in producers:
                producer.init_transactions(KAFKA_TIMEOUT_S)
            _require_empty(config, one.lane)
            _record(config, one, author)
            _write(producers[0], ClusterNames(config.cluster).checkpoint, one, read_keys(config))
        except KafkaException as error:
            raise from_kafka(error.args[0], config.bootstrap_servers) from error
        finally:
            producers.clear()  # they end while the brokers are there to answer
        say(f"lane {one.lane}: written")


class _Keys(NamedTuple):
    """Implements `node.core.ports.KeyringSource`."""

    ring: Keyring


def _settle(config: ConnectionConfig, lane: int) -> None:
    names, keys = ClusterNames(config.cluster), _Keys(read_keys(config))
    timeout_ms = int(KAFKA_TIMEOUT_S * 1000)
    with closing(OwnTransactions(config.client_config(), names, lane, timeout_ms, keys)) as own:
        own.settle(is_to_step_down=lambda: False, why=str)


def _record(config: ConnectionConfig, one: LanePlan, author: Author) -> None:
    after = f"epoch {one.last.epoch}, delivered up to {render_time(one.last.delivered_up_to_ms)}"
    with registry(config) as znodes:
        znodes.record(HistoryEntry(what="import", author=author, lane=one.lane, after=after))


def _write(producer: Producer, topic: str, one: LanePlan, ring: Keyring) -> None:
    producer.begin_transaction()
    for checkpoint in one.records:
        raw = checkpoint.encode()
        headers = headers_of(checkpoint, raw, topic, ring)
        producer.produce(topic, raw, checkpoint.record_key, one.lane, headers=headers)
    producer.commit_transaction(KAFKA_TIMEOUT_S)


def _producer(config: ConnectionConfig, lane: int, suffix: str) -> Producer:
    id_ = ClusterNames(config.cluster).transactional_id(lane, suffix)
    return Producer(config.client_config() | {"transactional.id": id_, "log_level": 0})


def _records(znodes: Registry, one: LaneFile) -> list[Checkpoint]:
    """The leaderships, then where it goes on from. A request that stands in ZooKeeper is as old as the
    trouble, or older: it counts as taken up.
    """
    present = last_request(znodes, one.lane)
    operation = one.last.operation
    if present is not None and present.number > operation.number:
        operation = msgspec.structs.replace(
            operation, number=present.number, request=present, refused=_PASSED
        )
    last = msgspec.structs.replace(one.last, operation=operation, first=False)
    return [*(first for first in one.leaderships if first.first), last]


def _require_no_leader(znodes: Registry, lane: int) -> None:
    nodes = ", ".join(candidate.node for candidate in znodes.candidates(lane).values())
    if nodes:
        raise ConflictError(f"lane {lane} has a leader or candidates ({nodes}): stop its nodes first")


def _require_own_buffer(
    config: ConnectionConfig, settings: ClusterSettings, last: Checkpoint, ends: dict[int, int]
) -> None:
    own = settings.partitions_of(last.lane, max(ends) + 1 if ends else 0)
    if not set(settings.partitions_of(last.lane)) <= set(last.applied) <= set(own):
        raise ConflictError(
            f"the export has partitions {sorted(last.applied)} in lane {last.lane}, the cluster"
            f" {own}: it is of other settings"
        )
    for partition, offset in last.applied.items():
        if ends.get(partition, 0) < offset:
            raise ConflictError(
                f"{ClusterNames(config.cluster).buffer}/{partition} ends at {ends.get(partition, 0)}, before"
                f" {offset}, which the export has as delivered: it is of another buffer topic"
            )


def _require_not_behind(znodes: Registry, last: Checkpoint) -> None:
    mirror = mirrored_checkpoint(znodes, last.lane)
    if mirror is not None and mirror.order > last.order:
        raise ConflictError(
            f"lane {last.lane}: the znode has a later checkpoint (epoch {mirror.epoch}, delivered up to"
            f" {render_time(mirror.delivered_up_to_ms)}): start a node, it goes on from that"
        )


def _require_empty(config: ConnectionConfig, lane: int) -> None:
    topic = ClusterNames(config.cluster).checkpoint
    admin = KafkaAdmin(config)
    begin, end = admin.begins(topic).get(lane, 0), admin.ends(topic).get(lane, 0)
    if begin < end and leaderships(config, read_keys(config), lane, 1):
        raise ConflictError(f"{topic}/{lane} is not empty: it decides, and nothing is imported over it")
