from __future__ import annotations

from pathlib import Path

from pipeline.bulk.columns import COLUMNS

DOCS = Path(__file__).parents[2] / "docs" / "bulk.md"


def test_the_documentation_has_each_column_and_what_it_may_be() -> None:
    lines = DOCS.read_text().splitlines()
    rows = [f"| `{name}` | {one.meaning} | {one.kind.value} |" for name, one in COLUMNS.items()]
    assert [line for line in lines if line.startswith("| `")] == rows
