"""What many of these tests begin with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from store.view import View
from tests.unit.view_records import new_view


@pytest.fixture
def view(tmp_path: Path) -> Iterator[View]:
    """An empty one of two partitions, on RocksDB."""
    view = new_view(tmp_path / "store")
    yield view
    view.close()
