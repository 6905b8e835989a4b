"""`delayline doctor`: what is wrong, and what to do about it."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from ops.cli.options import connect, connection_options
from ops.cli.output import Format, emit, output_option, say

if TYPE_CHECKING:
    from ops.doctor import Finding

COLUMNS = {"level": "level", "check": "check", "found": "found", "mend": "what to do"}


@click.command("doctor", epilog="Example: delayline doctor --cluster delay")
@click.option("--all", "show_all", is_flag=True, help="Show also what is well.")
@output_option
@connection_options
def doctor_command(output: Format, *, show_all: bool, **options: Any) -> int:
    """Look at everything that can be wrong with a cluster, and say what to do about what is.

    ZooKeeper's servers and session bounds, Kafka and its topics, this user's rights, the nodes' clocks, disks
    and versions, lanes without leader or follower, nodes that refuse, what is paused, lag. It goes on where
    something does not answer. Exit code 1 if there is a problem; a note is none.
    """
    from ops.doctor import Level, examine

    findings = examine(connect(options))
    shown = [one for one in findings if show_all or one.level != Level.OK]
    if output != "table":
        emit(output, [asdict(finding) for finding in findings], {})
    elif shown:
        emit(output, [_row(finding) for finding in shown], COLUMNS)
    levels = Counter(finding.level for finding in findings)
    say(f"problems: {levels[Level.PROBLEM]}, notes: {levels[Level.NOTE]}, well: {levels[Level.OK]}")
    return 1 if levels[Level.PROBLEM] else 0


def _row(finding: Finding) -> dict[str, Any]:
    from ops.doctor import Level

    styles = {Level.OK: "green", Level.NOTE: "yellow", Level.PROBLEM: "bold red"}
    level = Text(finding.level, style=styles[finding.level])
    return {**asdict(finding), "level": level, "mend": finding.mend or None}
