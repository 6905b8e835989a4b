"""The audit of a history written by hand: clean where all is right; every planted fault found and named."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
)
from pyspark.sql import SparkSession

from delayline.settings import ClusterSettings
from delayline.settings_versions import SettingsVersions
from pipeline.audit import AuditConfig, audit
from pipeline.audit.evidence import edges_ms
from pipeline.audit.report import KINDS
from pipeline.audit.snapshot import take_snapshot
from pipeline.errors import WrongInput
from pipeline.kafka.offsets import Keeping, TopicOffsets
from tests.integration.audited import Audited, check_accounted, found
from tests.integration.sample_history import CLASSES, FaultySample, SampleHistory
from tests.integration.sample_variants import CopiedHistory, FaultyCopied, ForgedHistory, RarerFaults
from tests.stacks import Stack
from tests.support.cluster import Cluster
from tests.support.keys import KEYRING
from tests.support.waiting import PATIENCE_S, eventually


@pytest.fixture
def settings(cluster_name: str) -> ClusterSettings:
    return ClusterSettings(cluster=cluster_name, partitions=2)


def check_counts(audited: Audited) -> None:
    """The report counts what the frames hold."""
    report, told = audited.report, audited.all
    assert {which: count for which, count in report.classes.items() if count} == told.classes
    assert report.requests == len(told.requests)
    assert report.ledger == audited.ledger_lines
    assert report.occurrences == told.occurrences
    assert report.overdue == told.overdue
    assert {kind: report.found(kind) for kind in KINDS if report.found(kind)} == Counter(
        one.kind for one in told.violations
    )
    assert report.lateness_ms.max == max(
        row["lateness_ms"] for row in told.messages if row["lateness_ms"] is not None
    )


def test_the_report_of_correct_histories_is_clean_and_counts_what_there_is(correct: Audited) -> None:
    check_counts(correct)
    assert correct.report.clean
    assert correct.report.ledger == correct.report.requests


def test_the_report_of_faulty_histories_counts_what_there_is(faulty: Audited) -> None:
    check_counts(faulty)


def test_every_request_of_a_correct_history_is_in_its_class(correct: Audited) -> None:
    _, told = correct[SampleHistory]
    check_accounted(told, CLASSES)


def test_what_strangers_forge_and_copy_is_no_flaw_of_the_service(correct: Audited) -> None:
    _, told = correct[ForgedHistory]
    check_accounted(told, CLASSES | {"dead-lettered": CLASSES["dead-lettered"] + 1})


def test_a_copy_of_what_an_aborted_transaction_wrote_back_is_no_flaw_of_the_service(correct: Audited) -> None:
    _, told = correct[CopiedHistory]
    check_accounted(told, CLASSES)


def test_what_comes_of_copies_is_found(faulty: Audited) -> None:
    history, told = faulty[FaultyCopied]
    assert Counter((one.kind, one.source) for one in told.violations) == {
        ("duplicated", history.parked.source): 1,  # of one that was aborted, and believed
        ("unexplained", history.buried.source): 2,  # a dead letter, and its outcome
    }


def test_each_fault_is_found_and_named_and_nothing_else(faulty: Audited) -> None:
    history, told = faulty[FaultySample]
    details = {one.kind: one.detail for one in told.violations if one.source != history.doomed.source}
    of_parked = [one.detail for one in told.violations if one.source == history.parked.source]
    [moved_back] = [one.source for one in told.violations if one.kind == "checkpoint_moved_back"]
    assert found(told) == {
        ("altered", history.one.source),
        ("early", history.three.source),
        ("out_of_order", history.four.source),
        ("lost", history.six.source),
        ("lost", history.hostile.source),
        ("lost", history.parked.source),
        ("duplicated", history.seven.source),
        ("false_outcome", history.too_late.source),
        ("false_outcome", history.doomed.source),
        ("checkpoint_moved_back", moved_back),
    }
    assert details["altered"].endswith("differs in headers")
    assert details["checkpoint_moved_back"].startswith("position ")
    assert (told.classes["lost"], told.overdue) == (3, 1)
    assert of_parked[0].endswith("nothing was written back to be tried later")


def test_each_rarer_fault_is_found_and_named_and_nothing_else(faulty: Audited) -> None:
    history, told = faulty[RarerFaults]
    checkpoint = history.lane.names.checkpoint + "/"
    assert {(kind, source) for kind, source in found(told) if not source.startswith(checkpoint)} == {
        ("lost", history.cancel.source),
        ("lost", history.overdue.source),
        ("unexplained", history.of_nothing),
        ("false_outcome", history.stale.source),
        ("altered", history.reject.source),
        ("duplicated", history.parked.source),
        ("early", history.last.source),
        ("missing_from_buffer", history.not_there),
    }
    of_checkpoints = [kind for kind, source in found(told) if source.startswith(checkpoint)]
    assert sorted(of_checkpoints) == ["checkpoint_moved_back", "epochs_overlapping", "unexplained"]
    assert (told.overdue, told.classes["cancelled"]) == (1, 1)


def test_a_ledger_with_a_broken_line_proves_nothing_and_is_refused(
    correct: Audited, spark: SparkSession, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger.jsonl"
    assert correct.config.ledger is not None
    ledger.write_text(correct.config.ledger.read_text() + '{"source": "')
    with pytest.raises(WrongInput, match=r"ledger.jsonl: 1 of \d+ lines"):
        audit(spark, replace(correct.config, ledger=ledger))


def test_what_retention_cannot_have_taken_yet_is_not_excused_by_an_empty_partition(
    spark: SparkSession,
) -> None:
    records = spark.createDataFrame(
        [("t", 1, 500), ("t", 1, 400), ("u", 0, 950)], "topic string, partition int, timestamp_ms long"
    )
    cut = [("t", 0), ("t", 1), ("u", 0)]
    assert edges_ms(records, cut, {"t": 300, "u": 900}) == {"t": 300, "u": 900}
    assert edges_ms(records, cut, {"t": 1_000, "u": 1_000}) == {"t": 1_000, "u": 950}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"retention.ms": "1000"}, Keeping(None, 1_000)),
        ({"retention.ms": "1000", "retention.bytes": "1000"}, Keeping(None, 0)),
        ({"retention.ms": "-1"}, Keeping(None, 0)),
        ({"cleanup.policy": "compact", "min.compaction.lag.ms": "7"}, Keeping(7, 0)),
    ],
    ids=["by time", "by size", "for ever", "compacted"],
)
def test_what_a_topic_surely_keeps_is_read_from_its_settings(
    stack: Stack, settings: ClusterSettings, config: dict[str, str], expected: Keeping
) -> None:
    topic = settings.cluster
    admin = AdminClient({"bootstrap.servers": stack.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result()
    # That was the controller's word; a broker knows of it a moment later.
    eventually(lambda: topic in admin.list_topics(timeout=PATIENCE_S).topics, f"{topic} is there")
    assert TopicOffsets(AuditConfig(stack.bootstrap, SettingsVersions.of(settings), KEYRING)).keeping(
        [topic]
    ) == {topic: expected}


def test_a_topic_that_is_deleted_while_the_ends_are_noted_is_left_out(
    cluster: Cluster, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, deleted = TopicOffsets.partitions, cluster.target()

    def deletes_what_it_has_listed(self: TopicOffsets) -> dict[str, int]:
        partitions = listed(self)
        if deleted in partitions:
            cluster.delete_topic(deleted)
        return partitions

    monkeypatch.setattr(TopicOffsets, "partitions", deletes_what_it_has_listed)
    offsets = TopicOffsets(AuditConfig(stack.bootstrap, SettingsVersions.of(cluster.settings), KEYRING))
    snapshot = take_snapshot(offsets, cluster.names)
    assert deleted not in snapshot.partitions
    assert {topic for topic, _ in snapshot.buffer.end} == {cluster.names.buffer}
