"""How much room the disks have that a forecast is about: the brokers' and the nodes'."""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import SparkSession

from delayline.names import ClusterNames
from node.config import ConnectionConfig
from ops.clients.members import members_of
from ops.clients.zookeeper import registry
from pipeline.forecast import Room
from pipeline.kafka.log_dirs import log_dirs


class Rooms(NamedTuple):
    """Those that are known; `unknown`: why others are not, a sentence each."""

    known: list[Room]
    unknown: list[str]


def rooms(spark: SparkSession, config: ConnectionConfig, disk_bytes: int | None) -> Rooms:
    """`disk_bytes`: what is free for the log, in place of what the brokers say."""
    of_log = _given(disk_bytes) if disk_bytes is not None else _of_brokers(spark, config)
    of_nodes = _of_nodes(config)
    return Rooms(of_log.known + of_nodes.known, of_log.unknown + of_nodes.unknown)


def _given(disk_bytes: int) -> Rooms:
    return Rooms([Room("log", "as given", disk_bytes)], [])


def _of_brokers(spark: SparkSession, config: ConnectionConfig) -> Rooms:
    found = log_dirs(spark, config, ClusterNames(config.cluster).buffer)
    known = [
        Room("log", f"broker {one.broker}, {one.path}", one.free_bytes, one.used_bytes) for one in found.dirs
    ]
    why = (
        [f"the log's disk is not known: {found.why}; say what is free with --disk-bytes"] if found.why else []
    )
    return Rooms(known, why)


def _of_nodes(config: ConnectionConfig) -> Rooms:
    """As the members show it."""
    with registry(config) as znodes:
        members = members_of(znodes).values()
    statuses = [one.status for one in members if one.status is not None]
    known = [
        Room("view", f"node {said.node}", said.disk_free_bytes)
        for said in sorted(statuses, key=lambda said: said.node)
        if said.disk_total_bytes
    ]
    return Rooms(known, [] if known else ["no node is running: how full their disks will be is not known"])
