"""A buffer topic whose records producers date themselves is noticed while the node runs."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from node.health import soundings
from tests.support.cluster import Cluster
from tests.support.requests import Sender
from tests.support.waiting import becomes


def test_a_buffer_that_is_no_longer_dated_by_the_brokers_is_told_and_delivery_goes_on(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(soundings, "SETTINGS_EVERY_S", 0.0)
    node = cluster.start_here("a")
    cluster.wait_epoch(1)
    becomes(lambda: node.vitals().dated_by_clients, expected=False)
    _date(cluster, "CreateTime")
    becomes(lambda: node.vitals().dated_by_clients, expected=True)
    with Sender(cluster) as sender:
        sender.schedule()
        sender.flush()
        cluster.wait_delivered(1)
    _date(cluster, "LogAppendTime")
    becomes(lambda: node.vitals().dated_by_clients, expected=False)


def _date(cluster: Cluster, how: str) -> None:
    entry = ConfigEntry("message.timestamp.type", how, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, cluster.names.buffer, incremental_configs=[entry])
    for future in cluster.admin.incremental_alter_configs([resource]).values():
        future.result()
