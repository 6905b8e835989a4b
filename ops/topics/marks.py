"""Whether the settings as they are now count in all partitions of the buffer."""

from __future__ import annotations

from delayline.names import ClusterNames
from node.config import ConnectionConfig
from ops.clients.kafka import KafkaAdmin
from ops.clients.topic_findings import TopicFinding
from ops.topics import rules
from ops.topics.cluster_topics import read_versions


def check_marks(config: ConnectionConfig) -> list[TopicFinding]:
    """Partitions of which a change of settings does not know. Raises as `cluster_topics.check`."""
    buffer = ClusterNames(config.cluster).buffer
    return rules.check_marks(read_versions(config), KafkaAdmin(config).topics([buffer]))
