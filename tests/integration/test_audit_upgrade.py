"""A cluster goes from an earlier release to the code of now and back, node by node, under load: nothing is
lost, doubled or falsely answered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest
from pyspark.sql import SparkSession

from delayline import DelayProducer, cron, every
from delayline.headers import H_OCCURRENCE
from node.status import NodeState
from ops.topics import cluster_topics
from pipeline.audit import AuditConfig, audit
from tests.conftest import SPARK_DEADLINE_S
from tests.stacks import Stack
from tests.support.cluster import Cluster
from tests.support.fates import check_exactly_once
from tests.support.fixtures import MakeCluster
from tests.support.released import FIRST, NOW, Release
from tests.support.requests import Sender, now_ms
from tests.support.tail import Tail
from tests.support.traffic import Traffic

NODES = ("a", "b", "c")
CHAINS = "chains"
OCCURRENCES = 15
COUNT = 10
MADE = ("--partitions", "2", "--max-delay", "30d")
MAX_DELAY_MS = 30 * 86_400_000


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return Release.unpacked(FIRST, tmp_path_factory.mktemp(FIRST))


def at(stack: Stack | Cluster, name: str) -> tuple[str, ...]:
    return "--cluster", name, "--bootstrap", stack.bootstrap, "--zookeeper", stack.zookeeper


def run(cluster: Cluster, node: str, release: Release) -> None:
    if release is NOW:
        cluster.start(node)
    else:
        cluster.start_released(release, node)


def roll(cluster: Cluster, to: Release) -> None:
    """One node after the other, as soon as the one before stands. The leader, which is the last, is killed:
    one of the other version takes over what it has left open.
    """
    leader, *others = cluster.wait_candidates(len(NODES))
    for node in others:
        before = cluster.process(node)
        before.terminate()
        assert before.wait_exit() == 0
        run(cluster, node, to)
        cluster.wait_candidates(len(NODES))
    leaderships = len(cluster.leaderships())
    cluster.process(leader).kill()
    cluster.wait_leadership(leaderships + 1)
    run(cluster, leader, to)
    cluster.wait_candidates(len(NODES))


def begin_chains(producer: DelayProducer, target: str) -> list[bytes]:
    """Recurring messages of each kind, which go on through all that comes."""
    producer.schedule(target, b"named", id="chain", repeat=every("1s", times=OCCURRENCES))
    producer.schedule(target, b"nameless", repeat=every("1s", times=OCCURRENCES))
    producer.schedule(target, b"cron", repeat=cron("* * * * * *", times=OCCURRENCES))
    return [b"named", b"nameless", b"cron"]


def check_chains(cluster: Cluster, values: Sequence[bytes]) -> None:
    """Each occurrence once, in order."""
    target = cluster.target(CHAINS)
    with closing(Tail(cluster.bootstrap, [target])) as tail:
        came = tail.records[target]
        tail.wait(lambda: len(came) >= OCCURRENCES * len(values), "the chains end")
        tail.catch_up()
    for value in values:
        numbers = sorted(got.number(H_OCCURRENCE) for got in came if got.value == value)
        assert numbers == list(range(1, OCCURRENCES + 1)), value


def there_and_back(cluster: Cluster, versions: Sequence[Release]) -> None:
    """The first of the versions runs the cluster, and under load each of the others does in turn."""
    cluster.make_topics({cluster.target(CHAINS): {}})
    for node in NODES:
        run(cluster, node, versions[0])
    cluster.wait_candidates(len(NODES))
    with Sender(cluster) as sender, Traffic(cluster, period_s=0.01) as traffic:
        waiting = [sender.schedule(at_ms=now_ms() + 3_600_000, id=f"waits-{number}") for number in range(50)]
        with DelayProducer(cluster.bootstrap, cluster=cluster.name) as producer:
            chains = begin_chains(producer, cluster.target(CHAINS))
        for version in versions[1:]:
            roll(cluster, version)
        for number in range(len(waiting)):
            sender.run_now(f"waits-{number}")
        ledger = traffic.stop()
        ledger.add(sender.flush())
    check_exactly_once(cluster, ledger)
    check_chains(cluster, chains)


def check_audited(cluster: Cluster, spark: SparkSession) -> None:
    """The audit of now accounts for every request."""
    report = audit(
        spark, AuditConfig(cluster.bootstrap, cluster_topics.read_versions(cluster.connection), cluster.keys)
    ).report
    assert report.clean, report.as_dict()
    assert report.requests > 500


@contextmanager
def audited_by(release: Release, cluster: Cluster) -> Iterator[None]:
    """Another version's accounts for them, too, meanwhile."""
    with ThreadPoolExecutor(1) as pool:
        audit_of_release = pool.submit(release.run, "audit", *at(cluster, cluster.name), "-o", "json")
        yield
        done = audit_of_release.result()
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(2 * SPARK_DEADLINE_S)  # two audits, each with a Spark of its own
def test_a_cluster_of_the_first_release_is_upgraded_and_downgraded(
    first: Release, make_cluster: MakeCluster, cluster_name: str, stack: Stack, spark: SparkSession
) -> None:
    made = first.run("topics", "create", *at(stack, cluster_name), *MADE)
    assert made.returncode == 0, made.stderr
    cluster = make_cluster(max_delay_ms=MAX_DELAY_MS, meaning=1)
    there_and_back(cluster, (first, NOW, first))
    with audited_by(first, cluster):
        check_audited(cluster, spark)


def test_a_cluster_of_the_first_meaning_that_was_made_now_is_downgraded_and_upgraded(
    first: Release, make_cluster: MakeCluster, spark: SparkSession
) -> None:
    cluster = make_cluster(max_delay_ms=MAX_DELAY_MS, meaning=1)
    there_and_back(cluster, (NOW, first, NOW))
    check_audited(cluster, spark)


@pytest.mark.walks("settings-newer")
def test_the_first_release_refuses_a_cluster_that_carries_and_upgraded_again_it_goes_on(
    first: Release, make_cluster: MakeCluster
) -> None:
    cluster = make_cluster(retention_ms=7 * 86_400_000)
    with Sender(cluster) as sender:
        node = cluster.start("a")
        for number in range(COUNT):
            sender.schedule()
            sender.schedule(at_ms=now_ms() + 3_600_000, id=f"later-{number}")
        sender.flush()
        cluster.wait_delivered(COUNT)
        node.terminate()
        node.wait_exit()
        old = cluster.start_released(first, "a")
        said = cluster.wait_state("a", NodeState.REFUSING)
        assert said["reason"].startswith("settings-newer: ")
        assert said["way_out"].startswith("Upgrade this node")
        typed = first.run("topics", "check", *at(cluster, cluster.name))
        assert typed.returncode != 0
        assert "is of a newer version" in typed.stderr
        for number in range(COUNT):
            sender.run_now(f"later-{number}")
        old.terminate()
        assert old.wait_exit() == 0
        cluster.start("a")
        ledger = sender.flush()
        check_exactly_once(cluster, ledger)
