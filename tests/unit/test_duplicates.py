"""Duplicates that a view is told of, however many."""

from __future__ import annotations

import random

import pytest

from node.kafka import duplicates
from node.kafka.duplicates import Duplicates


def test_each_is_found_in_whatever_run_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "RUN", 4)
    found, offsets = Duplicates(), random.Random(1).sample(range(0, 60, 2), 30)
    for offset in offsets:
        found.add(0, offset)
    found.add(1, 7)
    found.sort()
    assert [offset for offset in range(60) if (0, offset) in found] == sorted(offsets)
    assert [(partition, 7) in found for partition in range(3)] == [False, True, False]
