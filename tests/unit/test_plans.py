"""How much memory an audit is given."""

from __future__ import annotations

import pytest

from pipeline.plans import heap_bytes

_GB = 1 << 30


@pytest.mark.parametrize(
    ("records", "free_bytes", "wanted"),
    [
        pytest.param(0, 64 * _GB, _GB, id="the least"),
        pytest.param(100_000, 64 * _GB, _GB + 300_000_000, id="it grows with the records"),
        pytest.param(10_000_000, 64 * _GB, 4 * _GB, id="the most"),
        pytest.param(None, 64 * _GB, 4 * _GB, id="nobody knows how many"),
        pytest.param(10_000_000, 6 * _GB, 3 * _GB, id="half of what is free"),
        pytest.param(10_000_000, _GB, _GB, id="no less than the least"),
    ],
)
def test_the_heap_of_an_audit(records: int | None, free_bytes: int, wanted: int) -> None:
    assert heap_bytes(records, free_bytes) == wanted
