"""The settings of a cluster that ZooKeeper has lost, or that somebody has changed by hand: what they were is
known to the nodes' stores, and nothing else may be put in their place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from delayline.names import ClusterNames
from delayline.settings import FIRST_MEANING
from delayline.settings_versions import SettingsVersions
from election.operators import Author, HistoryEntry
from election.registry import Registry
from node.refusal import restore_command
from ops.clients.kafka import KafkaAdmin
from ops.clients.members import members_of
from ops.errors import ConfigError, ConflictError

_NEEDED: Final = {
    "partitions": "--partitions",
    "lanes": "--lanes",
    "retention_ms": "--retention",
    "max_delay_ms": "--max-delay",
    "levels_ms": "--level",
    "dedup_window_ms": "--dedup-window",
    "max_request_bytes": "--max-request-bytes",
    "meaning": "--meaning",
}

MOST_NOTED_BYTES: Final = 16 << 10
_ASK_A_STORE: Final = (
    "start a node that still has its data folder: it says which command restores them; if there is none, add"
    " --restore and every setting that the cluster was made with; a new cluster needs another name"
)
_SEE_ITS_LOG: Final = "the node's log has the command that restores them, once ZooKeeper has lost its own"


@dataclass(frozen=True, slots=True)
class Made:
    """What a node says that its view was made with. `settings`: None where they are too long for a status."""

    settings: SettingsVersions | None
    number: int = 0
    digest: str = ""

    def leads_to(self, later: SettingsVersions) -> bool:
        """Whether `later` is what became of them."""
        if self.settings is not None:
            return self.settings.leads_to(later)
        return later.until(self.number).digest == self.digest

    def contradicts(self, other: SettingsVersions) -> bool:
        """Whether it is known that neither became the other."""
        if self.settings is None:
            return self.number <= other.latest.number and not self.leads_to(other)
        return not (self.leads_to(other) or other.leads_to(self.settings))


def refuse_beside_records(znodes: Registry, admin: KafkaAdmin, names: ClusterNames) -> None:
    """What is in the buffer was accepted under settings: under others it would be lost, or a dead letter. And
    those that stand in their topic are the cluster's.
    """
    if _has_records(admin, names.settings):
        raise ConflictError(
            f"this ZooKeeper has no settings of the cluster, and {names.settings} has: `delayline topics"
            f" create --restore --cluster {names.cluster}` writes those"
        )
    buffer = names.buffer
    if not _has_records(admin, buffer):
        return
    commands = _commands(of_views(znodes))
    way_out = f"restore them: {commands}" if commands else _ASK_A_STORE
    raise ConflictError(
        f"this ZooKeeper has no settings of the cluster, and {buffer} has requests that were accepted under"
        f" some: if it is the cluster's own, {way_out}"
    )


def _has_records(admin: KafkaAdmin, topic: str) -> bool:
    if not admin.exists(topic):
        return False
    begins, ends = admin.begins(topic), admin.ends(topic)
    return any(ends[partition] != begin for partition, begin in begins.items())


def lost_settings(
    znodes: Registry, cluster: str, in_topic: SettingsVersions | None = None
) -> SettingsVersions | None:
    """What their topic and the nodes that are there know together: the latest; None if none says any.
    ConflictError if they do not agree. A node that refuses says nothing against the topic: its view may have
    been made with the wrong ones.
    """
    views, topic = of_views(znodes), ClusterNames(cluster).settings
    known = [] if in_topic is None else [(topic, in_topic)]
    if in_topic is not None:
        refusing = {node for node, member in members_of(znodes).items() if member.refuses}
        wrong = {node for node in refusing & views.keys() if views[node].contradicts(in_topic)}
        views = {node: its for node, its in views.items() if node not in wrong}
    known += [(node, its.settings) for node, its in views.items() if its.settings is not None]
    if not known:
        _expect_shown(views)
        return None
    whose, found = known[0]
    for other, settings in known[1:]:
        try:
            later = found.united(settings)
        except ValueError as error:
            raise ConflictError(
                f"{whose} and {other} have different settings: {error}; {_way_out(whose, other, topic)}"
            ) from error
        if later != found:
            whose, found = other, later
    _expect_shown({node: its for node, its in views.items() if not its.leads_to(found)})
    return found


def _way_out(whose: str, other: str, topic: str) -> str:
    if whose != topic:
        return f"stop {whose} or {other}, whose are the wrong ones, and run this again"
    return (
        f"if the topic's are the right ones, stop {other}, and run this again; if {other}'s are, delete"
        f" {topic} first"
    )


def _expect_shown(views: Mapping[str, Made]) -> None:
    """That nobody has settings that only its log shows."""
    hidden = sorted(node for node, its in views.items() if its.settings is None)
    if hidden:
        raise ConflictError(
            f"{', '.join(hidden)} has settings that are too long to be shown here: {_SEE_ITS_LOG}"
        )


def restore(znodes: Registry, settings: SettingsVersions, author: Author, *, are_sure: bool) -> bool:
    """Writes the settings that the cluster was made with, whatever stands there; False if they do already.

    `are_sure`: their topic has them. Raises ConflictError if a node works with others, or may, or, where they
    are not sure, none that is there has these; SettingsNewer.
    """
    views = of_views(znodes)
    members = members_of(znodes)
    unreadable = sorted(node for node, member in members.items() if member.status is None)
    if unreadable:
        raise ConflictError(
            f"{', '.join(unreadable)} says nothing that this version can read, and may work with other"
            " settings: stop it first, or use its version of this command"
        )
    working = sorted(
        node for node, its in views.items() if not its.leads_to(settings) and not members[node].refuses
    )
    if working:
        raise ConflictError(
            f"{', '.join(working)} works with other settings: if these are the right ones, stop it first; if"
            f" its own are: {_commands({working[0]: views[working[0]]}) or _SEE_ITS_LOG}"
        )
    if views and not are_sure and not any(its.leads_to(settings) for its in views.values()):
        raise ConflictError(
            f"no node's view was made with these settings: {_commands(views) or _SEE_ITS_LOG}"
        )
    entry = HistoryEntry(what="settings restored", author=author, after=noted(settings))
    return znodes.restore_settings(settings, entry)


def noted(settings: SettingsVersions) -> str:
    """As the history has them: in ZooKeeper they and their entry are one transaction of a megabyte."""
    if settings.size_bytes <= MOST_NOTED_BYTES:
        return settings.to_json()
    return f"version {settings.latest.number}, with the digest {settings.digest}"


def require_all(chosen: Mapping[str, Any]) -> None:
    """A setting left to its default might not be what it was. ConfigError."""
    none = {"max_request_bytes"} if chosen.get("meaning") == FIRST_MEANING else set[str]()
    missing = [option for name, option in _NEEDED.items() if name not in {*chosen, *none}]
    if missing:
        raise ConfigError(f"--restore needs every setting as it was: {', '.join(missing)} missing")


def _commands(views: Mapping[str, Made]) -> str:
    """Which ones restore what the nodes say; empty if none says it."""
    shown = (its.settings for its in views.values() if its.settings is not None)
    return " or ".join(sorted({restore_command(settings) for settings in shown}))


def of_views(znodes: Registry) -> dict[str, Made]:
    """What the nodes that are there say that their views were made with."""
    found = {}
    for node, member in members_of(znodes).items():
        status = member.status
        if status is None:
            continue
        try:
            found[node] = Made(SettingsVersions.from_json(status.settings))
        except ValueError:  # none yet, another version's, or too long
            if status.settings_digest:
                found[node] = Made(None, status.settings_version, status.settings_digest)
    return found
