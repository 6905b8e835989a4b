"""Leaders of two lanes on the machines a, b and c: they are spread, and come back; what an operator has moved
stays.
"""

from __future__ import annotations

from typing import Any

import pytest

from election.operators import BY_PREFERENCE, SWITCHOVER
from ops.checkpoint.history import history
from ops.clients.zookeeper import registry
from ops.cluster.status import status
from ops.cluster.switchover import switchover
from tests.support.cluster import Cluster
from tests.support.fates import check_exactly_once
from tests.support.fixtures import MakeCluster
from tests.support.operators import AUTHOR
from tests.support.traffic import Traffic
from tests.support.waiting import PATIENCE_S, becomes, eventually

AFTER_S = 2.0


@pytest.fixture
def cluster(make_cluster: MakeCluster) -> Cluster:
    """All of both lanes are led by a. Of lane 1, c is next, and b is preferred."""
    made = make_cluster(lanes=2)
    for lane, hosts in ((0, "ab"), (1, "acb")):
        start_all(made, lane, hosts)
    return made


def start_all(cluster: Cluster, lane: int, hosts: str, **of_the_last: Any) -> None:
    """In this order."""
    for count, host in enumerate(hosts, 1):
        start(cluster, host, lane, **of_the_last if count == len(hosts) else {})
        cluster.wait_candidates(count, lane)
    cluster.wait_epoch(1, lane)


def start(cluster: Cluster, host: str, lane: int, **more: Any) -> None:
    cluster.start(f"{host}-{lane}", lane=lane, prefers_after_s=AFTER_S, **more)


def leaders(cluster: Cluster, lane: int) -> list[str]:
    """Who has led it, in order."""
    return [one.node for one in cluster.leaderships(lane)]


def whats(cluster: Cluster) -> list[tuple[str, int | None, str | None, str | None]]:
    """What the znode of the history has."""
    with registry(cluster.connection) as znodes:
        return [(one.what, one.lane, one.before, one.after) for one in znodes.history()]


def test_the_leaders_are_spread_and_come_back_after_a_failover_exactly_once(cluster: Cluster) -> None:
    with Traffic(cluster) as traffic:
        assert cluster.wait_leadership(2, lane=1).node == "b-1"
        assert cluster.process("a-1").wait_event("switchover-wanted")["to"] == "b-1"
        cluster.process("b-1").kill()
        interim = cluster.wait_leadership(3, lane=1).node
        assert status(cluster.connection).lanes[1].preferred != "b-1"
        start(cluster, "b", 1)
        eventually(lambda: status(cluster.connection).lanes[1].preferred == "b-1", "it stands again")
        eventually(lambda: leaders(cluster, 1)[-1] == "b-1", "it leads again")
        cluster.wait_candidates(3, lane=1)
        cluster.wait_delivered(len(cluster.delivered) + 60)
        ledger = traffic.stop()
    check_exactly_once(cluster, ledger, lanes=2)
    assert leaders(cluster, 0) == ["a-0"]
    led = leaders(cluster, 1)
    assert (led[:3], led[-1]) == (["a-1", "b-1", interim], "b-1")
    handed_over = [(BY_PREFERENCE, 1, before, "b-1") for before in ("a-1", led[-2])]
    assert [one for one in whats(cluster) if one[3] == "b-1"] == handed_over
    becomes(lambda: cluster.kazoo.exists(cluster.znodes.switchover(1)), None)


def test_a_handover_by_preference_is_in_the_history_as_what_it_is(cluster: Cluster) -> None:
    cluster.wait_leadership(2, lane=1)
    found = history(cluster.connection, 1, 10).changes
    why = "b-1 is the preferred leader of lane 1"
    (wanted,) = [one for one in found if one.what == BY_PREFERENCE]
    assert (wanted.who, wanted.before, wanted.after, wanted.why) == ("a-1", "a-1", "b-1", why)
    _, led = [one for one in found if one.what == "leader"]
    assert (led.who, led.after, led.why) == ("a-1", "b-1, epoch 2", f"{BY_PREFERENCE}: {why}")


def test_what_an_operator_has_moved_stays_where_it_is(cluster: Cluster) -> None:
    """Until that leadership ends: then it counts no more."""
    cluster.wait_leadership(2, lane=1)
    cluster.wait_candidates(3, lane=1)
    switchover(cluster.connection, 1, "c-1", AUTHOR, PATIENCE_S)
    cluster.process("c-1").wait_event("preference-waived")
    assert leaders(cluster, 1) == ["a-1", "b-1", "c-1"]
    assert status(cluster.connection).lanes[1].preferred == "b-1"
    cluster.process("c-1").kill()
    eventually(lambda: leaders(cluster, 1)[-1] == "b-1", "b leads, at once or by preference")
    assert [one[0] for one in whats(cluster)][:2] == [BY_PREFERENCE, SWITCHOVER]
    with registry(cluster.connection) as znodes:
        assert [one.epoch for one in znodes.history()][:2] == [1, 2], (
            "each says whose leader it was to replace"
        )


def test_a_node_that_cannot_lead_gives_the_lane_back(make_cluster: MakeCluster) -> None:
    """It follows, so it is fit; its thread tries to make producers, all the while."""
    cluster = make_cluster(lanes=2)
    start_all(cluster, 1, "acb", cannot_lead=True)
    assert cluster.process("a-1").wait_event("switchover-wanted")["to"] == "b-1"
    cluster.process("b-1").wait_event("candidacy-given-back")
    assert cluster.wait_leadership(2, lane=1).node == "c-1"
