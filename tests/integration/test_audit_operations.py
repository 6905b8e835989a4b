"""The audit of what operators have had done: clean where all is right, and every fault named."""

from __future__ import annotations

import pytest

from delayline.settings import ClusterSettings
from tests.integration.audited import Audited, check_accounted
from tests.integration.operated_history import CLASSES, OCCURRENCES, OperatedHistory


@pytest.fixture
def settings(cluster_name: str) -> ClusterSettings:
    return ClusterSettings(cluster=cluster_name, partitions=2)


@pytest.fixture
def history(settings: ClusterSettings) -> OperatedHistory:
    return OperatedHistory(settings)


def test_replays_skips_and_pauses_are_accounted_for(history: OperatedHistory, audited: Audited) -> None:
    check_accounted(audited(history).report, CLASSES, OCCURRENCES)


def test_each_fault_of_an_operation_is_found_and_named_and_nothing_else(
    history: OperatedHistory, audited: Audited
) -> None:
    history.plant_faults()
    report = audited(history).report
    one, two, three, four, _, six = history.plain
    assert sorted((found.kind, found.source) for found in report.violations) == sorted(
        [
            ("duplicated", one.source),  # outside the range, and carried all the same
            ("lost", two.source),  # in the range, and not carried
            ("duplicated", three.source),  # carried twice
            ("altered", four.source),
            ("duplicated", history.parked.source),  # it was parked: its later try is the message
            ("early", history.parked.source),
            ("altered", history.parked.source),
            ("false_outcome", six.source),  # skipped, and nobody had asked for that
            ("false_outcome", history.skipped.source),  # skipped, and delivered
        ]
    )
