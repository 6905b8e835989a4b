"""Fixtures of the tests that kill and pause."""

from __future__ import annotations

from tests.support.fixtures import cluster, make_cluster

__all__ = ["cluster", "make_cluster"]
