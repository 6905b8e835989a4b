"""Changing the cluster's settings while it runs (docs/design.md, rule 13)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from delayline.names import ClusterNames
from delayline.settings import FIRST_MEANING, MOST_REQUEST_BYTES, OVERHEAD_BYTES, ClusterSettings
from delayline.settings_versions import (
    CLOCKS_APART_MS,
    Begin,
    SettingsVersions,
    differing,
    require_changeable,
)
from election.operators import Author, HistoryEntry
from election.registry import Registry
from node.config import ConnectionConfig
from ops.checkpoint.show import show
from ops.clients.kafka import KafkaAdmin
from ops.clients.members import Member, members_of
from ops.clients.settings_topic import Begins, Change, SettingsTopic, united
from ops.clients.topic import Topic
from ops.clients.zookeeper import registry, required_keys
from ops.errors import ConfigError, ConflictError, UnavailableError
from ops.topics.cluster_topics import make_settings_topic, write_settings
from ops.topics.new_settings import expect_lasting
from ops.topics.restore import Made, of_views
from ops.topics.rules import RaisedSetting, raised, wanted_topics

LOOK_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """A change as it would be. `changes`: by name, what each setting is and what it would be. `unmarked`:
    partitions of the buffer in which even those that are do not count yet.
    """

    before: SettingsVersions
    after: ClusterSettings
    raises: tuple[RaisedSetting, ...]
    unmarked: tuple[int, ...] = ()

    @property
    def changes(self) -> dict[str, tuple[Any, Any]]:
        names = differing(self.before.settings, self.after)
        return {name: (getattr(self.before.settings, name), getattr(self.after, name)) for name in names}

    @property
    def raises_meaning(self) -> bool:
        """Whether requests are read anew."""
        return self.after.meaning > self.before.settings.meaning


def plan(config: ConnectionConfig, chosen: Mapping[str, Any]) -> PlannedChange:
    """What would be changed. Raises ConfigError for what cannot be, ConflictError while there is a node that
    would not know what the settings mean or has others, NewerSettings, Unanswered, ZnodeMissing.
    """
    with registry(config) as znodes:
        return _planned(config, znodes, chosen)


def settle(config: ConnectionConfig) -> None:
    """Has what an earlier change has left open ended, or nobody could say what stands. Raises
    UnavailableError, ZnodeMissing.
    """
    names = ClusterNames(config.cluster)
    with registry(config) as znodes:
        ring = required_keys(znodes)
    if KafkaAdmin(config).exists(names.settings):
        SettingsTopic(config, names, ring).settle()


def change(
    config: ConnectionConfig, chosen: Mapping[str, Any], author: Author, timeout_s: float
) -> tuple[PlannedChange, SettingsVersions, list[str]]:
    """Changes the settings; what was changed, what they are now, and the nodes that know. It counts from its
    marks on, in all partitions of the buffer, on every node alike.

    Raises as `plan`, and UnavailableError if it is written and a node that is there does not say after
    `timeout_s` that it knows.
    """
    admin, names = KafkaAdmin(config), ClusterNames(config.cluster)
    settle(config)
    with registry(config) as znodes:
        planned = _planned(config, znodes, chosen)
        partitions = sorted(admin.begins(names.buffer))
        if not planned.changes and not planned.before.unmarked(partitions):
            return planned, planned.before, []
        make_settings_topic(admin, planned.before.settings)
        write_settings(config, znodes)  # before a mark is written: who reads one finds the topic filled
        topic = SettingsTopic(config, names, required_keys(znodes))

        def version(there: SettingsVersions | None) -> Change:
            found = _version(admin, znodes, there, planned, author)
            for one in planned.raises:  # before anything waits for longer, or is larger
                admin.set_topic(one.topic, one.key, str(one.to_value))
            return found

        after = topic.write(partitions, version)
        entry = HistoryEntry(what="settings changed", author=author, after=f"version {after.latest.number}")
        znodes.note_settings(after, entry)
        return planned, after, _wait_known(znodes, after.latest.number, timeout_s)


def _planned(config: ConnectionConfig, znodes: Registry, chosen: Mapping[str, Any]) -> PlannedChange:
    cluster = ClusterNames(config.cluster)
    topic = SettingsTopic(config, cluster, required_keys(znodes))
    made = of_views(znodes)  # before the topic: what a node has learnt it has from there
    stand = topic.read_with(znodes.settings_versions()).versions
    _expect_led(made, stand, cluster.settings)
    names = [topic.name for topic in wanted_topics(stand.settings)]
    there = KafkaAdmin(config).topics(names)
    after = _changed(stand.settings, _with_size(stand.settings, chosen, there))
    buffer = there.get(cluster.buffer)
    unmarked = () if buffer is None else tuple(stand.unmarked(range(buffer.partitions)))
    planned = PlannedChange(stand, after, tuple(raised(after, there)), unmarked)
    _expect_known(config, znodes, planned)
    return planned


def _expect_led(made: Mapping[str, Made], stand: SettingsVersions, topic: str) -> None:
    """That no node has settings that were lost since: another version of the same number would be read by the
    others, and not by it.
    """
    ahead = sorted(node for node, its in made.items() if not its.leads_to(stand))
    if ahead:
        raise ConflictError(
            f"{', '.join(ahead)} has settings that neither {topic} nor ZooKeeper has: restore them"
            " with `delayline topics create --restore`, or stop it if they are wrong; nothing was changed"
        )


def _with_size(
    before: ClusterSettings, chosen: Mapping[str, Any], there: Mapping[str, Topic]
) -> Mapping[str, Any]:
    """In the first meaning a request may have what the buffer takes: nearly that it may have in the next."""
    buffer = there.get(ClusterNames(before.cluster).buffer)
    is_raised = before.meaning == FIRST_MEANING < chosen.get("meaning", FIRST_MEANING)
    if buffer is None or not is_raised or "max_request_bytes" in chosen:
        return chosen
    most_bytes = int(buffer.settings["max.message.bytes"]) - OVERHEAD_BYTES
    return {**chosen, "max_request_bytes": max(1, min(most_bytes, MOST_REQUEST_BYTES))}


def _changed(before: ClusterSettings, chosen: Mapping[str, Any]) -> ClusterSettings:
    try:
        after = replace(before, **chosen).after(before)
        if differing(before, after):
            require_changeable(before, after)
            expect_lasting(after)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return after


def _expect_known(config: ConnectionConfig, znodes: Registry, planned: PlannedChange) -> None:
    """A node that does not know the meaning would refuse, or read requests otherwise than the others."""
    meaning, members = planned.after.meaning, members_of(znodes)
    old = sorted(
        node for node, member in members.items() if member.status is None or member.status.meaning < meaning
    )
    if old:
        raise ConflictError(
            f"{', '.join(old)} does not know settings of meaning {meaning}, or that they can be"
            " changed: upgrade it first; nothing was changed"
        )
    if planned.raises_meaning:
        _expect_shown(config, members)


def _expect_shown(config: ConnectionConfig, members: Mapping[str, Member]) -> None:
    """Who is cut off from ZooKeeper is none of those that were asked, and may lead on."""
    for pair in show(config).pairs:
        known = [one for one in (pair.in_topic, pair.in_znode) if one is not None]
        last = max(known, key=lambda one: one.order, default=None)
        if last is not None and last.node not in members:
            raise ConflictError(
                f"the last checkpoint of lane {pair.lane} is {last.node}'s, which ZooKeeper does not show, so"
                " that nobody can say what it knows: have a node lead the lane that does, or start that one;"
                " nothing was changed"
            )


def _version(
    admin: KafkaAdmin,
    znodes: Registry,
    in_topic: SettingsVersions | None,
    planned: PlannedChange,
    author: Author,
) -> Change:
    """The change of what stands, now that nobody else changes it."""
    stand = united(znodes.settings_versions(), in_topic)
    _expect_led(of_views(znodes), stand, ClusterNames(stand.settings.cluster).settings)
    if stand != planned.before:
        raise ConflictError("somebody else has changed the settings meanwhile: nothing was changed")
    now_ms = time.time_ns() // 1_000_000
    buffer = ClusterNames(stand.settings.cluster).buffer
    newest_ms = admin.newest_ms(buffer)

    def make(begins: Begins) -> SettingsVersions:
        # Between the look and the mark other records may have come, by a clock that is ahead.
        begin_at = {
            partition: Begin(offset, max(now_ms, newest_ms.get(partition, 0)) + CLOCKS_APART_MS)
            for partition, offset in begins.items()
        }
        try:
            return stand.changed(planned.after, begin_at, author.by, author.reason, now_ms)
        except ValueError as error:
            raise ConfigError(str(error)) from error

    return Change(stand.latest.number + 1, make)


def _wait_known(znodes: Registry, number: int, timeout_s: float) -> list[str]:
    """The nodes that are there, once each says that it knows; UnavailableError names those that do not. One
    whose store is not open learns of it before it reads on.
    """
    until_s = time.monotonic() + timeout_s
    while True:
        members = members_of(znodes)
        ignorant = sorted(
            node
            for node, member in members.items()
            if not member.is_closed and (member.status is None or member.status.settings_version < number)
        )
        if not ignorant:
            return sorted(members)
        if time.monotonic() > until_s:
            raise UnavailableError(
                f"it is written, as version {number}, but not every node has said within {timeout_s:g} s that"
                f" it knows: {', '.join(ignorant)}; see 'delayline cluster status'"
            )
        time.sleep(LOOK_S)
