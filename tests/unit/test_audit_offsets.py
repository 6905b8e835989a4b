"""What the audit notes of topics while somebody else makes one."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from delayline.settings import ClusterSettings
from delayline.settings_versions import SettingsVersions
from pipeline.audit import AuditConfig
from pipeline.audit.snapshot import TopicExtent, TopicOffsets
from tests.support.keys import KEYRING

PLACE = ("made-just-now", 0)
END = 7


class Brokers:
    """Brokers that lead the partition from the second answer on."""

    def __init__(self) -> None:
        self.asked = 0

    def list_offsets(self, request: dict[TopicPartition, Any], **_: Any) -> dict[TopicPartition, Future[Any]]:
        self.asked += 1
        answer: Future[Any] = Future()
        if self.asked == 1:
            answer.set_exception(KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)))
        else:
            answer.set_result(SimpleNamespace(offset=END))
        return dict.fromkeys(request, answer)


def test_a_partition_that_has_no_leader_yet_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = TopicOffsets(
        AuditConfig(
            "127.0.0.1:1", SettingsVersions.of(ClusterSettings(cluster="delay", partitions=2)), KEYRING
        )
    )
    brokers = Brokers()
    monkeypatch.setattr(offsets, "_admin", brokers)
    offsets.settle(TopicExtent({}, {PLACE: END}))
    assert brokers.asked == 2
