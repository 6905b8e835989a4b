"""`delayline message`: what its exit codes say."""

from __future__ import annotations

import pytest

from delayline.outcome_kinds import ANSWERS, OutcomeKind
from ops.cli.message import _exit_code

OF_SCHEDULES = {OutcomeKind.REPLACED, OutcomeKind.DUPLICATE}


@pytest.mark.parametrize("outcome", sorted(ANSWERS - OF_SCHEDULES))
def test_every_answer_to_a_cancel_or_reschedule_is_told_from_a_failure(outcome: OutcomeKind) -> None:
    assert _exit_code(outcome.value) != 1
