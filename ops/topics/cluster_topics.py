"""Make a cluster: its settings and its topics; and check that they are as they must be.

The settings come first. A znode is created by one and only one, so of two operators with different ideas one
is told of the other's, and no topic is made by rules that are not the cluster's.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from delayline.names import ClusterNames
from delayline.settings import FIRST_MEANING, ClusterSettings
from delayline.settings_versions import SettingsVersions, differing
from delayline.signing import Keyring
from election.errors import ZnodeMissing
from election.operators import Author, HistoryEntry
from election.registry import Registry
from node.config import ConnectionConfig
from ops.clients.kafka import KafkaAdmin
from ops.clients.settings_topic import Change, SettingsTopic
from ops.clients.topic import Topic, WantedTopic
from ops.clients.topic_findings import TopicFinding
from ops.clients.zookeeper import registry
from ops.cluster.accept_kafka import begins_anew, require_same, write_down
from ops.errors import ConfigError, ConflictError, NotFoundError
from ops.topics import rules
from ops.topics.new_settings import new_settings
from ops.topics.restore import lost_settings, noted, refuse_beside_records, require_all
from ops.topics.restore import restore as restored
from ops.topics.rules import wanted_topics

MOST_REPLICAS = 3


@dataclass(frozen=True, slots=True)
class Created:
    """What `create` made, and what it found wrong with the topics that were there already."""

    settings: ClusterSettings
    settings_written: bool
    topics: tuple[str, ...]
    keys_made: bool
    keys_there: bool
    findings: tuple[TopicFinding, ...]

    @property
    def buffer_was_lost(self) -> bool:
        """The cluster existed without its buffer: what was pending is gone."""
        return not self.settings_written and ClusterNames(self.settings.cluster).buffer in self.topics


def create(
    config: ConnectionConfig,
    chosen: Mapping[str, Any] | None = None,
    *,
    replication: int | None = None,
    new_keys: bool = False,
    restore: Author | None = None,
) -> Created:
    """Make what is missing of the cluster that `config` names; running it again changes nothing.

    Args:
        config: where the cluster is.
        chosen: fields of `ClusterSettings` by name. The rest: as the cluster has them, or the defaults
            (ops/topics/new_settings.py).
        replication: of new topics; default one replica a broker, 3 at most.
        new_keys: make keys even where the nodes that have the old ones are thought to be lost.
        restore: who restores the settings that the cluster was made with, and why. They are the latest that
            their topic and the nodes that are there know, or, if none does, all of them are chosen. They
            stand in place of what there is.

    Raises:
        ConfigError: the settings contradict themselves, or there are fewer brokers than replicas.
        ConflictError: a topic that is there contradicts the settings; settings were to be made for what is in
            the buffer already; the cluster is in another Kafka; or keys were to be made for what is in the
            buffer already, and nodes are running.
        SettingsDiffer: the cluster exists with other settings than the chosen ones.
        OperatorError: Kafka refuses or does not answer; Unavailable: ZooKeeper does not.
    """
    admin = KafkaAdmin(config)
    names = ClusterNames(config.cluster)
    there = admin.topics(sorted({*names.own_topics, names.settings}))
    replication = _replication(replication, admin.brokers())
    with registry(config) as znodes:
        require_same(znodes, admin, config.cluster)
        if restore is None:
            settings, stands = _settle(znodes, admin, config.cluster, chosen or {})
        else:
            (lost, are_sure), stands = _lost(config, znodes, chosen or {}), True
            settings = lost.settings
        wanted = wanted_topics(settings, _buffer_bytes(there.get(names.buffer)))
        _refuse_other_partitions(wanted, there, stands=stands)
        keyless = znodes.keys() is None
        used = keyless and _was_used(admin, names, there)
        if used and (restore is None or new_keys):
            _refuse_running(znodes)
        elif keyless and not used:  # before the settings: a node that waits for these finds both
            znodes.create_keys(_new_keys())
        written = (
            znodes.create_settings(settings)
            if restore is None
            else restored(znodes, lost, restore, are_sure=are_sure)
        )
    made = [topic.name for topic in wanted if topic.name not in there and admin.create(topic, replication)]
    # Where the settings were lost with ZooKeeper, so were the keys: nodes have copies of them.
    with registry(config) as znodes:
        if used and (not written or new_keys):
            znodes.create_keys(_new_keys(admin.ends(names.buffer), admin.ends(names.checkpoint)))
        if restore is None:  # where ZooKeeper was lost, its nodes know better
            if begins_anew(znodes, admin, config.cluster, settings.lanes):
                _begin_settings_anew(config, znodes)
            # After that: a run that dies between the two is run again.
            write_down(znodes, admin, config.cluster, settings.lanes)
        if settings.meaning > FIRST_MEANING:
            write_settings(config, znodes)
    makes_keys = keyless and (not used or not written or new_keys)
    findings = tuple(_findings(admin, settings))
    return Created(settings, written, tuple(made), makes_keys, makes_keys or not keyless, findings)


def make_settings_topic(admin: KafkaAdmin, settings: ClusterSettings) -> None:
    """If there is none: a cluster of the first meaning has none, or somebody has deleted it."""
    wanted = rules.settings_topic(ClusterNames(settings.cluster))
    if not admin.exists(wanted.name):
        admin.create(wanted, _replication(None, admin.brokers()))


def write_settings(config: ConnectionConfig, znodes: Registry) -> None:
    """Has the settings stand in their topic, if it has none: it is new, or was deleted."""
    ring = znodes.keys()
    if ring is None:  # lost with ZooKeeper: the first node puts them back
        return
    topic = SettingsTopic(config, ClusterNames(config.cluster), ring)
    if topic.read() is None:
        topic.write_first(znodes.settings_versions())


def _begin_settings_anew(config: ConnectionConfig, znodes: Registry) -> None:
    """Their versions begin at offsets of another buffer: in the new one the latest settings are the first.
    The topic says so, too, whatever it has said before.
    """
    there, ring = znodes.settings_versions(), znodes.keys()
    first = there.anew()
    why = Author("topics create", "the buffer is another topic", time.time_ns() // 1_000_000)
    before = f"version {there.latest.number}"
    znodes.restore_settings(
        first, HistoryEntry(what="settings begun anew", author=why, before=before, after=noted(first))
    )
    topic = None if ring is None else SettingsTopic(config, ClusterNames(config.cluster), ring)
    if topic is not None and topic.read() not in (None, first):
        topic.write([], lambda _: Change(first.latest.number, lambda _: first))


def _was_used(admin: KafkaAdmin, names: ClusterNames, there: Mapping[str, Topic]) -> bool:
    """Where there is no checkpoint, the service has never written anything into this buffer."""
    return all(
        topic in there and any(admin.ends(topic).values()) for topic in (names.buffer, names.checkpoint)
    )


def _new_keys(
    requests_from: Mapping[int, int] | None = None, checkpoints_from: Mapping[int, int] | None = None
) -> Keyring:
    """One key. What is there already is older than it, and counts as it did."""
    return Keyring.make(time.time_ns() // 1_000_000, requests_from, checkpoints_from)


def _refuse_running(znodes: Registry) -> None:
    members = sorted(znodes.members())
    if members:
        raise ConflictError(
            f"the cluster has no keys to sign with, and nodes are running: {', '.join(members)}; stop all"
            " nodes, run this again, and start them"
        )


def check(config: ConnectionConfig, target: str | None = None) -> list[TopicFinding]:
    """What is wrong with the cluster's topics, and with a target's size limit if one is named.

    Raises ZnodeMissing if the cluster was never created, ConflictError if it is in another Kafka,
    OperatorError if Kafka does not answer.
    """
    admin = KafkaAdmin(config)
    with registry(config) as znodes:
        settings = znodes.settings()
        require_same(znodes, admin, config.cluster)
    findings = _findings(admin, settings)
    return findings if target is None else findings + _target_findings(admin, settings, target)


def read_settings(config: ConnectionConfig) -> ClusterSettings:
    """The cluster's settings; ZnodeMissing if it was never created."""
    return read_versions(config).settings


