"""Fixtures of the node's tests: imported by the conftest of each folder that uses them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.stacks import Stack
from tests.support.cluster import Cluster

MakeCluster = Callable[..., Cluster]


@pytest.fixture
def make_cluster(request: pytest.FixtureRequest, cluster_name: str, tmp_path: Path) -> Iterator[MakeCluster]:
    """Makes a cluster on the shared stack, or on the `stack` it is given; takes what `Cluster` takes."""
    made: list[Cluster] = []
    shared: list[Cluster] = []

    def make(stack: Stack | None = None, **options: Any) -> Cluster:
        on = request.getfixturevalue("stack") if stack is None else stack
        name = cluster_name if not made else f"{cluster_name}-{len(made)}"
        folder = tmp_path / f"cluster-{len(made)}"
        folder.mkdir()
        made.append(Cluster(on, name, folder, **options))
        if stack is None:
            shared.append(made[-1])
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()
    for cluster in shared:
        cluster.delete_topics()


@pytest.fixture
def cluster(make_cluster: MakeCluster) -> Cluster:
    """A cluster with the defaults."""
    return make_cluster()
