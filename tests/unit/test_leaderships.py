"""Why each leader came to lead, as the history says it."""

from __future__ import annotations

import pytest

from election.operators import BY_PREFERENCE, SWITCHOVER, Author, HistoryEntry
from ops.checkpoint.history import leadership_changes
from store.checkpoint import Checkpoint
from tests.support.checkpoints import sample_checkpoint

LANE, AT_MS = 1, 1_767_225_600_000
ELECTED = "elected: the one before has resigned, or was lost"


def first(epoch: int, node: str, at_ms: int) -> Checkpoint:
    return sample_checkpoint(lane=LANE, epoch=epoch, number=7, first=True, node=node, at_ms=at_ms)


@pytest.mark.parametrize(
    ("what", "after", "why"),
    [
        (SWITCHOVER, "b", "switchover: to see it"),
        (SWITCHOVER, None, "switchover: to see it"),
        (BY_PREFERENCE, "b", "switchover by preference: to see it"),
        (BY_PREFERENCE, "c", ELECTED),  # that one has died on the way
    ],
)
def test_a_leader_is_by_a_switchover_if_that_was_to_it(what: str, after: str | None, why: str) -> None:
    author = Author("somebody", "to see it", AT_MS + 500)
    entry = HistoryEntry(what=what, author=author, lane=LANE, before="a", after=after)
    firsts = [first(1, "a", AT_MS), first(2, "b", AT_MS + 1_000)]
    assert leadership_changes(LANE, firsts, [entry], most=9)[-1].why == why
