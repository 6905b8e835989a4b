"""Exported tables, read by pyarrow, as one of their users does."""

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
        rows: Sequence[Mapping[str, Any]] = self._dataset(name).to_table().to_pylist()
        return rows

    def columns(self, name: str) -> Mapping[str, str]:
        """Their types by name, in order."""
        return {field.name: str(field.type) for field in self._dataset(name).schema}

    def _dataset(self, name: str) -> Any:
        return ds.dataset(self._folder / name, partitioning="hive", format="parquet")
