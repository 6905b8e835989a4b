"""What a node does about what a newer version has written into ZooKeeper (docs/design.md, "Formats")."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from election.operators import Gap, PauseState, Switchover, encode
from node.status import NodeState
from store.operations import SkipRequest
from tests.support.cluster import Cluster
from tests.support.operators import AUTHOR, write
from tests.support.process import RunningNode
from tests.support.requests import Sender, now_ms
from tests.support.waiting import eventually

SAYS: Final = "of a newer version: it has format 2, this version reads 1: upgrade it"


def newer(said: bytes) -> bytes:
    """The same, as a newer version says it."""
    known: dict[str, Any] = json.loads(said)
    return json.dumps(known | {"format": 2}).encode()


def wait_said(node: RunningNode, event: str, path: str) -> None:
    eventually(
        lambda: [one for one in node.events(event) if one["detail"] == f"{path} is {SAYS}"],
        f"{node.node_id} says that it cannot read {path}",
    )


def deliver(cluster: Cluster) -> None:
    """A message that is due at once arrives."""
    before = len(cluster.delivered)
    with Sender(cluster) as sender:
        sender.schedule()
        sender.flush()
        cluster.wait_delivered(before + 1)


def test_pauses_of_a_newer_version_stop_all_until_they_can_be_read(cluster: Cluster) -> None:
    node, path = cluster.start("a"), cluster.znodes.pauses
    cluster.wait_state("a", NodeState.LEADER)
    write(cluster, path, newer(encode(PauseState())))
    wait_said(node, "operator-requests-read-failed", path)
    eventually(lambda: cluster.member("a").get("paused"), "it stands still")
    with Sender(cluster) as sender:
        sender.schedule()
        sender.flush()
        eventually(lambda: cluster.member("a").get("pending") == 1, "it is taken in")
    cluster.tail.catch_up()
    assert not cluster.delivered
    write(cluster, path, encode(PauseState()))
    cluster.wait_delivered(1)


def test_a_node_that_starts_waits_at_a_gap_of_a_newer_version(cluster: Cluster) -> None:
    path = cluster.znodes.gap(0)
    write(cluster, path, newer(encode(Gap({0: 0}, {0: 0}, AUTHOR))))
    node = cluster.start("a")
    wait_said(node, "node-startup-delayed", path)
    assert cluster.candidates() == []
    cluster.kazoo.delete(path)
    cluster.wait_state("a", NodeState.LEADER)


def test_a_request_of_a_newer_version_waits_for_a_leader_that_can_read_it(cluster: Cluster) -> None:
    node, path = cluster.start("a"), cluster.znodes.request(0)
    cluster.wait_state("a", NodeState.LEADER)
    asked = msgspec.json.encode(SkipRequest(1, now_ms() - 1))
    write(cluster, path, newer(asked))
    wait_said(node, "operator-requests-read-failed", path)
    deliver(cluster)
    assert cluster.checkpoints()[-1].operation.number == 0
    assert cluster.kazoo.get(path)[0] == newer(asked)
    write(cluster, path, asked)
    eventually(lambda: cluster.checkpoints()[-1].operation.number == 1, "it is taken up")


def test_a_switchover_of_a_newer_version_is_passed_over(cluster: Cluster) -> None:
    path, nodes = cluster.znodes.switchover(0), [cluster.start("a")]
    cluster.wait_candidates(1)
    nodes.append(cluster.start("b"))
    cluster.wait_candidates(2)
    deliver(cluster)
    wanted = encode(Switchover(cluster.checkpoints()[-1].epoch, "b", AUTHOR))
    write(cluster, path, newer(wanted))
    for node in nodes:
        wait_said(node, "operator-requests-read-failed", path)
    deliver(cluster)
    assert cluster.candidates() == ["a", "b"]
    write(cluster, path, wanted)
    eventually(lambda: cluster.candidates()[:1] == ["b"], "b is leader")
