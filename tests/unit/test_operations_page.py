"""docs/operations.md has every reason for which a node refuses to be leader, and every alert."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from node.refusal import RefusalCode

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text()


def listed(name: str) -> set[str]:
    """What the first columns of the page's tables hold of such names."""
    rows = re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)
    return {found for row in rows for found in re.findall(f"`({name})`", row)}


def test_every_refusal_is_in_the_table() -> None:
    table = PAGE.partition("## Refusals")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE) == list(RefusalCode)


NOT_WALKED = dict.fromkeys(["carry-newer", "newer-format"], "there is no newer version to upgrade to")
"""Each row with the reason why no test does what it says."""


def test_what_every_row_of_the_table_says_to_do_is_done_by_a_test() -> None:
    tests = "".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    walked = set(re.findall(r'^@pytest\.mark\.walks\("([a-z-]+)"\)$', tests, re.MULTILINE))
    assert set(RefusalCode) == walked | NOT_WALKED.keys()


def test_the_table_of_alerts_has_those_that_there_are_and_no_others() -> None:
    alerts = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text())
    names = {rule["alert"] for group in alerts["groups"] for rule in group["rules"]}
    assert len(names) > 10
    assert names == listed("Delayline[A-Za-z]+")