def read_versions(config: ConnectionConfig) -> SettingsVersions:
    """The cluster's settings and what they were; ZnodeMissing if it was never created."""
    with registry(config) as znodes:
        return znodes.settings_versions()


def _replication(chosen: int | None, brokers: int) -> int:
    if chosen is not None and chosen > brokers:
        raise ConfigError(f"{chosen} replicas need as many brokers: {brokers} up")
    return chosen or min(MOST_REPLICAS, brokers)


def _settle(
    znodes: Registry,
    admin: KafkaAdmin,
    cluster: str,
    chosen: Mapping[str, Any],
) -> tuple[ClusterSettings, bool]:
    """The cluster's settings with what was chosen, and whether they stand; SettingsDiffer if that changes
    them, and ConflictError if there are none and the buffer has records.
    """
    try:
        present = znodes.settings()
    except ZnodeMissing:
        refuse_beside_records(znodes, admin, ClusterNames(cluster))
        return _settings(new_settings, cluster=cluster, **chosen), False
    znodes.check_settings(_settings(replace, present, **chosen))
    return present, True  # with what they were before


def _lost(
    config: ConnectionConfig, znodes: Registry, chosen: Mapping[str, Any]
) -> tuple[SettingsVersions, bool]:
    """What ZooKeeper has lost, by who knows it; and whether their topic is among these."""
    ring, names = znodes.keys(), ClusterNames(config.cluster)
    in_topic = None if ring is None else SettingsTopic(config, names, ring).read()
    known = in_topic is not None or not chosen
    found = lost_settings(znodes, config.cluster, in_topic) if known else None
    if found is None:
        require_all(chosen)
        return SettingsVersions.of(_settings(ClusterSettings, cluster=config.cluster, **chosen)), False
    if chosen and differing(found.settings, _settings(replace, found.settings, **chosen)):
        raise ConflictError(
            f"the settings that {names.settings} and the nodes have are others than those given: run this"
            " without them"
        )
    return found, in_topic is not None


