"""The turn of an export of tables is over with its session."""

from __future__ import annotations

import pytest

from election.operators import Author
from ops.errors import ConflictError
from ops.tables.turn import Turn
from tests.support.cluster import Cluster

SOMEBODY = Author("somebody", "a reason", 0)


def test_a_turn_that_was_lost_is_not_taken_again(cluster: Cluster) -> None:
    with Turn(cluster.connection, "place", "/tables", SOMEBODY) as turn:
        turn.require()
        path = cluster.znodes.tables_run("place")
        cluster.kazoo.delete(path)
        with pytest.raises(ConflictError, match="this export into /tables was away for too long"):
            turn.require()
        assert not cluster.kazoo.exists(path)
        with (
            Turn(cluster.connection, "place", "/tables", Author("another", "b", 0)),
            pytest.raises(ConflictError, match=" has begun it, for another, at "),
        ):
            turn.require()
