"""The audit of batches that nodes reject as a whole, and Kafka's own client reads."""

from __future__ import annotations

from pyspark.sql import SparkSession

from delayline.names import source
from delayline.settings import ClusterSettings
from node.kafka.fetch.records import MOST_UNPACKED_BYTES
from ops.clients.zookeeper import registry, required_keys
from pipeline.audit import AuditConfig, audit
from tests.integration.audited import Audited
from tests.integration.histories import DeadLetter, Outcome, Transaction
from tests.integration.sample_history import SampleHistory
from tests.stacks import Stack
from tests.support.cluster import Cluster
from tests.support.raw import Codec, Connection, RawRecord, batch_of

RECORDS = 20


def test_each_record_of_a_batch_that_was_rejected_as_a_whole_is_dead_by_its_letter(
    cluster: Cluster, stack: Stack, spark: SparkSession
) -> None:
    cluster.start_here("a")
    cluster.wait_epoch(1)
    target = (b"delay-target-topic", cluster.targets[0].encode())
    sound = RawRecord(value=b"x", headers=(target,))
    large = RawRecord(value=bytes(MOST_UNPACKED_BYTES // RECORDS), headers=(target,))  # together too large
    with Connection(stack.bootstrap) as connection:
        for batch in (batch_of([large] * RECORDS, Codec.GZIP), batch_of([sound])):
            produced = connection.produce(cluster.names.buffer, 0, batch)
    behind = source(cluster.names.buffer, 0, produced.base_offset)
    cluster.tail.wait(
        lambda: behind in {got.text("delay-source") for got in cluster.delivered},
        "what is behind it is delivered",
    )
    with registry(cluster.connection) as znodes:
        config = AuditConfig(stack.bootstrap, cluster.settings, required_keys(znodes))
    report = audit(spark, config).report
    assert report.violations == ()
    assert (report.classes["dead-lettered"], report.classes["delivered"]) == (RECORDS, 1)


def test_what_a_letter_says_of_a_batch_is_not_believed(cluster_name: str, audited: Audited) -> None:
    history = SampleHistory(ClusterSettings(cluster=cluster_name, partitions=2))
    sent = [history.schedule(f"in a batch {number}", 1.0) for number in range(3)]
    told = Outcome(
        "dead-lettered", sent[0], message=sent[0], code="undecodable", at_ms=history.base_ms + 9_000
    )
    buried = DeadLetter(sent[0], "undecodable", to=sent[-1])
    lying = Transaction(buries=[buried], tells=[told], passes=[sent[-1]], epoch=2, node="n2")
    report = audited(history, *sent, lying).report
    lost = {one.source for one in report.violations if one.kind == "lost"}
    assert lost == {one.source for one in sent[1:]}
