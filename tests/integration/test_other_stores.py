"""What an upgraded or downgraded node does with the store of another version: it makes its view anew beside
it, one node of a lane at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from kazoo.client import KazooClient

from node.own_stores import store_folder
from node.status import NodeState
from store import keys
from store.identity import FORMAT
from store.rocks import RocksStore
from tests.integration.test_node_from_peer import giver_of
from tests.support.cluster import Cluster
from tests.support.fates import check_exactly_once
from tests.support.process import RunningNode
from tests.support.requests import Sender, now_ms
from tests.support.waiting import PATIENCE_S, becomes, eventually

HOUR_MS = 3_600_000
COUNT = 10


def as_of_other_version(cluster: Cluster, node: RunningNode, format_: int) -> Path:
    """Ends a node, and leaves its store as a version with another format would."""
    node.terminate()
    node.wait_exit()
    folder = store_folder(cluster.data_dir(node.node_id))
    other = folder.with_name("store" if format_ < FORMAT else f"store-{format_}")
    folder.rename(other)
    store = RocksStore(other)
    identity = msgspec.json.decode(store.get(keys.IDENTITY) or b"")
    batch = store.batch()
    batch.put(keys.IDENTITY, msgspec.json.encode({**identity, "format": format_, "new": "in that version"}))
    store.write(batch)
    store.flush()
    store.close()
    return other


def test_the_second_node_takes_the_view_that_the_first_one_has_made_anew(cluster: Cluster) -> None:
    with Sender(cluster) as sender:
        nodes = {}
        for node_id in ("a", "b"):
            nodes[node_id] = cluster.start(node_id)
            cluster.wait_candidates(len(nodes))
        for number in range(COUNT):
            sender.schedule(at_ms=now_ms() + HOUR_MS, id=f"later-{number}")
        sender.flush()
        others = [as_of_other_version(cluster, node, FORMAT - 1) for node in nodes.values()]
        first = cluster.start("a")
        cluster.wait_state("a", NodeState.LEADER)
        assert giver_of(cluster, "a") is None, "nobody has that format yet: it reads the log"
        second = cluster.start("b")
        assert second.wait_event("snapshot-taken")["giver"] == "a"
        cluster.wait_state("b", NodeState.FOLLOWER)
        eventually(lambda: not any(other.exists() for other in others), "the other stores are removed")
        first.terminate()
        first.wait_exit()
        cluster.wait_state("b", NodeState.LEADER)
        for number in range(COUNT):
            sender.run_now(f"later-{number}")
        check_exactly_once(cluster, sender.flush())


@pytest.fixture
def other_session(cluster: Cluster) -> Iterator[KazooClient]:
    """Another node's."""
    client = KazooClient(hosts=cluster.zookeeper, timeout=PATIENCE_S)
    client.start(timeout=PATIENCE_S)
    yield client
    client.stop()
    client.close()


@pytest.mark.parametrize("format_", [FORMAT - 1, FORMAT + 1], ids=["upgraded", "downgraded"])
def test_a_node_makes_its_view_anew_and_then_removes_the_other_store(cluster: Cluster, format_: int) -> None:
    node = cluster.start("a")
    with Sender(cluster) as sender:
        for number in range(COUNT):
            sender.schedule()
            sender.schedule(at_ms=now_ms() + HOUR_MS, id=f"later-{number}")
        sender.flush()
        cluster.wait_delivered(COUNT)
        other = as_of_other_version(cluster, node, format_)
        node = cluster.start("a")
        cluster.wait_state("a", NodeState.LEADER)
        becomes(lambda: list(cluster.data_dir("a").iterdir()), [store_folder(cluster.data_dir("a"))])
        assert node.wait_event("store-of-other-format")["left"] == [str(other)]
        for number in range(COUNT):
            sender.run_now(f"later-{number}")
        ledger = sender.flush()
        check_exactly_once(cluster, ledger)


def test_a_store_of_another_version_that_cannot_be_opened_is_left_as_it_is(cluster: Cluster) -> None:
    node = cluster.start("a")
    cluster.wait_state("a", NodeState.LEADER)
    other = as_of_other_version(cluster, node, FORMAT + 1)
    (other / "CURRENT").write_text("MANIFEST-of-another-kind\n")
    node = cluster.start("a")
    cluster.wait_state("a", NodeState.LEADER)
    assert node.wait_event("other-store-passed-over")["folder"] == str(other)
    assert (other / "CURRENT").read_text() == "MANIFEST-of-another-kind\n"


def test_a_node_waits_for_its_turn_while_another_one_can_lead(
    cluster: Cluster, other_session: KazooClient
) -> None:
    cluster.start("a")
    cluster.wait_state("a", NodeState.LEADER)
    node = cluster.start("b")
    cluster.wait_candidates(2)
    other = as_of_other_version(cluster, node, FORMAT - 1)
    turn = cluster.znodes.rebuild(0)
    other_session.create(turn, b"c", ephemeral=True)
    node = cluster.start("b")
    assert "the lane's node c makes its view anew" in node.wait_event("node-startup-delayed")["detail"]
    assert other.is_dir()
    assert not store_folder(cluster.data_dir("b")).exists()
    other_session.delete(turn)
    cluster.wait_candidates(2)
    assert other_session.get(turn)[0] == b"b"
    eventually(lambda: not other.exists(), "the other store is removed")


def test_a_node_does_not_wait_for_one_that_is_through(cluster: Cluster, other_session: KazooClient) -> None:
    cluster.start("a")
    cluster.wait_state("a", NodeState.LEADER)
    node = cluster.start("b")
    cluster.wait_candidates(2)
    as_of_other_version(cluster, node, FORMAT - 1)
    other_session.create(cluster.znodes.rebuild(0), b"a", ephemeral=True)
    cluster.start("b")
    cluster.wait_candidates(2)


def test_while_nobody_can_lead_nobody_waits(cluster: Cluster, other_session: KazooClient) -> None:
    node = cluster.start("a")
    cluster.wait_state("a", NodeState.LEADER)
    as_of_other_version(cluster, node, FORMAT - 1)
    other_session.create(cluster.znodes.rebuild(0), b"b", ephemeral=True)
    cluster.start("a")
    cluster.wait_state("a", NodeState.LEADER)


def test_another_lanes_store_of_another_version_is_refused_and_stays(cluster: Cluster) -> None:
    node = cluster.start("a")
    cluster.wait_state("a", NodeState.LEADER)
    other = as_of_other_version(cluster, node, FORMAT - 1)
    store = RocksStore(other)
    identity = msgspec.json.decode(store.get(keys.IDENTITY) or b"")
    batch = store.batch()
    batch.put(keys.IDENTITY, msgspec.json.encode({**identity, "lane": 1}))
    store.write(batch)
    store.flush()
    store.close()
    cluster.start("a")
    said = cluster.wait_state("a", NodeState.REFUSING)
    assert said["reason"] == "other-data: the store was made with lane 1; it is now 0"
    assert list(cluster.data_dir("a").iterdir()) == [other]
