"""Fixtures of the tests on a real Kafka and ZooKeeper."""

from __future__ import annotations

from tests.support.fixtures import cluster, make_cluster

__all__ = ["cluster", "make_cluster"]
