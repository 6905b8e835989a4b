"""What a difference between the checkpoint's two places means."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ops.checkpoints import CheckpointPair
from store.checkpoint import Checkpoint

BASE = Checkpoint(
    lane=0,
    epoch=3,
    position=(1000, 0, 9),
    ingested={0: 10},
    seen={0: 10},
    read={0: 10},
    written_back={0: 0},
    delivered_up_to_ms=1000,
    node="n1",
    at_ms=1001,
)


def later(**changes: Any) -> Checkpoint:
    return msgspec.structs.replace(BASE, **changes)


@pytest.mark.parametrize(
    ("pair", "alarming", "meaning"),
    [
        (CheckpointPair(0, True, None, None), False, "no checkpoint yet"),
        (CheckpointPair(0, True, BASE, BASE), False, "both are the same"),
        (CheckpointPair(0, True, BASE, None), False, "no mirror yet"),
        (CheckpointPair(0, True, later(epoch=4), BASE), False, "the znode is behind, as it may"),
        (CheckpointPair(0, True, later(seen={0: 11}), BASE), False, "the znode is behind, as it may"),
        (CheckpointPair(0, True, BASE, later(epoch=4)), True, "the znode is ahead"),
        (CheckpointPair(0, True, BASE, later(position=(2000, 0, 8))), True, "the znode is ahead"),
        (CheckpointPair(0, True, None, BASE), True, "the checkpoint topic is empty"),
        (CheckpointPair(0, False, None, BASE), True, "the checkpoint topic is missing"),
        (CheckpointPair(0, False, None, None), True, "the checkpoint topic is missing"),
    ],
)
def test_a_pair_of_checkpoints_says_what_it_means(
    pair: CheckpointPair, alarming: object, meaning: str
) -> None:
    assert (pair.alarming, pair.meaning[: len(meaning)]) == (alarming, meaning)
