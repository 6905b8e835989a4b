"""The audit of a history written by hand: clean where all is right; every planted fault found and named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
)
from pyspark.sql import SparkSession

from delayline.headers import H_PARENT, H_ROOT, H_TARGET_TOPIC
from delayline.requests import BufferRecord
from delayline.settings import ClusterSettings
from delayline.wire import Header
from pipeline.audit import AuditConfig, audit
from pipeline.audit.evidence import edges_ms
from pipeline.audit.snapshot import Keeping, TopicOffsets
from pipeline.errors import WrongInput
from tests.integration.audited import Audited, check_accounted, found
from tests.integration.histories import CopyOf, DeadLetter, Delivery, Later, Outcome, Request, Transaction
from tests.integration.planted import Planted
from tests.integration.sample_history import CLASSES, SampleHistory
from tests.stacks import Stack
from tests.support.keys import KEYRING
from tests.support.waiting import PATIENCE_S, eventually


@pytest.fixture
def settings(cluster_name: str) -> ClusterSettings:
    return ClusterSettings(cluster=cluster_name, partitions=2)


@pytest.fixture
def history(settings: ClusterSettings) -> SampleHistory:
    return SampleHistory(settings)


def test_every_request_of_a_correct_history_is_in_its_class(history: SampleHistory, audited: Audited) -> None:
    check_accounted(audited(history).report, CLASSES)


def bad_parents(history: SampleHistory, *strange: Request) -> Transaction:
    """The service makes dead letters of them."""
    at_ms = history.base_ms + 9_000
    return Transaction(
        buries=[DeadLetter(one, "bad-parent") for one in strange],
        tells=[Outcome("dead-lettered", one, message=one, code="bad-parent", at_ms=at_ms) for one in strange],
        epoch=2,
        node="n2",
    )


def aborted_and_copied(history: SampleHistory) -> tuple[Transaction, CopyOf]:
    """A transaction that is aborted, and a copy of what it wrote back."""
    tried = Later(history.parked, history.base_ms + 9_000)
    return Transaction(writes_back=[tried], epoch=2, node="n2", aborted=True), CopyOf(tried)


def test_what_strangers_forge_and_copy_is_no_flaw_of_the_service(
    history: SampleHistory, audited: Audited
) -> None:
    copy = CopyOf(history.third_try)
    root = f"{history.settings.cluster}.buffer/0/0".encode()
    forged: list[Header] = [(H_TARGET_TOPIC, b"orders"), (H_PARENT, b"0"), (H_ROOT, root)]
    made_up = Request(BufferRecord(b"k", b"made up", forged), 0)
    ended = bad_parents(history, copy, made_up)
    audited.rejected_checkpoints = [b"{}", b"none"]
    far_ahead = {"position": [history.base_ms + 4_000_000, 0, 0]}
    aborted = Transaction(claims=far_ahead, epoch=2, node="n2", aborted=True)
    report = audited(history, copy, made_up, ended, aborted).report
    assert report.violations == ()
    assert report.classes["dead-lettered"] == CLASSES["dead-lettered"] + 2


def test_a_copy_of_what_an_aborted_transaction_wrote_back_is_no_flaw_of_the_service(
    history: SampleHistory, audited: Audited
) -> None:
    aborted, copy = aborted_and_copied(history)
    report = audited(history, aborted, copy, bad_parents(history, copy)).report
    assert report.violations == ()
    assert report.classes["dead-lettered"] == CLASSES["dead-lettered"] + 1


def test_a_copy_of_what_an_aborted_transaction_wrote_back_that_was_believed_is_found(
    history: SampleHistory, audited: Audited
) -> None:
    aborted, copy = aborted_and_copied(history)
    believed = Transaction(delivers=[Delivery(history.parked, source=copy.source)], epoch=2, node="n2")
    report = audited(history, aborted, copy, believed).report
    assert ("duplicated", history.parked.source) in found(report)
    assert ("lost", copy.source) in found(report), "it is a reject without a letter"


def test_each_fault_is_found_and_named_and_nothing_else(planted: Planted) -> None:
    history, report = planted.history, planted.found.report
    details = {one.kind: one.detail for one in report.violations if one.source != history.doomed.source}
    of_parked = [one.detail for one in report.violations if one.source == history.parked.source]
    [moved_back] = [v.source for v in report.violations if v.kind == "checkpoint_moved_back"]
    assert found(report) == {
        ("altered", history.one.source),
        ("early", history.three.source),
        ("out_of_order", history.four.source),
        ("lost", history.six.source),
        ("lost", planted.hostile.source),
        ("lost", history.parked.source),
        ("duplicated", history.seven.source),
        ("false_outcome", history.too_late.source),
        ("false_outcome", history.doomed.source),
        ("checkpoint_moved_back", moved_back),
    }
    assert details["altered"].endswith("differs in headers")
    assert details["checkpoint_moved_back"].startswith("position ")
    assert (report.lost, report.overdue) == (report.classes["lost"], 1) == (3, 1)
    assert of_parked[0].endswith("nothing was written back to be tried later")


def test_each_rarer_fault_is_found_and_named_and_nothing_else(
    history: SampleHistory, audited: Audited, settings: ClusterSettings
) -> None:
    buffer = f"{settings.cluster}.buffer"
    overdue = history.schedule("never delivered", 8.0)
    del history.answers.tells[0]  # the answer to the cancel that was carried out
    history.ending.delivers.append(Delivery(history.last, source=f"{buffer}/0/4711"))
    history.catching_up.buries[0].code = history.catching_up.tells[0].code = "bad-after"
    history.catching_up.tells[0].outcome = "dead-lettered"
    history.ending.early_ms = 501
    history.answers.buries[0].with_value = False
    history.catching_up.delivers.append(Delivery(history.second_try))
    history.failover.claims = {"delivered_up_to_ms": history.base_ms + 6_500}
    audited.acknowledged_too[f"{buffer}/1/4711"] = history.one.record
    back = Transaction(epoch=2, node="n2", claims={"delivered_up_to_ms": history.base_ms})
    report = audited(history, overdue, back, Transaction(epoch=1, node="n1")).report
    checkpoint = f"{settings.cluster}.checkpoint/"
    assert {(kind, source) for kind, source in found(report) if not source.startswith(checkpoint)} == {
        ("lost", history.cancel.source),
        ("lost", overdue.source),
        ("unexplained", f"{buffer}/0/4711"),
        ("false_outcome", history.stale.source),
        ("altered", history.reject.source),
        ("duplicated", history.parked.source),
        ("early", history.last.source),
        ("missing_from_buffer", f"{buffer}/1/4711"),
    }
    of_checkpoints = [kind for kind, source in found(report) if source.startswith(checkpoint)]
    assert sorted(of_checkpoints) == ["checkpoint_moved_back", "epochs_overlapping", "unexplained"]
    assert (report.lost, report.overdue, report.classes["cancelled"]) == (2, 1, 1)


def test_a_ledger_with_a_broken_line_proves_nothing_and_is_refused(
    planted: Planted, spark: SparkSession, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger.jsonl"
    assert planted.config.ledger is not None
    ledger.write_text(planted.config.ledger.read_text() + '{"source": "')
    with pytest.raises(WrongInput, match=r"ledger.jsonl: 1 of \d+ lines"):
        audit(spark, replace(planted.config, ledger=ledger))


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
    assert TopicOffsets(AuditConfig(stack.bootstrap, settings, KEYRING)).keeping([topic]) == {topic: expected}
