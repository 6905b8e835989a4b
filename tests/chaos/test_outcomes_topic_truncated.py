"""The outcomes topic loses its end, and grows on past it: what was told there is missed for good."""

from __future__ import annotations

import pytest

from node.core.ports import Unanswered
from node.kafka.duplicates import Duplicates
from ops.stack import LocalStack
from tests.support.cluster import wait_led
from tests.support.fixtures import MakeCluster
from tests.support.told import Topics
from tests.support.truncated import behind, lose_end
from tests.support.waiting import eventually

BEFORE = [(0, 1), (0, 2), (1, 3)]


@pytest.fixture
def topics(private: LocalStack, make_cluster: MakeCluster) -> Topics:
    """A leader has looked at these three, each in a transaction of its own."""
    topics = Topics(make_cluster(private))
    for place in BEFORE:
        topics.commit(place)
    topics.look()
    return topics


def test_what_has_lost_its_end_is_not_whole_though_it_has_grown_past_it_before_anybody_looks(
    private: LocalStack, topics: Topics
) -> None:
    lose_end(private, topics.cluster.names.outcomes, _without_the_last_transaction)
    _grow(topics)
    assert "for it has all since" in topics.lack()


def test_nor_once_a_leader_has_looked(private: LocalStack, topics: Topics) -> None:
    lose_end(private, topics.cluster.names.outcomes, _without_the_last_transaction)
    _wait_led(topics)
    topics.look()
    _grow(topics)
    topics.look()
    assert "for it has all since" in topics.lack()


def test_a_leader_that_dies_and_comes_back_with_all_of_it_has_lost_nothing(
    private: LocalStack, topics: Topics
) -> None:
    private.kafka.kill()
    private.kafka.start()
    _grow(topics)
    topics.look()
    assert topics.among(_answer(topics)) == [(0, 1), (0, 2), (1, 3), (1, 6), (1, 7), (1, 8)]


def _answer(topics: Topics) -> Duplicates:
    def found() -> list[Duplicates]:
        try:
            return [topics.read({0: 0, 1: 0})]
        except Unanswered:
            return []  # the client has to learn the leader first

    return eventually(found, "it is known which are duplicates")[0]


def _without_the_last_transaction(raw: bytes) -> int:
    places = [0]
    while places[-1] < len(raw) and any(raw[places[-1] : places[-1] + 16]):
        places.append(behind(raw, places[-1]))
    return places[-3]  # its one batch, and its marker


def _wait_led(topics: Topics) -> None:
    wait_led(topics.cluster.admin, {topics.cluster.names.outcomes: 1})


def _grow(topics: Topics) -> None:
    """Others are told, more than there were."""
    _wait_led(topics)
    topics.commit((1, 6))
    topics.commit((1, 7))
    topics.commit((1, 8))
