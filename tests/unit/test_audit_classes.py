"""The audit's classes have a place for every outcome."""

from __future__ import annotations

from delayline.outcome_kinds import ANSWERS, ENDINGS, PARKS, OutcomeKind
from pipeline.audit.classes import CLASSES, ENDS


def test_every_answer_and_every_ending_is_a_class() -> None:
    assert set(CLASSES) >= {OutcomeKind.DELIVERED} | ANSWERS | ENDINGS


def test_every_ending_and_every_park_is_an_end_of_an_occurrence() -> None:
    assert set(ENDS) >= {OutcomeKind.DELIVERED} | ENDINGS | PARKS
