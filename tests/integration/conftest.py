"""Fixtures of the tests on a real Kafka and ZooKeeper."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page
from pyspark.sql import SparkSession

from ops.spark import audit_session
from tests.integration.audited import Audited
from tests.integration.lanes import CORRECT, FAULTY
from tests.stacks import Stack
from tests.support.browser import browser
from tests.support.fixtures import cluster, make_cluster

__all__ = ["cluster", "make_cluster"]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One for all audits of small histories."""
    session = audit_session(records=0)
    yield session
    session.stop()


@pytest.fixture
def lent(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one Spark of this process is lent to the commands, which end their own."""
    for name in ("ops.spark.audit_session", "ops.spark.watch_session", "ops.forecast.made.forecast_session"):
        monkeypatch.setattr(name, lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture
def tab(chrome: Browser) -> Iterator[Page]:
    with chrome.new_page() as opened:
        yield opened


@pytest.fixture(scope="session")
def correct(stack: Stack, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Audited:
    """The histories in which all is right."""
    folder = tmp_path_factory.mktemp("correct")
    return Audited(stack.bootstrap, spark, folder, f"t-correct-{uuid.uuid4().hex[:8]}", CORRECT)


@pytest.fixture(scope="session")
def faulty(stack: Stack, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Audited:
    """The histories with faults."""
    folder = tmp_path_factory.mktemp("faulty")
    return Audited(stack.bootstrap, spark, folder, f"t-faulty-{uuid.uuid4().hex[:8]}", FAULTY)
