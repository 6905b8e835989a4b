"""The cluster's settings as they are and were, by who knows them."""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import KafkaException

from delayline.names import ClusterNames
from delayline.settings_versions import SettingsVersions
from node.config import ConnectionConfig
from node.core.ports import Unanswered
from ops.clients.settings_topic import SettingsTopic
from ops.clients.zookeeper import registry
from ops.errors import ConflictError, translated


@dataclass(frozen=True, slots=True)
class ShownSettings:
    """`unread`: why they are those of ZooKeeper alone; None if they are not."""

    versions: SettingsVersions
    unread: str | None = None


def show(config: ConnectionConfig) -> ShownSettings:
    """What topic and znode know together: whoever has changed them writes the znode last. ZooKeeper's alone
    where the topic does not say. Raises ZnodeMissing, NewerSettings.
    """
    with registry(config) as znodes:
        mirrored, ring = znodes.settings_versions(), znodes.keys()
    if ring is None:
        return ShownSettings(mirrored, "ZooKeeper has no keys to check them with")
    try:
        known = SettingsTopic(config, ClusterNames(config.cluster), ring).read_with(mirrored)
    except (Unanswered, ConflictError, KafkaException) as error:
        return ShownSettings(mirrored, str(translated(error, config.bootstrap_servers) or error))
    return ShownSettings(known.versions)
