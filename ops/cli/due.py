"""`delayline due`: when what is pending falls due, drawn."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from ops.cli.cluster_status import pauses_as_data, show_pauses
from ops.cli.options import connect, connection_options
from ops.cli.output import Format, emit, output_as, say

if TYPE_CHECKING:
    from node.http.answers import AnsweringNode
    from ops.message.due import ClusterForecast
    from store.due import Due, DueHistogram

BUCKETS: Final = 60
HEIGHT: Final = 4
MOST_TARGETS: Final = 20
_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
_PLAIN: Final = " .::||||#"

_SCALES: Final = {"seconds": "next minute", "minutes": "next hour", "days": "next 60 days"}
_CSV_COLUMNS = {name: name for name in ("scale", "at", "target", "count", "at_least")}


@click.command("due", epilog="Example: delayline due -o csv")
@click.option("--node", metavar="NODE", help="The node to ask (default: the leader, or any that answers).")
@output_as("table", "json", "yaml", "csv")
@connection_options
def due_command(output: Format, node: str | None, **options: Any) -> None:
    """Draw when what is pending falls due: the next minute by seconds, the next hour by minutes, then days.

    And to which targets it goes. Days are UTC's; each scale begins now, so that the days have all of it. What
    a node could not count within a second is said to be `at least` so much.
    """
    from ops.message import due

    found = due.forecast(connect(options), node)
    if output == "csv":
        emit(output, _csv_rows(found.due), _CSV_COLUMNS)
    elif output == "table":
        _draw(found)
    else:
        emit(output, [], {}, data=_as_data(found))
    for answering in found.nodes:
        say(_who_answered(answering))


def _draw(found: ClusterForecast) -> None:
    from delayline.times import render_time

    due = found.due
    show_pauses(found.pauses, due.held, due.now_ms)
    pending = due.overdue + sum(due.days.counts.values())
    at_least = due.overdue_at_least or due.days.at_least
    click.echo(f"{_count(pending, at_least=at_least)} pending at {render_time(due.now_ms)}")
    click.echo(f"{_count(due.overdue, at_least=due.overdue_at_least)} of them overdue")
    if held := sum(one.rows for one in due.held.values()):
        click.echo(f"besides, {held:,} at most wait since their targets were paused")
    for scale, title in _SCALES.items():
        click.echo()
        _draw_scale(title, getattr(due, scale), due.now_ms)
    if due.targets:
        click.echo()
        _draw_targets(due)


def _draw_scale(title: str, histogram: DueHistogram, now_ms: int) -> None:
    width_ms = histogram.width_ms
    begin_ms = now_ms - now_ms % width_ms
    counts = [histogram.counts.get(begin_ms + number * width_ms, 0) for number in range(BUCKETS)]
    later = sum(count for at_ms, count in histogram.counts.items() if at_ms >= begin_ms + BUCKETS * width_ms)
    total = _count(sum(counts), at_least=histogram.at_least)
    behind = f", {later:,} later" if later else ""
    most = f", {max(counts):,} at most in one" if any(counts) else ""
    click.echo(f"{title}: {total}{most}{behind}")
    if any(counts):
        for line in bars(counts):
            click.echo(line)
        click.echo(_axis(width_ms))


def bars(counts: Sequence[int], height: int = HEIGHT) -> list[str]:
    """Columns, as lines from the top; the largest count fills them. What is not nothing shows."""
    signs = _BLOCKS if _can_write(_BLOCKS) else _PLAIN
    eighths = [-(-count * height * 8 // max(*counts, 1)) for count in counts]
    return [
        "".join(signs[min(8, max(0, filled - 8 * row))] for filled in eighths).rstrip()
        for row in reversed(range(height))
    ]


def _can_write(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeError, LookupError):
        return False
    return True


def _axis(width_ms: int) -> str:
    unit = {1_000: "s", 60_000: "min"}.get(width_ms, "d")
    marks = ["now", *(f"+{number} {unit}" for number in (15, 30, 45))]
    return "".join(f"{mark:<15}" for mark in marks).rstrip()


def _draw_targets(due: Due) -> None:
    ranked = sorted(due.targets.items(), key=lambda item: (-item[1], item[0]))
    looked_at = sum(due.targets.values())
    if due.targets_at_least:
        click.echo(f"targets of the first {looked_at:,}, in the order in which they fall due:")
    else:
        click.echo("targets:")
    shown = ranked[:MOST_TARGETS]
    emit("table", [{"target": name, "count": f"{count:,}"} for name, count in shown], _TARGET_COLUMNS)
    if len(ranked) > len(shown):
        click.echo(f"and {len(ranked) - len(shown):,} more; -o json has them all")


_TARGET_COLUMNS = {"target": "target", "count": "messages"}


def _count(count: int, *, at_least: bool) -> str:
    return f"{'at least ' if at_least else ''}{count:,}"


def _csv_rows(due: Due) -> list[dict[str, Any]]:
    from delayline.times import render_time

    overdue = {"scale": "overdue", "count": due.overdue, "at_least": due.overdue_at_least}
    timed = [
        {"scale": scale, "at": render_time(at_ms), "count": count, "at_least": getattr(due, scale).at_least}
        for scale in _SCALES
        for at_ms, count in sorted(getattr(due, scale).counts.items())
    ]
    targets = [
        {"scale": "target", "target": target, "count": count, "at_least": due.targets_at_least}
        for target, count in sorted(due.targets.items())
    ]
    held = [
        {"scale": "held", "target": target, "count": one.rows, "at_least": False}
        for target, one in due.held.items()
    ]
    return [overdue, *timed, *targets, *held]


def _as_data(found: ClusterForecast) -> dict[str, Any]:
    import msgspec

    due = found.due
    scales = {
        scale: {
            "width_ms": histogram.width_ms,
            "at_least": histogram.at_least,
            "counts": [{"at_ms": at, "count": count} for at, count in sorted(histogram.counts.items())],
        }
        for scale in _SCALES
        if (histogram := getattr(due, scale))
    }
    rest = {name: value for name, value in msgspec.to_builtins(due).items() if name not in _SCALES}
    return {**rest, **scales, **pauses_as_data(found.pauses), "nodes": msgspec.to_builtins(found.nodes)}


def _who_answered(answering: AnsweringNode) -> str:
    from delayline.times import render_time

    up_to_ms = answering.delivered_up_to_ms
    up_to = f"delivered up to {render_time(up_to_ms)}" if up_to_ms else "nothing delivered yet"
    return f"{answering.node} ({answering.state}, lane {answering.lane}): {up_to}"
