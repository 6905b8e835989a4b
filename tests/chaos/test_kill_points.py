"""The leader kills itself between two steps, with all kinds of requests in flight; another carries on."""

from __future__ import annotations

import signal

import pytest

from node.core.steps import Step
from tests.support.cluster import Cluster
from tests.support.fates import check_exactly_once
from tests.support.traffic import Traffic

# During the commit: before it has left the process, on its way, and answered or nearly so.
POINTS = [
    (Step.BEFORE_BEGIN, 0.0),
    (Step.AFTER_PRODUCE, 0.0),
    (Step.AFTER_CHECKPOINT_RECORD, 0.0),
    pytest.param(Step.DURING_COMMIT, 0.0, marks=pytest.mark.fast),
    (Step.DURING_COMMIT, 0.001),
    (Step.DURING_COMMIT, 0.003),
    (Step.AFTER_COMMIT, 0.0),
    (Step.AFTER_MIRROR, 0.0),
]


@pytest.mark.parametrize(("step", "delay_s"), POINTS, ids=str)
def test_a_leader_killed_at_any_step_is_succeeded_exactly_once(
    cluster: Cluster, step: Step, delay_s: float
) -> None:
    for node_id in ("a", "b"):
        cluster.start(node_id, step=step, delay_s=delay_s)
    leader_id, follower_id = cluster.wait_candidates(2)
    leader = cluster.process(leader_id)
    with Traffic(cluster) as traffic:
        cluster.wait_delivered(60)
        leader.arm()
        assert leader.wait_exit() == -signal.SIGKILL, "it killed itself at the step"
        assert cluster.wait_leadership(2).node == follower_id
        cluster.wait_delivered(len(cluster.delivered) + 60)
        ledger = traffic.stop()
    check_exactly_once(cluster, ledger)
