"""Fixtures of the tests that kill and pause."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ops.stack import LocalStack
from tests.support.fixtures import cluster, make_cluster

__all__ = ["cluster", "make_cluster"]


@pytest.fixture(scope="module")
def _own_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    with LocalStack(tmp_path_factory.mktemp("private")) as stack:
        yield stack


@pytest.fixture
def private(_own_stack: LocalStack) -> LocalStack:
    """A stack of the file's own, whose broker may be killed; it runs."""
    if not _own_stack.kafka.running:
        _own_stack.kafka.start()
    return _own_stack
