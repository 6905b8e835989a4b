"""The audit of a batch that nodes reject as a whole, and Kafka's own client reads."""

from __future__ import annotations

import pytest

from delayline.settings import ClusterSettings
from tests.integration.audited import Audited
from tests.integration.histories import DeadLetter, Delivery, Outcome, Request, Step, Transaction
from tests.integration.sample_history import CLASSES, SampleHistory


@pytest.fixture
def history(cluster_name: str) -> SampleHistory:
    return SampleHistory(ClusterSettings(cluster=cluster_name, partitions=2))


def batch(history: SampleHistory) -> list[Request]:
    """Three sound messages, each due long before the audit."""
    return [history.schedule(f"in a batch {number}", 1.0) for number in range(3)]


def rejected(history: SampleHistory, sent: list[Request], *delivers: Delivery) -> list[Step]:
    letter = DeadLetter(sent[0], "undecodable", to=sent[-1])
    told = Outcome(
        "dead-lettered", sent[0], message=sent[0], code="undecodable", at_ms=history.base_ms + 9_000
    )
    ended = Transaction(buries=[letter], tells=[told], delivers=list(delivers), epoch=2, node="n2")
    return [*sent, ended]


def test_each_record_of_a_batch_that_was_rejected_as_a_whole_is_dead_by_its_letter(
    history: SampleHistory, audited: Audited
) -> None:
    report = audited(history, *rejected(history, batch(history))).report
    assert report.violations == ()
    assert report.classes["dead-lettered"] == CLASSES["dead-lettered"] + 3


def test_a_record_of_a_rejected_batch_that_is_delivered_as_well_is_a_duplicate(
    history: SampleHistory, audited: Audited
) -> None:
    sent = batch(history)
    report = audited(history, *rejected(history, sent, Delivery(sent[1]))).report
    assert ("duplicated", sent[1].source) in {(one.kind, one.source) for one in report.violations}
