"""The checkpoints of a lane have one order, for the log and for the mirror."""

from __future__ import annotations

import pytest

from election.registry import checkpoint_order
from store.checkpoint import Checkpoint
from tests.support.checkpoints import sample_checkpoint


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(sample_checkpoint(epoch=2, number=7), id="delivers"),
        pytest.param(sample_checkpoint(epoch=2, number=7, first=True), id="the first of its epoch"),
        pytest.param(sample_checkpoint(epoch=0, number=0, position=None), id="nothing is done"),
    ],
)
def test_the_mirror_orders_checkpoints_as_everybody_does(one: Checkpoint) -> None:
    assert checkpoint_order(one.encode(), "here") == one.order
