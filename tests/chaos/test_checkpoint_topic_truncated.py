"""The checkpoint topic loses its end, as where a broker comes to lead it that had not copied all: a leader
goes on from what ZooKeeper or its own store has, and delivers nothing again.
"""

from __future__ import annotations

from struct import Struct

import pytest

from delayline import Receipt
from delayline.names import parse_source
from election.operators import Author
from node.status import NodeState
from ops.checkpoint import export
from ops.errors import ConflictError
from ops.stack import LocalStack
from store.checkpoint import Checkpoint
from tests.support.cluster import Cluster
from tests.support.fates import check_exactly_once, read_fates
from tests.support.fixtures import MakeCluster
from tests.support.requests import Sender, now_ms
from tests.support.truncated import behind, lose_end
from tests.support.waiting import eventually

ATTRIBUTES = Struct(">h")
ATTRIBUTES_AT = 21
CONTROL = 0x20
AUTHOR = Author("alice", "they were lost", 0)


@pytest.mark.parametrize("marked", [True, False], ids=["behind a marker", "before a marker"])
def test_a_new_node_goes_on_from_the_znode(
    private: LocalStack, make_cluster: MakeCluster, *, marked: bool
) -> None:
    """Where the topic ends before a marker, the transaction is open there until somebody aborts it."""
    cluster = make_cluster(private)
    cluster.start("a")
    with Sender(cluster) as sender:
        for _ in range(4):  # the second one may stand before the first one's marker, and be kept
            _deliver(cluster, sender, 10)
        cluster.process("a").kill()
        _lose_end(private, cluster, marked=marked)
        cluster.start("b")
        said = cluster.process("b").wait_event("checkpoint-topic-truncated")
        sender.schedule()
        check_exactly_once(cluster, sender.flush())
    assert said["level"] == "error"


def test_a_node_goes_on_from_its_own_store(private: LocalStack, make_cluster: MakeCluster) -> None:
    cluster = make_cluster(private)
    cluster.start("a")
    with Sender(cluster) as sender:
        for _ in range(4):
            _deliver(cluster, sender, 10)
        _end(cluster, "a")
        cluster.kazoo.delete(cluster.znodes.checkpoint(0))
        _lose_end(private, cluster)
        cluster.start("a")
        cluster.process("a").wait_event("checkpoint-topic-truncated")
        sender.schedule()
        check_exactly_once(cluster, sender.flush())


def test_who_has_gone_on_without_knowing_of_a_later_checkpoint_is_not_undone(
    private: LocalStack, make_cluster: MakeCluster
) -> None:
    """Neither ZooKeeper nor the new leader knows of it; the old one, which does, comes back."""
    cluster = make_cluster(private)
    cluster.start("a")
    with Sender(cluster) as sender:
        _deliver(cluster, sender, 1)
        _end(cluster, "a")
        cluster.start("a")
        for _ in range(30):
            lost = _deliver(cluster, sender, 1)
        _end(cluster, "a")
        cluster.kazoo.delete(cluster.znodes.checkpoint(0))
        _lose_end(private, cluster)
        cluster.start("b")
        cluster.wait_state("b", NodeState.LEADER)
        later = [sender.schedule() for _ in range(20)]
        sender.flush()
        found = _wait_mirrored(cluster, later)
        cluster.process("b").kill()
        cluster.start("a")
        cluster.wait_state("a", NodeState.LEADER)
        _deliver(cluster, sender, 1)
    assert lost.order > found.order, "it counts as later"
    fates = read_fates(cluster)
    assert [fates.of[receipt.result()] for receipt in later] == [["delivered"]] * 20


def test_an_import_asks_first_what_became_of_what_lacks_its_marker(
    private: LocalStack, make_cluster: MakeCluster
) -> None:
    """Who initialises the ids first forgets that it was committed."""
    cluster = make_cluster(private)
    cluster.start("a")
    with Sender(cluster) as sender:
        for _ in range(4):
            _deliver(cluster, sender, 10)
    _end(cluster, "a")
    file = export.exported(cluster.connection, 0, now_ms())
    _lose_end(private, cluster, marked=False)
    plans = export.plan(cluster.connection, file)
    with pytest.raises(ConflictError, match="is not empty: it decides"):
        export.carry_out(cluster.connection, plans, AUTHOR, print)


def _end(cluster: Cluster, node_id: str) -> None:
    cluster.process(node_id).terminate()
    cluster.process(node_id).wait_exit()


def _deliver(cluster: Cluster, sender: Sender, count: int) -> Checkpoint:
    """Returns once ZooKeeper knows that so many more are delivered."""
    receipts = [sender.schedule() for _ in range(count)]
    sender.flush()
    return _wait_mirrored(cluster, receipts)


def _wait_mirrored(cluster: Cluster, receipts: list[Receipt]) -> Checkpoint:
    places = [parse_source(receipt.result()) for receipt in receipts]

    def mirrored() -> Checkpoint | None:
        one = cluster.mirrored()
        return one if all(one.applied[partition] > offset for _, partition, offset in places) else None

    found = eventually(mirrored, "ZooKeeper knows that they are delivered")
    assert found is not None, "eventually returns what is true"
    return found


def _lose_end(stack: LocalStack, cluster: Cluster, *, marked: bool = True) -> None:
    """The lane's partition of the checkpoint topic keeps what is before the first marker, and that one if
    `marked`.
    """
    lose_end(stack, cluster.names.checkpoint, _end_of_first_marker if marked else _begin_of_first_marker)


def _begin_of_first_marker(raw: bytes) -> int:
    at = 0
    while not ATTRIBUTES.unpack_from(raw, at + ATTRIBUTES_AT)[0] & CONTROL:
        at = behind(raw, at)
    return at


def _end_of_first_marker(raw: bytes) -> int:
    return behind(raw, _begin_of_first_marker(raw))
