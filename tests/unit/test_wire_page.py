"""The page on the wire format names what the code knows, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from delayline import headers
from delayline.outcome_kinds import OutcomeKind, Sort, sort_of
from delayline.rejects import REJECT_CODES, RejectCode

PAGE = (Path(__file__).parents[2] / "docs" / "wire-format.md").read_text()


def test_the_page_lists_every_reject_code() -> None:
    table = PAGE.split("| code | meaning | what to do |")[1].split("\n## ")[0]
    assert re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE) == list(REJECT_CODES)


def test_the_page_lists_every_outcome_that_is_written() -> None:
    table = PAGE.split("| outcome | of | meaning |")[1].split("\n\n")[0]
    listed = re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)
    assert listed == [outcome for outcome in OutcomeKind if sort_of(outcome) is not Sort.UNWRITTEN]


def test_the_page_says_what_to_do_about_each_code_as_the_commands_do() -> None:
    table = PAGE.split("| code | meaning | what to do |")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([a-z-]+)` \| .* \| (.*) \|$", table, re.MULTILINE)
    assert {code: advice.replace("`", "") for code, advice in rows} == {
        code: code.what_to_do for code in RejectCode
    }


def test_the_page_names_every_header() -> None:
    known = {value for name, value in vars(headers).items() if name.startswith("H_")}
    assert set(re.findall(r"`(delay-[a-z-]+)`", PAGE)) - set(REJECT_CODES) == known