def _settings(make: Any, *args: Any, **fields: Any) -> ClusterSettings:
    try:
        settings: ClusterSettings = make(*args, **fields)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return settings


def _buffer_bytes(buffer: Topic | None) -> int:
    return int(buffer.settings["max.message.bytes"]) if buffer else 0


def _refuse_other_partitions(
    wanted: tuple[WantedTopic, ...], there: Mapping[str, Topic], *, stands: bool
) -> None:
    """Before anything is written: settings that a topic contradicts would have to be taken back. Where they
    stand, partitions that were added since change nothing.
    """
    for topic in wanted:
        actual = there.get(topic.name)
        was_added = stands and actual is not None and actual.partitions > topic.partitions
        if actual and not was_added and not topic.takes(actual.partitions):
            raise ConflictError(
                f"topic {topic.name} exists with {actual.partitions} partitions, the settings ask for"
                f" {topic.partitions}: choose as many, or use another cluster name"
            )


def _findings(admin: KafkaAdmin, settings: ClusterSettings) -> list[TopicFinding]:
    wanted = wanted_topics(settings)
    return rules.check(
        wanted,
        admin.topics([topic.name for topic in wanted]),
        bootstrap_servers=admin.bootstrap_servers,
        brokers=admin.brokers(),
    )


def _target_findings(admin: KafkaAdmin, settings: ClusterSettings, target: str) -> list[TopicFinding]:
    buffer = ClusterNames(settings.cluster).buffer
    topics = admin.topics([buffer, target])
    if buffer not in topics:
        raise NotFoundError(f"topic {buffer} is missing: delayline topics create")
    return rules.check_target(target, topics[buffer], topics, bootstrap_servers=admin.bootstrap_servers)
