"""docs/operations.md has every reason for which a node refuses to be master."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_refusal_is_in_the_table() -> None:
    source = "".join((ROOT / "node" / name).read_text() for name in ("refusal.py", "node.py"))
    codes = set(re.findall(r'(?:Refusal|rebuild)\(\s*"([a-z-]+)"', source))
    page = (ROOT / "docs" / "operations.md").read_text()
    rows = re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
    listed = {code for row in rows for code in re.findall(r"`([a-z-]+)`", row)}
    assert len(codes) > 10
    assert codes <= listed
