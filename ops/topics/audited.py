"""What an audit is told of a cluster."""

from __future__ import annotations

from typing import Any

from delayline.names import ClusterNames
from node.config import ConnectionConfig
from ops.clients.kafka import KafkaAdmin
from ops.clients.zookeeper import read_keys
from ops.topics import cluster_topics
from pipeline.audit import AuditConfig
from pipeline.watch.round import WatchConfig


def audit_config(config: ConnectionConfig, **wishes: Any) -> AuditConfig:
    """The settings and keys that the cluster has now. `wishes`: other fields of `AuditConfig`.

    Raises OperatorError if there is no such cluster, or Kafka or ZooKeeper does not answer.
    """
    settings, keys = cluster_topics.read_versions(config), read_keys(config)
    KafkaAdmin(config).require(ClusterNames(config.cluster).buffer)  # Spark would wait for minutes
    return AuditConfig(config.bootstrap_servers, settings, keys, kafka=dict(config.kafka), **wishes)


def watch_config(config: ConnectionConfig, *, grace_ms: int, replay_window_ms: int) -> WatchConfig:
    """The same of a round of the watch's engine."""
    return WatchConfig(audit_config(config, grace_ms=grace_ms), replay_window_ms=replay_window_ms)
