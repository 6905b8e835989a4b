"""Kafka goes away: the nodes live, and are seen to."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from node.status import STALE_MS, NodeState
from ops.stack import LocalStack
from tests.support.fixtures import MakeCluster
from tests.support.waiting import eventually

LOOK_UPS = 15  # seconds: as long as two look-ups of the buffer are apart, and one that is not answered


def test_a_node_is_heard_of_once_a_second_while_kafka_is_away(
    private_stack: Callable[..., LocalStack], make_cluster: MakeCluster
) -> None:
    private = private_stack()
    cluster = make_cluster(private)
    cluster.start_here("a")
    cluster.wait_state("a", NodeState.LEADER)
    private.kafka.kill()
    written: list[int] = []

    def heard() -> bool:
        at_ms = cluster.member("a")["at_ms"]
        if at_ms not in written[-1:]:
            written.append(at_ms)
        return written[-1] - written[0] > LOOK_UPS * 1_000

    eventually(heard, "it is heard of for as long as two look-ups take")
    silences = [after - before for before, after in itertools.pairwise(written)]
    assert max(silences) < STALE_MS / 2, silences
