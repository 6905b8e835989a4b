"""The audit of a cluster whose settings were changed."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from delayline.outcome_kinds import OutcomeKind
from delayline.receipt import Receipt
from delayline.settings_versions import SettingsVersions
from election.operators import Author
from node.status import NodeState
from ops.clients.zookeeper import read_keys
from ops.settings import change
from ops.topics import cluster_topics
from pipeline.audit import AuditConfig, audit
from pipeline.errors import WrongInput
from tests.support.cluster import Cluster
from tests.support.fixtures import MakeCluster
from tests.support.requests import Sender
from tests.support.waiting import PATIENCE_S

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
AUTHOR = Author("somebody", "to see what an audit says", 1)


@pytest.fixture
def cluster(make_cluster: MakeCluster) -> Cluster:
    return make_cluster(max_delay_ms=HOUR_MS, levels_ms=(HOUR_MS,))


def config_of(cluster: Cluster, versions: SettingsVersions) -> AuditConfig:
    return AuditConfig(cluster.bootstrap, versions, read_keys(cluster.connection))


def change_to(cluster: Cluster, max_delay_ms: int) -> None:
    change.change(cluster.connection, {"max_delay_ms": max_delay_ms, "levels_ms": (1,)}, AUTHOR, PATIENCE_S)


def test_a_change_that_came_once_the_audit_knew_the_settings_is_audited_as_what_it_is(
    cluster: Cluster, spark: SparkSession
) -> None:
    """Its ends are noted later than the settings are read."""
    cluster.start_here("a")
    cluster.wait_state("a", NodeState.LEADER)
    config = config_of(cluster, cluster_topics.read_versions(cluster.connection))
    with Sender(cluster) as sender:
        before = too_long(sender)
        sender.flush()
        change_to(cluster, DAY_MS)
        after = too_long(sender)
        sender.flush()
        cluster.tail.wait(lambda: len(cluster.dead_letters) == 1, "the first one is a dead letter")
    found = audit(spark, config)
    classes = {row["source"]: row["class"] for row in found.requests.collect()}
    assert found.report.violations == ()
    assert (classes[before.result()], classes[after.result()]) == (OutcomeKind.DEAD_LETTERED, "pending")


def too_long(sender: Sender) -> Receipt:
    """At first."""
    return sender.schedule(after_ms=2 * HOUR_MS)


def test_settings_of_another_cluster_are_refused(cluster: Cluster, spark: SparkSession) -> None:
    change_to(cluster, DAY_MS)
    others = cluster_topics.read_versions(cluster.connection).changed(cluster.settings, {}, "", "", 0)
    change_to(cluster, 2 * DAY_MS)
    with pytest.raises(WrongInput, match="are not those in"):
        audit(spark, config_of(cluster, others))
