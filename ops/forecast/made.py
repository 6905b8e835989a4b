"""A forecast of a cluster, made by a Spark on this machine."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from delayline.names import ClusterNames
from delayline.times import DAY_MS, MINUTE_MS
from node.config import ConnectionConfig
from ops.clients.kafka import KafkaAdmin
from ops.clients.zookeeper import read_keys
from ops.forecast.rooms import Rooms, rooms
from ops.spark import audit_session, spark_errors
from ops.topics import cluster_topics
from pipeline.audit import AuditConfig
from pipeline.forecast import Asked, Forecast, Horizon, count, forecast
from pipeline.forecast.read import read


@dataclass(frozen=True, slots=True)
class Wish:
    """What an operator wants to know: how many `days`; what the lanes can do, and what is free for the log,
    if they know that better.
    """

    days: float
    capacity_per_s: float | None = None
    disk_bytes: int | None = None


class Made(NamedTuple):
    """The forecast, and what could not be found out."""

    forecast: Forecast
    unknown: list[str]


def made(config: ConnectionConfig, wish: Wish, say: Callable[[str], None]) -> Made:
    """Reads the cluster's topics. Raises OperatorError, SetupError, PipelineError, ElectionError."""
    settings, keys = cluster_topics.read_versions(config), read_keys(config)
    KafkaAdmin(config).require(ClusterNames(config.cluster).buffer)  # Spark would wait for minutes
    say("starting Spark")
    spark = audit_session()
    try:
        with spark_errors(config.bootstrap_servers):
            wanted = AuditConfig(config.bootstrap_servers, settings, keys, kafka=dict(config.kafka))
            log = read(spark, wanted)
            horizon = Horizon(log.taken_ms, ceil(wish.days * DAY_MS / MINUTE_MS))
            counts = count(log.messages, log.arrivals, horizon, log.since_ms)
            found: Rooms = rooms(spark, config, wish.disk_bytes)
    finally:
        with suppress(Exception):  # after Ctrl-C there may be nothing left of it to stop
            spark.stop()
    asked = Asked(wish.capacity_per_s, found.known, log.retention_ms)
    return Made(forecast(config.cluster, counts, horizon, asked), found.unknown)
