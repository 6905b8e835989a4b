"""The broker dies in the middle of transactions, and comes back on the same data."""

from __future__ import annotations

import pytest

from node.core.steps import Step
from ops.stack import LocalStack
from tests.support.fates import check_exactly_once
from tests.support.fixtures import MakeCluster
from tests.support.traffic import Traffic


@pytest.mark.parametrize("step", [Step.AFTER_PRODUCE, Step.AFTER_CHECKPOINT_RECORD, Step.DURING_COMMIT])
def test_a_broker_killed_in_a_transaction_costs_no_message(
    private: LocalStack, make_cluster: MakeCluster, step: Step
) -> None:
    cluster = make_cluster(private)
    for node_id in ("a", "b"):
        cluster.start(node_id, step=step, signal_name="SIGSTOP")
    cluster.wait_candidates(2)
    leader = cluster.leader()
    with Traffic(cluster, transactions=False) as traffic:
        cluster.wait_delivered(60)
        leader.arm()
        leader.wait_paused()  # its transaction is open
        private.kafka.kill()
        leader.resume()
        private.kafka.start()
        cluster.wait_delivered(len(cluster.delivered) + 60)
        ledger = traffic.stop()
    check_exactly_once(cluster, ledger)
