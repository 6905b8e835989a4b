"""Writes docs/start-wrong.md anew, from real screens: `python -m tests.integration.wrong_page`."""

from __future__ import annotations

import re
import tempfile
from contextlib import closing
from pathlib import Path

from ops.stack import LocalStack
from tests.integration.wrong_ground import prepared
from tests.integration.wrong_screens import Screens
from tests.integration.wrong_starts import GROUPS, Row

PAGE = Path(__file__).parents[2] / "docs" / "start-wrong.md"

_HEAD = """\
# Ways to start wrong

What an operator meets, and what the screen says. A command that cannot do what it was asked to ends with one
line on stderr and an exit code: 1 error, 2 usage or configuration, 3 not found, 4 not authorised, 5 conflict
or too late, 6 unavailable. `delayline node run` with a configuration that cannot be right ends likewise. A
node that can go on once something changes stays up: it *waits* for Kafka, ZooKeeper or the cluster's
creation, and goes on by itself; it *refuses* what an operator has to mend, in its log and in
`delayline cluster status` ([states and refusals](operations.md#states-of-a-node)); or it *warns* and works.

This page is made from real screens by `python -m tests.integration.wrong_page`; tests hold it against them.
"""
_TABLE = "\n## {title}\n\n| situation | ends with | what it says |\n|---|---|---|\n"


def names(group: str, row: Row) -> str:
    """What the row is known by in tests."""
    return f"{group}: {row.situation}"


def lines() -> dict[str, str]:
    """What the page says of each row, by its name."""
    found: dict[str, str] = {}
    group = ""
    for text in PAGE.read_text().splitlines():
        if text.startswith("## "):
            group = text[3:]
        elif cells := re.fullmatch(r"\| ([^|]+) \| (?:[0-9]|\w+) \| (.*) \|", text):
            found[f"{group}: {cells[1]}"] = _unwritten(cells[2])
    return found


def _written(line: str) -> str:
    return f"`` {line.replace('|', chr(92) + '|')} ``" if line else "(nothing)"


def _unwritten(cell: str) -> str:
    return "" if cell == "(nothing)" else cell[3:-3].replace("\\|", "|")


def main() -> None:
    """Starts a stack, runs every row, writes the page."""
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalStack(Path(folder) / "servers") as stack,
        prepared(stack, Path(folder)) as ground,
        closing(Screens(ground, ("WRONG_START", "page"))) as screens,
    ):
        running = {
            group: [(row, screens.begin(names(group, row), row)) for row in rows]
            for group, rows in GROUPS.items()
        }
        page = _HEAD
        for group, rows in running.items():
            page += _TABLE.format(title=group)
            for row, screen in rows:
                page += f"| {row.situation} | {row.ends} | {_written(screen.result().line)} |\n"
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
