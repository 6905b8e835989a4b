"""Which requests are duplicates, from outcomes that are written by hand: aborted, still open, gone, a
stranger's.
"""

from __future__ import annotations

import msgspec
import pytest
from confluent_kafka import Producer

from delayline.outcome_kinds import OutcomeKind
from delayline.times import DAY_MS
from node.core.ports import Unanswered
from node.kafka import duplicates
from node.kafka.applier import NotRebuildable
from tests.support.cluster import Cluster
from tests.support.requests import now_ms
from tests.support.retention import alter_topic
from tests.support.told import REQUESTS, Topics
from tests.support.waiting import PATIENCE_S


@pytest.fixture
def topics(cluster: Cluster) -> Topics:
    return Topics(cluster)


def test_those_that_committed_outcomes_call_so_are_duplicates_as_far_as_they_are_asked_about(
    topics: Topics,
) -> None:
    topics.commit((0, 7), (0, 2), (1, 3), (1, 9))
    topics.commit((0, 8), (1, 5), kind=OutcomeKind.CANCELLED)
    with topics.transaction((0, 6)) as aborted:
        aborted.abort_transaction(PATIENCE_S)
    topics.commit((0, 4), (2, 4))
    assert topics.among(topics.read({0: 3, 1: 0}, {0: REQUESTS, 1: 9})) == [(0, 4), (0, 7), (1, 3)]


def test_what_is_no_outcome_is_passed_over(topics: Topics) -> None:
    producer = Producer({"bootstrap.servers": topics.cluster.bootstrap, "linger.ms": 0})
    topic, sound, key = topics.told(0, 1)
    for value, of in (
        (b'"duplicate"', key),
        (sound, b"\xff"),
        (sound, None),
        (None, key),
        (sound, b"other/0/1"),
    ):
        producer.produce(topic, value, of, 0)
    producer.produce(topic, sound, topics.told(1, 1)[2], 0)
    assert producer.flush(PATIENCE_S) == 0
    assert topics.among(topics.read({0: 0, 1: 0})) == [(1, 1)]


def test_while_a_transaction_is_open_there_nobody_knows(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duplicates, "TIMEOUT_S", 0.5)
    topics.commit((0, 1))
    with topics.transaction((0, 2)) as producer:
        with pytest.raises(Unanswered, match="outcomes could not be read on"):
            topics.read({0: 0, 1: 0})
        producer.commit_transaction(PATIENCE_S)
    monkeypatch.undo()
    assert topics.among(topics.read({0: 0, 1: 0})) == [(0, 1), (0, 2)]


def test_a_node_that_is_to_end_reads_no_further(topics: Topics) -> None:
    topics.commit((0, 1))
    with pytest.raises(Unanswered, match="is to end"):
        topics.read({0: 0, 1: 0}, ends=True)


def test_where_no_request_is_in_question_no_outcome_is(topics: Topics) -> None:
    topics.cluster.delete_topic(topics.cluster.names.outcomes)
    assert topics.among(topics.read({0: REQUESTS, 1: REQUESTS})) == []


def test_outcomes_that_retention_may_have_taken_are_missed_however_long_it_is_by_now(topics: Topics) -> None:
    topics.commit((0, 1), (0, 2))
    topics.look()
    topics.forget(1)
    alter_topic(topics.cluster, topics.cluster.names.outcomes, "retention.ms", str(365 * DAY_MS))
    with pytest.raises(NotRebuildable, match=r"outcomes/0 may lack .*, for it has all since \d+ alone"):
        topics.read({0: 0, 1: 0})


def test_what_is_no_younger_than_outcomes_of_before_the_requests_is_not_missed(topics: Topics) -> None:
    topics.commit((1, 1), (1, 2), ago_ms=DAY_MS)
    topics.commit((0, 2))
    topics.forget(1)
    assert topics.among(topics.read({0: 0, 1: 0})) == [(0, 2), (1, 2)]


def test_what_was_told_before_the_requests_came_is_not_missed_though_nothing_is_left_to_tell_how_old_it_was(
    topics: Topics,
) -> None:
    topics.commit((1, 1))
    topics.look()
    assert topics.known is not None
    topics.forget(topics.known.end)
    with pytest.raises(NotRebuildable):
        topics.read({0: 0, 1: 0})
    topics.known = msgspec.structs.replace(topics.known, written_ms=now_ms() - DAY_MS)
    assert topics.among(topics.read({0: 0, 1: 0})) == []


def test_what_was_told_in_a_topic_of_before_is_missed_though_the_new_one_begins_at_its_beginning(
    topics: Topics,
) -> None:
    topics.commit((0, 1))
    topics.look()
    topics.cluster.delete_topic(topics.cluster.names.outcomes)
    topics.cluster.create_again()
    assert "for it was made anew" in topics.lack()
    topics.look()
    assert "for it has all since" in topics.lack()


def test_so_is_all_where_no_leader_has_looked(topics: Topics) -> None:
    topics.known = None
    with pytest.raises(NotRebuildable, match="no leader has looked"):
        topics.read({0: 0, 1: 0})


def test_so_is_what_the_topic_has_lost_at_its_end(topics: Topics) -> None:
    assert topics.known is not None
    topics.known = msgspec.structs.replace(topics.known, end=topics.known.end + 1)
    with pytest.raises(NotRebuildable, match="it has lost its end"):
        topics.read({0: 0, 1: 0})
