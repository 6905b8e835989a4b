"""The page of the tables has their columns, in order, and the types that they have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pipeline.tables.schema import TABLES

PAGE = (Path(__file__).parents[2] / "docs" / "tables.md").read_text()


def columns_on_the_page(name: str) -> list[tuple[str, str]]:
    """Each with its type; a row may have several, with one type each or one for all."""
    section = PAGE.partition(f"**`{name}`**")[2].partition("**`")[0]
    found: list[tuple[str, str]] = []
    for cells in re.findall(r"^\| (`.*?) \| (.*?) \|", section, re.MULTILINE):
        columns, kinds = re.findall("`(.*?)`", cells[0]), cells[1].split(", ")
        found += zip(columns, kinds if len(kinds) > 1 else kinds * len(columns), strict=True)
    return found


@pytest.mark.parametrize("name", TABLES)
def test_the_page_has_the_columns_of_the_tables(name: str) -> None:
    kinds = {
        column: kind.replace("array<bigint>", "array of bigint")
        for column, kind in TABLES[name].columns.items()
    }
    assert columns_on_the_page(name) == list(kinds.items())
