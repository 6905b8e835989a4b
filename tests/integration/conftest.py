"""Fixtures of the tests on a real Kafka and ZooKeeper."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ops.spark import spark_session
from tests.integration.audited import Audited
from tests.integration.planted import Planted
from tests.stacks import Stack
from tests.support.fixtures import cluster, make_cluster

__all__ = ["cluster", "make_cluster"]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One for all audits of small histories."""
    session = spark_session(compiled=False)
    yield session
    session.stop()


@pytest.fixture
def audited(stack: Stack, spark: SparkSession, tmp_path: Path) -> Audited:
    return Audited(stack.bootstrap, spark, tmp_path)


@pytest.fixture(scope="session")
def planted(stack: Stack, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """A history with faults, audited once for all who look at it."""
    audited = Audited(stack.bootstrap, spark, tmp_path_factory.mktemp("planted"))
    return Planted(audited, f"t-planted-{uuid.uuid4().hex[:8]}")
