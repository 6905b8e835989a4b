"""What a difference between the checkpoint's two places means."""

from __future__ import annotations

from functools import partial

import pytest

from ops.checkpoint.show import CheckpointPair
from store.checkpoint import Lineage
from tests.support.checkpoints import sample_checkpoint

LINEAGE = Lineage("topic", 1)
BASE = sample_checkpoint(epoch=3, lineage=LINEAGE)
later = partial(sample_checkpoint, epoch=3, lineage=LINEAGE)


@pytest.mark.parametrize(
    ("pair", "alarming", "meaning"),
    [
        (CheckpointPair(0, True, None, None), False, "no checkpoint yet"),
        (CheckpointPair(0, True, BASE, BASE), False, "both are the same"),
        (CheckpointPair(0, True, BASE, None), False, "no mirror yet"),
        (CheckpointPair(0, True, later(epoch=4), BASE), False, "the znode is behind, as it may"),
        (CheckpointPair(0, True, later(number=2), BASE), False, "the znode is behind, as it may"),
        (
            CheckpointPair(0, True, BASE, later(epoch=4)),
            True,
            "the znode is ahead, so the topic has lost its end",
        ),
        (
            CheckpointPair(0, True, BASE, later(number=2)),
            True,
            "the znode is ahead, so the topic has lost its end",
        ),
        (
            CheckpointPair(0, True, BASE, later(epoch=4, lineage=Lineage("lost", 1))),
            True,
            "the znode is ahead, of a topic that was lost since",
        ),
        (CheckpointPair(0, True, None, BASE), True, "the checkpoint topic is empty"),
        (CheckpointPair(0, False, None, BASE), True, "the checkpoint topic is missing"),
        (CheckpointPair(0, False, None, None), True, "the checkpoint topic is missing"),
    ],
)
def test_a_pair_of_checkpoints_says_what_it_means(
    pair: CheckpointPair, alarming: object, meaning: str
) -> None:
    assert (pair.alarming, pair.meaning[: len(meaning)]) == (alarming, meaning)
