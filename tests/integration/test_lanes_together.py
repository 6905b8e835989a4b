"""`delayline node run --lanes`: a process for each lane under one supervisor, and one HTTP port."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.stacks import Stack
from tests.support.cluster import Cluster
from tests.support.requests import Sender, now_ms
from tests.support.supervised import Supervised

TARGETS = 40


@pytest.fixture(scope="module")
def cluster(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    name = "t-together"
    with Cluster(stack, name, tmp_path_factory.mktemp("together"), lanes=2, partitions=4) as made:
        yield made
        made.delete_topics()


@pytest.fixture(scope="module")
def together(cluster: Cluster) -> Iterator[Supervised]:
    """For tests that leave it running."""
    with Supervised(cluster) as running:
        running.wait_candidates()
        yield running


def test_all_lanes_deliver(cluster: Cluster, together: Supervised) -> None:
    with Sender(cluster) as sender:
        for number in range(TARGETS):
            sender.schedule(str(number).encode(), at_ms=now_ms(), id=f"passing-{number}")
        sender.flush()
    cluster.wait_delivered(TARGETS)
    assert {cluster.mirrored(lane).node for lane in (0, 1)} == {"n-0", "n-1"}
