"""docs/bad-input.md shows the table as it is."""

from __future__ import annotations

from tests.bad_input.page import PAGE, rendered


def test_the_page_is_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == rendered(), "make it anew: python -m tests.bad_input"
