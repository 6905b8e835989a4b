"""The names of a cluster, and of single records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayline.names import ClusterNames, is_legal_topic, parse_source, source


def test_a_cluster_has_four_topics_of_its_own() -> None:
    names = ClusterNames("orders")
    assert names.own_topics == {"orders.buffer", "orders.checkpoint", "orders.outcomes", "orders.dead-letter"}


WRITTEN_BY_NODES = ["delay.buffer", "delay.checkpoint", "delay.outcomes", "delay.dead-letter"]
LATER = ["delay.settings", "delay.audit", "delay.export", "delay.import"]


@pytest.mark.parametrize("topic", [*WRITTEN_BY_NODES, *LATER, "__consumer_offsets", "__x"])
def test_its_own_and_internal_topics_cannot_be_targets(topic: str) -> None:
    assert ClusterNames().is_forbidden_target(topic)


@pytest.mark.parametrize("topic", LATER)
def test_topics_that_a_cluster_of_the_first_meaning_did_not_have_can_be_targets_there(topic: str) -> None:
    assert not ClusterNames().is_forbidden_target(topic, later_too=False)


@pytest.mark.parametrize("topic", ["orders", "delay", "delay.buffer2", "other.buffer", "_private"])
def test_other_topics_can(topic: str) -> None:
    assert not ClusterNames().is_forbidden_target(topic)


def test_transactional_ids_belong_to_the_lane() -> None:
    assert ClusterNames().transactional_id(0, "a") == "delay-0-a"


@pytest.mark.parametrize("cluster", ["", "a b", "a/b", "é", "x" * 238])
def test_a_cluster_is_named_so_that_topics_can_be(cluster: str) -> None:
    with pytest.raises(ValueError, match="cannot name a topic"):
        ClusterNames(cluster)


@pytest.mark.parametrize("topic", ["a", "A-z_0.9", "x" * 249, "..."])
def test_a_legal_topic(topic: str) -> None:
    assert is_legal_topic(topic)


@pytest.mark.parametrize("topic", ["", ".", "..", "x" * 250, "a b", "a/b", "a\n", "é", "٣", "a*", "\x00"])
def test_an_illegal_topic(topic: str) -> None:
    assert not is_legal_topic(topic)


@given(
    st.from_regex(r"[a-zA-Z0-9_-]{1,249}", fullmatch=True),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**63 - 1),
)
def test_a_source_reads_back_as_it_was_written(topic: str, partition: int, offset: int) -> None:
    assert parse_source(source(topic, partition, offset)) == (topic, partition, offset)


@pytest.mark.parametrize(
    "text",
    [
        *("", "a", "a/1", "a/1/", "a/1/2/3", "/1/2", "a/-1/2", "a/1/+2", "a/1/ 2", "a/1/2\n", "a/٣/0"),
        *("a b/1/2", "a/2147483648/0", "a/0/9223372036854775808"),
    ],
)
def test_anything_else_is_no_source(text: str) -> None:
    with pytest.raises(ValueError, match="topic/partition/offset"):
        parse_source(text)
