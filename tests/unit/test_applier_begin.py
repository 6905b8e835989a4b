"""Which serials count as spent for a view that begins where retention has taken the beginning."""

from __future__ import annotations

import pytest

from node.kafka.applier import Applier
from tests.support.checkpoints import sample_checkpoint


@pytest.mark.parametrize(
    ("applied", "by_the_leader"),
    [(0, 12), (12, 8)],
    ids=["an empty view, and the leader has taken it in", "this view has"],
)
def test_what_was_written_back_before_has_been_taken_in_so_a_lower_as_of_is_that_of_a_copy(
    applied: int, by_the_leader: int
) -> None:
    last = sample_checkpoint(applied={0: by_the_leader}, written_back={0: 12})
    assert Applier._spent_by(0, 10, applied, last) == (10, -1)


def test_what_was_written_back_before_and_is_still_to_be_taken_in_is_no_copy() -> None:
    last = sample_checkpoint(applied={0: 8}, written_back={0: 12})
    assert Applier._spent_by(0, 10, 0, last) is None
