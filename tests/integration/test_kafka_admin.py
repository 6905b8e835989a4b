"""What operators' commands ask of Kafka."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, AdminClient

from node.config import KafkaConfig
from ops.clients import kafka
from ops.clients.kafka import KafkaAdmin
from ops.errors import NotAuthorisedError
from tests.stacks import Stack
from tests.support.cluster import Cluster
from tests.support.waiting import becomes


@pytest.fixture
def admin(stack: Stack) -> KafkaAdmin:
    return KafkaAdmin(KafkaConfig(bootstrap_servers=stack.bootstrap))


@pytest.mark.parametrize(
    "name", ["nowhere", "", "a b", "..", "x" * 250, "x" * 600, "nul\0", "\udc80"],
    ids=["absent", "empty", "space", "dots", "long", "longer", "nul", "surrogate"],
)  # fmt: skip
def test_there_is_no_topic_of_a_name_that_none_has_or_can_have(admin: KafkaAdmin, name: str) -> None:
    assert not admin.exists(name)


def test_a_topic_that_this_user_may_not_see_is_not_said_to_be_missing(
    cluster: Cluster, admin: KafkaAdmin
) -> None:
    closed = cluster.target("closed")
    cluster.make_topics({closed: {}})

    def answer() -> bool | str:
        try:
            return admin.exists(closed)
        except NotAuthorisedError:
            return "may not be seen"

    assert answer() is True
    cluster.allow_only(closed, AclOperation.ALTER_CONFIGS)  # implies no right to see it
    becomes(answer, "may not be seen")


def test_to_ask_about_a_topic_makes_none(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def client(properties: dict[str, Any]) -> AdminClient:
        given.update(properties)
        return AdminClient(properties)

    monkeypatch.setattr(kafka, "AdminClient", client)
    KafkaAdmin(KafkaConfig(bootstrap_servers=stack.bootstrap))
    assert given["allow.auto.create.topics"] is False
