"""Writes docs/bad-input.md anew: `python -m tests.bad_input`."""

from __future__ import annotations

from tests.bad_input.page import PAGE, rendered

PAGE.write_text(rendered(), encoding="utf-8")
