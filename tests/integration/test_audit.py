"""The audit of a history written by hand: clean where all is right; every planted fault found and named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from delayline.requests import BufferRecord
from delayline.settings import ClusterSettings
from ops.audit import Audit, AuditConfig, LedgerWriter, Report, audit, spark_session
from tests.integration.histories import Delivery, Transaction, Writer
from tests.integration.sample_history import CLASSES, USER_HEADERS, SampleHistory
from tests.stacks import Stack


class Audited:
    """Writes a history, with a ledger, and audits it when all of it is due."""

    def __init__(self, stack: Stack, spark: SparkSession, settings: ClusterSettings, ledger: Path) -> None:
        self._stack = stack
        self._spark = spark
        self._settings = settings
        self._ledger = ledger
        self.acknowledged_too: dict[str, BufferRecord] = {}

    def __call__(self, history: SampleHistory, *more: Transaction) -> Report:
        with LedgerWriter(self._ledger) as ledger:
            Writer(self._stack.bootstrap, self._settings, ledger).write([*history.steps, *more])
            for source, record in self.acknowledged_too.items():
                ledger.add(source, record)
        return self.audit(history).report

    def audit(self, history: SampleHistory) -> Audit:
        config = AuditConfig(
            self._stack.bootstrap, self._settings, ledger=self._ledger, now_ms=history.end_ms
        )
        return audit(self._spark, config)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = spark_session(compiled=False)
    yield session
    session.stop()


@pytest.fixture
def settings(cluster_name: str) -> ClusterSettings:
    return ClusterSettings(cluster=cluster_name, partitions=2)


@pytest.fixture
def history(settings: ClusterSettings) -> SampleHistory:
    return SampleHistory(settings)


@pytest.fixture
def audited(stack: Stack, spark: SparkSession, settings: ClusterSettings, tmp_path: Path) -> Audited:
    return Audited(stack, spark, settings, tmp_path / "ledger.jsonl")


def kinds(report: Report) -> list[str]:
    return [violation.kind for violation in report.violations]


def test_every_request_of_a_correct_history_is_in_its_class(history: SampleHistory, audited: Audited) -> None:
    report = audited(history)
    assert report.violations == ()
    assert {name: count for name, count in report.classes.items() if count} == CLASSES


def test_a_message_that_is_nowhere_is_lost(history: SampleHistory, audited: Audited) -> None:
    del history.in_time.delivers[1]
    report = audited(history)
    assert kinds(report) == ["lost"]
    assert report.lost == report.classes["lost"] == 1
    assert report.violations[0].source == history.two.source


def test_a_message_that_is_there_twice_is_duplicated(history: SampleHistory, audited: Audited) -> None:
    history.ending.delivers.append(Delivery(history.one))
    report = audited(history)
    assert kinds(report) == ["duplicated"]
    assert report.violations[0].source == history.one.source


def test_a_message_one_millisecond_before_its_time_is_early(history: SampleHistory, audited: Audited) -> None:
    history.in_time.delivers[2].early_ms = 1
    report = audited(history)
    assert kinds(report) == ["early"]
    assert report.violations[0].source == history.three.source


def test_one_changed_byte_of_a_header_is_an_alteration(history: SampleHistory, audited: Audited) -> None:
    history.in_time.delivers[0].headers = [("trace", b"\x00\x01"), ("trace", b"\x00\x00"), *USER_HEADERS[2:]]
    report = audited(history)
    assert kinds(report) == ["altered"]
    assert report.violations[0].source == history.one.source
    assert report.violations[0].detail.endswith("differs in headers")


def test_messages_in_time_that_have_changed_places_are_out_of_order(
    history: SampleHistory, audited: Audited
) -> None:
    one, two, three = history.in_time.delivers
    history.in_time.delivers = [two, one, three]
    report = audited(history)
    assert kinds(report) == ["out_of_order"]
    assert report.violations[0].source == history.one.source


def test_a_cancel_that_came_too_late_and_claims_otherwise_is_a_false_outcome(
    history: SampleHistory, audited: Audited
) -> None:
    history.ending.tells[0].outcome = "cancelled"
    report = audited(history)
    assert kinds(report) == ["false_outcome"]
    assert report.violations[0].source == history.too_late.source


def test_a_cancelled_message_that_arrives_makes_its_outcome_false(
    history: SampleHistory, audited: Audited
) -> None:
    history.ending.delivers.append(Delivery(history.doomed))
    history.ending.passes.append(history.doomed)
    report = audited(history)
    assert kinds(report) == ["false_outcome"]
    assert report.violations[0].source == history.doomed.source


def test_a_checkpoint_that_takes_its_position_back_is_named(history: SampleHistory, audited: Audited) -> None:
    back = Transaction(passes=[history.one], epoch=2, node="n2")
    report = audited(history, back)
    assert kinds(report) == ["checkpoint_moved_back"]
    assert report.checkpoint_moved_back == 1


def test_a_master_that_commits_in_an_epoch_gone_by_overlaps_the_next(
    history: SampleHistory, audited: Audited
) -> None:
    report = audited(history, Transaction(epoch=1, node="n1"))
    assert kinds(report) == ["epochs_overlapping"]


def test_a_delivery_for_which_there_is_no_request_is_unexplained(
    history: SampleHistory, audited: Audited, settings: ClusterSettings
) -> None:
    nowhere = f"{settings.cluster}.buffer/0/4711"
    history.ending.delivers.append(Delivery(history.last, source=nowhere))
    report = audited(history)
    assert kinds(report) == ["unexplained"]
    assert report.violations[0].source == nowhere


def test_a_control_request_without_an_answer_is_lost(history: SampleHistory, audited: Audited) -> None:
    del history.ending.tells[0]
    report = audited(history)
    assert kinds(report) == ["lost"]
    assert report.violations[0].source == history.too_late.source


def test_what_nobody_has_delivered_when_it_was_due_is_overdue(
    history: SampleHistory, audited: Audited
) -> None:
    history.ending.delivers, history.ending.passes = [], []
    report = audited(history)
    assert kinds(report) == ["lost"]
    assert report.overdue == 1
    assert report.violations[0].source == history.last.source


def test_what_was_acknowledged_and_is_not_in_the_buffer_is_missing_from_it(
    history: SampleHistory, audited: Audited, settings: ClusterSettings
) -> None:
    nowhere = f"{settings.cluster}.buffer/1/4711"
    audited.acknowledged_too[nowhere] = history.one.record
    report = audited(history)
    assert kinds(report) == ["missing_from_buffer"]
    assert report.violations[0].source == nowhere
