"""What a node stands on: the cluster's settings, the Kafka that it is in, and the buffer topic there."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import NamedTuple

import msgspec
import structlog
from confluent_kafka import KafkaException

from delayline.names import ClusterNames
from delayline.settings import NewerSettings
from delayline.settings_versions import SettingsVersions, differences, later_of
from delayline.signing import Keyring
from election.errors import ElectionError, Malformed, Newer, SettingsNewer, ZnodeMissing
from election.operators import Author, HistoryEntry, KafkaIds
from election.registry import Registry
from election.znodes import Znodes
from node import refusal
from node.config import NodeConfig
from node.core.ports import Unanswered
from node.current_refusal import CurrentRefusal
from node.kafka.errors import LastComplaint, words
from node.kafka.known_settings import SettingsContradict, read_settings
from node.kafka.reader import OffsetsGone
from node.kafka.topics import TopicIdentity, TopicMissing, admin_client, describe, kafka_id
from node.own_stores import OwnMemory, identity_in, memory_of, readable
from node.refusal import Refusal, RefusalCode, Refusing
from node.waiting import Waiting
from store.identity import (
    FORMAT,
    Identity,
    OtherIdentity,
    UnknownIdentity,
    claim,
    expect,
    stored_identity,
    write,
)
from store.kv import Damaged, KeyValue
from store.stall import write_stubbornly

log = structlog.get_logger("delayline.node")


class Ground(NamedTuple):
    """As a round has found it. `kafka`: the id of the Kafka cluster; `tied`: where ZooKeeper says that the
    cluster is.
    """

    settings: SettingsVersions
    kafka: str
    tied: KafkaIds | None
    buffer: TopicIdentity

    def identity(self, cluster: str, lane: int) -> Identity:
        """That of a store which is made here."""
        return Identity(FORMAT, cluster, lane, self.buffer.id, self.settings.to_json())


class Survey:
    """Finds the ground, and says why a node cannot stand on it. For any thread."""

    def __init__(self, config: NodeConfig, registry: Registry, current_refusal: CurrentRefusal) -> None:
        self.made_with: SettingsVersions | None = None  # the view, as far as it is known
        self._memory: OwnMemory | None = None
        self._config = config
        self._registry = registry
        self._current_refusal = current_refusal
        self._names = ClusterNames(config.cluster)
        self._znodes = Znodes(config.cluster)
        self._complaint = LastComplaint()
        self._admin = admin_client(config.client_config() | {"error_cb": self._complaint})
        self._ground: Ground | None = None

    def find(self, waiting: Waiting) -> Ground | None:
        """None if the round ends before. Raises `Refusing`."""
        settings = waiting.ask(self._settings_or_refusal)
        if settings is None:
            return None
        kafka = waiting.ask(self._asked_kafka)
        if kafka is None:
            return None
        buffer = waiting.ask(self._described_buffer)
        if buffer is None:
            return None
        ground = self._ground = Ground(settings, *kafka, buffer)
        self._expect_lane(ground)
        return ground

    def _settings_or_refusal(self) -> SettingsVersions:
        try:
            settings = self._registry.settings_versions()
        except ZnodeMissing as error:
            own = self._settings_of_store()
            if own is None or self._memory is None:
                raise
            why = self.settings_missing(own)
            self._current_refusal.lack(why)
            self.put_back(own, self._memory.keys)
            raise Unanswered(str(why)) from error
        except Malformed as error:
            raise Refusing(self.unreadable(error)) from error
        self._current_refusal.lack(None)
        return settings

    def _settings_of_store(self) -> SettingsVersions | None:
        """What the view was made with, before the store is open; None if there is none."""
        if self._memory is None:
            self._memory = memory_of(self._config.data_dir, self._config.cluster)
        if self.made_with is None and self._memory is not None:
            self.made_with = self._memory.settings
        return self.made_with

    def put_back(self, own: SettingsVersions, ring: Keyring) -> None:
        """Where ZooKeeper has lost the settings, or is behind, it gets those of their topic, if that has what
        these have become. Raises `Unanswered`, `ElectionError`.

        It never gets a node's own: its store may be older than they are.
        """
        try:
            found = read_settings(self._config.client_config(), self._names, ring, committed=True).versions
        except NewerSettings as error:
            raise Refusing(refusal.settings_newer(f"{self._names.settings}: {error}")) from error
        if found is None or not own.leads_to(found):
            return
        why = Author(self._config.node_id, "the znode was behind", time.time_ns() // 1_000_000)
        entry = HistoryEntry(what="settings put back", author=why, after=f"version {found.latest.number}")
        if self._registry.note_settings(found, entry):
            log.warning("settings-put-back", znode=self._znodes.settings, version=found.latest.number)

    def _asked_kafka(self) -> tuple[str, KafkaIds | None]:
        """The id of the Kafka cluster that answers, and what the cluster is tied to."""
        try:
            found = kafka_id(self._admin, self._names.buffer)
        except Unanswered as error:
            raise self._unanswered(error) from error
        return found, self.tied(found)

    def _described_buffer(self) -> TopicIdentity:
        try:
            return self.described_buffer()
        except TopicMissing as error:
            raise Unanswered(f"{error}: run `delayline topics create`") from error
        except Unanswered as error:
            raise self._unanswered(error) from error

    def _unanswered(self, error: Unanswered) -> Unanswered:
        """With the brokers' address, and why the client cannot reach them, if it has said so."""
        self._admin.poll(0)
        cause = error.__cause__
        if not isinstance(cause, KafkaException):
            return error
        why = words(self._complaint.behind(cause.args[0]))
        return Unanswered(
            f"{self._names.buffer} cannot be described by Kafka at {self._config.bootstrap_servers}: {why};"
            " check bootstrap_servers, that the brokers are up, and security.protocol and sasl.* below kafka:"
        )

    def _expect_lane(self, ground: Ground) -> None:
        """That there is this node's, with all its partitions."""
        lane, settings, partitions = self._config.lane, ground.settings.settings, ground.buffer.partitions
        if partitions < settings.partitions:
            raise Refusing(refusal.partitions_missing(partitions, self._names, settings))
        if partitions > settings.partitions:
            added = partitions - settings.partitions
            way_out = "see `delayline doctor`"
            log.warning("buffer-partitions-added", topic=self._names.buffer, added=added, way_out=way_out)
        if lane >= settings.lanes:
            raise Refusing(
                Refusal(
                    RefusalCode.NO_SUCH_LANE,
                    f"lane {lane} of a cluster with {settings.lanes}",
                    f"Start the node with --lane 0{f' to {settings.lanes - 1}' * (settings.lanes > 1)}.",
                )
            )

    def claim(self, store: KeyValue, ground: Ground) -> Ground:
        """That the store is this node's, and was made from this ground; a new one is now. The ground, with
        the later settings of the two. Raises `Refusing`.
        """
        try:
            if stored_identity(store) is None:
                self._expect_tied(ground)
            claimed = claim(store, ground.identity(self._config.cluster, self._config.lane), later_of)
        except (OtherIdentity, UnknownIdentity) as error:
            raise Refusing(self._of_identity(error, ground)) from error
        self.made_with = SettingsVersions.from_json(claimed.settings)
        return ground._replace(settings=self.made_with)

    def expect_own(self, folder: Path, ground: Ground) -> None:
        """That a store which another version has made is this node's, too, and was made from this ground. One
        that this version cannot open may be sound for that one: it is passed over. Raises `Refusing`, and
        what `RocksStore` raises else.
        """
        try:
            stored, own = identity_in(folder), ground.identity(self._config.cluster, self._config.lane)
            if stored is not None:
                expect(msgspec.structs.replace(stored, format=FORMAT), own, later_of)
        except (OtherIdentity, UnknownIdentity) as error:
            raise Refusing(self._of_identity(error, ground)) from error
        except Damaged as error:
            log.warning("other-store-passed-over", folder=str(folder), detail=str(error))

    def keep(self, store: KeyValue, settings: SettingsVersions, stopping: threading.Event) -> None:
        """The view is made by these from now on. `stopping`: set once the node is to end."""
        there = stored_identity(store)
        assert there is not None, "it was claimed"
        kept = msgspec.structs.replace(there, settings=settings.to_json())
        write_stubbornly(lambda: write(store, kept), stopping)
        self.made_with = settings

    def _of_identity(self, error: OtherIdentity | UnknownIdentity, ground: Ground) -> Refusal:
        if isinstance(error, OtherIdentity) and error.field == "buffer_id":
            return self.buffer_recreated(str(error))
        if isinstance(error, OtherIdentity) and error.field == "settings":
            made_with = readable(error.stored.settings)
            if made_with is not None:
                self.made_with = made_with
                return self.settings_changed(made_with, ground.settings)
        return refusal.other_data(str(error), self._config.data_dir)

    def _expect_tied(self, ground: Ground) -> None:
        """A new store has nothing else that tells the buffer from one that was made anew."""
        if ground.tied is not None and ground.tied.buffer != ground.buffer.id:
            detail = f"{self._names.buffer} is another topic than the cluster was made with"
            raise Refusing(self.buffer_recreated(detail))

    # -- what may have changed since

    def described_buffer(self) -> TopicIdentity:
        """The buffer topic as it is now. Raises `TopicMissing`, `Unanswered`."""
        return describe(self._admin, self._names.buffer)

    def tied(self, kafka: str) -> KafkaIds | None:
        """Where ZooKeeper says that the cluster is. Raises `Refusing` if that is another Kafka than the one
        with this id.
        """
        try:
            tied = self._registry.kafka()
        except Newer as error:
            raise Refusing(refusal.newer_format(str(error))) from error
        except Malformed as error:
            raise Unanswered(
                f"{error}: delete that znode, and a node that has delivered writes it"
            ) from error
        if tied is not None and tied.cluster != kafka:
            where = self._config.bootstrap_servers
            raise Refusing(refusal.other_kafka(self._znodes.kafka, tied.cluster, kafka, where))
        return tied

    def expect_same(
        self, before: Ground, buffer: TopicIdentity, known: SettingsVersions, settings: SettingsVersions
    ) -> bool:
        """Raises `Refusing` if the buffer or the settings are others than what the node knows; whether the
        lane has more partitions than before.
        """
        if buffer.id != before.buffer.id:
            detail = f"{self._names.buffer} is another topic than the store was made from"
            raise Refusing(self.unless_other_kafka(self.buffer_recreated(detail)))
        if not (known.leads_to(settings) or settings.leads_to(known)):
            raise Refusing(self.settings_changed(known, settings))
        had, has = (
            len(settings.settings.partitions_of(self._config.lane, count))
            for count in (before.buffer.partitions, buffer.partitions)
        )
        return has > had

    # -- why a node cannot stand there

    def settings_missing(self, own: SettingsVersions) -> Refusal:
        """ZooKeeper has lost them."""
        return refusal.settings_missing(self._znodes.settings, self._config.zookeeper, own)

    def settings_changed(self, own: SettingsVersions, found: SettingsVersions) -> Refusal:
        """They are not those of the view."""
        changed = differences(own.settings, found.settings) or "they became so in another way"
        detail = f"not the settings that the store was made with: {changed}"
        return refusal.settings_changed(detail, own, self._config.data_dir)

    def unreadable(self, error: Malformed) -> Refusal:
        """The settings, for this version."""
        if isinstance(error, SettingsNewer):
            return refusal.settings_newer(str(error))
        return refusal.settings_unreadable(str(error), self._settings_of_store())

    def settings_unusable(self, error: SettingsContradict | NewerSettings) -> Refusal:
        """Those of the settings topic."""
        topic = self._names.settings
        if isinstance(error, NewerSettings):
            return refusal.settings_newer(f"{topic}: {error}")
        return refusal.settings_contradict(topic, str(error), self._config.data_dir)

    def buffer_recreated(self, detail: str) -> Refusal:
        """The buffer is another topic."""
        config = self._config
        return refusal.buffer_recreated(detail, self._names, self._znodes, config.lane, config.data_dir)

    def offsets_gone(self, error: OffsetsGone) -> Refusal:
        """Either retention has passed what was not read, or the topic was recreated."""
        try:
            found = self.described_buffer()
            recreated = self._ground is not None and found.id != self._ground.buffer.id
        except (TopicMissing, Unanswered):
            recreated = False
        if recreated:
            return self.unless_other_kafka(self.buffer_recreated(str(error)))
        return refusal.retention_gap(str(error), self._config.data_dir)

    def unless_other_kafka(self, why: Refusal) -> Refusal:
        """The topic may be another one since another Kafka answers by now."""
        try:
            self._asked_kafka()
        except Refusing as refusing:
            return refusing.refusal
        except (Unanswered, ElectionError):
            pass
        return why
