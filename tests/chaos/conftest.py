"""Fixtures of the tests that kill and pause."""

from __future__ import annotations

from tests.support.fixtures import cluster as cluster
from tests.support.fixtures import make_cluster as make_cluster
