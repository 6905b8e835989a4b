"""ZooKeeper goes away for longer than a session: a ZooKeeper outage stops elections, not deliveries."""

from __future__ import annotations

from collections.abc import Callable

from ops.stack import LocalStack
from tests.stacks import GivenStack, Stack
from tests.support.cluster import SESSION_TIMEOUT_S
from tests.support.fates import check_exactly_once
from tests.support.fixtures import MakeCluster
from tests.support.requests import now_ms
from tests.support.traffic import Traffic
from tests.support.waiting import eventually


def test_deliveries_go_on_without_zookeeper_and_the_leader_stays(
    stack: Stack, private_stack: Callable[..., LocalStack], make_cluster: MakeCluster
) -> None:
    private = private_stack(kafka=False)
    cluster = make_cluster(GivenStack(stack.bootstrap, private.zookeeper))
    # So long has it, from when ZooKeeper is back, to be there again.
    leader = cluster.start("a", session_timeout_s=5 * SESSION_TIMEOUT_S)
    cluster.wait_candidates(1)
    cluster.start("b")
    cluster.wait_candidates(2)
    with Traffic(cluster) as traffic:
        cluster.wait_delivered(60)
        private.zk.kill()
        gone_ms = now_ms()
        longer_than_a_session = gone_ms + 1.5 * SESSION_TIMEOUT_S * 1000
        cluster.tail.wait(
            lambda: max(got.timestamp_ms for got in cluster.delivered) > longer_than_a_session,
            "messages still arrive after more than a session without ZooKeeper",
        )
        private.zk.start()
        eventually(
            lambda: cluster.member(leader.node_id).get("at_ms", 0) > longer_than_a_session,
            "the leader is seen again",
        )
        assert cluster.wait_candidates(2) == ["a", "b"], "the same node is leader"
        assert [one.node for one in cluster.leaderships()] == ["a"], "nobody else was"
        leader.kill()
        cluster.wait_leadership(2)
        ledger = traffic.stop()
    check_exactly_once(cluster, ledger)


def test_a_leader_that_dies_without_zookeeper_is_succeeded_when_it_is_back(
    stack: Stack, private_stack: Callable[..., LocalStack], make_cluster: MakeCluster
) -> None:
    private = private_stack(kafka=False)
    cluster = make_cluster(GivenStack(stack.bootstrap, private.zookeeper))
    for node_id in ("a", "b"):
        cluster.start(node_id)
    leader_id, follower_id = cluster.wait_candidates(2)
    leader = cluster.process(leader_id)
    with Traffic(cluster) as traffic:
        cluster.wait_delivered(60)
        private.zk.kill()
        leader.kill()
        private.zk.start()
        assert cluster.wait_leadership(2).node == follower_id
        ledger = traffic.stop()
    check_exactly_once(cluster, ledger)
