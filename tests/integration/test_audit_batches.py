"""The audit of batches that nodes reject as a whole, and Kafka's own client reads."""

from __future__ import annotations

from pyspark.sql import SparkSession

from delayline.names import source
from delayline.settings_versions import SettingsVersions
from node.kafka.fetch.records import MOST_UNPACKED_BYTES
from ops.clients.zookeeper import registry, required_keys
from pipeline.audit import AuditConfig, audit
from tests.integration.audited import Audited
from tests.integration.sample_variants import LyingLetter
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
        config = AuditConfig(stack.bootstrap, SettingsVersions.of(cluster.settings), required_keys(znodes))
    report = audit(spark, config).report
    assert report.violations == ()
    assert (report.classes["dead-lettered"], report.classes["delivered"]) == (RECORDS, 1)


def test_what_a_letter_says_of_a_batch_is_not_believed(faulty: Audited) -> None:
    history, told = faulty[LyingLetter]
    lost = {one.source for one in told.violations if one.kind == "lost"}
    assert lost == {one.source for one in history.sent[1:]}
