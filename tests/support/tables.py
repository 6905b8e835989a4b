"""Exported tables, read by pyarrow, as one of its users does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds


class Tables:
    """Those in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def rows(self, name: str) -> Sequence[Mapping[str, Any]]:
        """Of one table, with `state` and `day`; none, if it has no files."""
        folder = self._folder / name
        if not list(folder.rglob("*.parquet")):
            return []
        rows: Sequence[Mapping[str, Any]] = ds.dataset(folder, partitioning="hive").to_table().to_pylist()
        return rows
