"""Fixtures of the tests on a real Kafka and ZooKeeper."""

from __future__ import annotations

from tests.support.fixtures import cluster as cluster
from tests.support.fixtures import make_cluster as make_cluster
