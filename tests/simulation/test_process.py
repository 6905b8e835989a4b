from __future__ import annotations

import pytest

from node.core.ports import Unanswered
from tests.simulation.log import Fate, Transaction
from tests.simulation.profile import DEFAULT
from tests.simulation.stores import MemoryStore
from tests.simulation.world import World


def test_who_finds_a_commit_of_the_lanes_without_its_marker_goes_on_from_nothing() -> None:
    world = World(0, DEFAULT, lambda _: MemoryStore())
    world.calm = True  # nobody else acts
    process = world.nodes[0].process
    assert process is not None
    transaction = Transaction(1, lane=True)
    world.checkpoints.append(0, b"a key", b"a checkpoint", [], transaction)
    transaction.decide(Fate.COMMIT)
    with pytest.raises(Unanswered, match="a marker"):
        process.last_checkpoint()
