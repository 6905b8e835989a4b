"""How much room the brokers' disks have, as they say it themselves (DescribeLogDirs).

librdkafka does not ask for it; Spark's own Kafka client, which is Java's, does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from pipeline.kafka.access import KafkaAccess
from pipeline.kafka.offsets import TIMEOUT_S
from pipeline.kafka.security import spark_options


@dataclass(frozen=True, slots=True)
class LogDir:
    """A folder of a broker. `used_bytes`: by the topic; `free_bytes`: of its disk."""

    broker: int
    path: str
    used_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class LogDirs:
    """Those that have a part of the topic. `why`: what is not known, if anything is not."""

    dirs: list[LogDir]
    why: str | None = None


def log_dirs(spark: SparkSession, access: KafkaAccess, topic: str) -> LogDirs:
    """Asks all brokers. Who may not ask (Describe on the cluster) is told so in `why`."""
    jvm: Any = spark._jvm  # noqa: SLF001 - the way to Java that PySpark has
    properties = jvm.java.util.Properties()
    properties.put("bootstrap.servers", access.bootstrap_servers)
    properties.put("default.api.timeout.ms", str(round(TIMEOUT_S * 1_000)))
    properties.put("request.timeout.ms", str(round(TIMEOUT_S * 1_000)))
    for name, value in spark_options(access.kafka).items():
        properties.put(name.removeprefix("kafka."), value)
    try:
        admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
        try:
            return _asked(jvm, admin, topic)
        finally:
            admin.close()
    except Py4JJavaError as error:
        return LogDirs([], f"the brokers do not tell it: {_said(error)}")
    except Py4JError as error:
        return LogDirs([], f"Spark has no client that can ask the brokers: {error}")


def _asked(jvm: Any, admin: Any, topic: str) -> LogDirs:
    brokers = jvm.java.util.ArrayList()
    for node in jvm.java.util.ArrayList(admin.describeCluster().nodes().get()):  # a list can be gone through
        brokers.add(node.id())
    found, silent = [], False
    for broker, folders in admin.describeLogDirs(brokers).allDescriptions().get().items():
        for path, folder in folders.items():
            parts = folder.replicaInfos().items()
            sizes = [replica.size() for partition, replica in parts if partition.topic() == topic]
            if not sizes:
                continue
            free = folder.usableBytes()
            silent |= not free.isPresent()
            if free.isPresent():
                found.append(LogDir(broker, path, sum(sizes), free.getAsLong()))
    why = "a broker is older than 3.3, and does not tell how much room it has" if silent else None
    return LogDirs(sorted(found, key=lambda one: (one.broker, one.path)), why)


def _said(error: Py4JJavaError) -> str:
    return str(error.java_exception).strip().partition("\n")[0]
