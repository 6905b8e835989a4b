"""`delayline bulk`: many requests at once, from a table or from files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ops.cli.operator import someone
from ops.cli.options import connect, connection_options, together
from ops.cli.output import Format, emit, emit_one, output_option, say

if TYPE_CHECKING:
    from ops.bulk.load import Checked, Loaded

TARGET_COLUMNS = {"target": "target", "rows": "requests", "first": "first due", "last": "last due"}
REJECT_COLUMNS = {"code": "code", "rows": "rows", "example": "for example"}


@click.group("bulk")
def bulk_group() -> None:
    """Schedule, cancel or reschedule many messages at once: Spark reads them from files or a table.

    First all rows are checked, as a node would; if any would be rejected, nothing is sent. A job may be
    killed at any moment and started again with the same words: what it has sent it does not send again.
    """


_bulk_options = together(
    click.option(
        "--from",
        "source",
        required=True,
        metavar="KIND:PATH",
        help="The rows: parquet:PATH, csv:PATH, json:PATH, orc:PATH or table:NAME.",
    ),
    click.option(
        "--job", required=True, metavar="NAME", help="A name for this load: what is one is sent once."
    ),
    click.option(
        "--column",
        "columns",
        multiple=True,
        metavar="NAME=SQL",
        help="What of a row is a request's column (docs/bulk.md), as an expression of Spark's SQL.",
    ),
    click.option(
        "--template",
        "templates",
        multiple=True,
        metavar="NAME=TEXT",
        help="The same as a text with ${SQL} in it.",
    ),
    click.option("--dry-run", is_flag=True, help="Check all rows, and send nothing."),
    click.option("--skip-rejected", is_flag=True, help="Send the others where rows would be rejected."),
    click.option(
        "--rejected", metavar="KIND:PATH", help="Write there which rows would be rejected, and why."
    ),
    click.option("--rate", type=click.FloatRange(min=1), metavar="N", help="Requests a second, at most."),
    click.option(
        "--master",
        default="local[*]",
        show_default=True,
        metavar="URL",
        help="Where Spark runs: spark://HOST:PORT for a cluster.",
    ),
    output_option,
    connection_options,
)


@bulk_group.command(
    "schedule",
    epilog="Example: delayline bulk schedule --from parquet:reminders --job may --column due=remind_at"
    " --column \"target='reminders'\" --template 'value=Order ${order_id} waits'",
)
@_bulk_options
def schedule_command(output: Format, **options: Any) -> int:
    """Schedule a message for each row.

    A row without an id gets one, made of the job's name and all that is in the row. What an id is known for
    already is kept, unless the column if_exists says replace.
    """
    return _load("schedule", output, options)


@bulk_group.command(
    "cancel",
    epilog="Example: delayline bulk cancel --from csv:paid.csv --job paid-05 --column id=order_id",
)
@_bulk_options
def cancel_command(output: Format, **options: Any) -> int:
    """Cancel the message of each row, by its id or its source."""
    return _load("cancel", output, options)


@bulk_group.command(
    "reschedule",
    epilog="Example: delayline bulk reschedule --from json:moved --job moved-05 --column id=order_id"
    " --column delay=\"'2h'\"",
)
@_bulk_options
def reschedule_command(output: Format, **options: Any) -> int:
    """Move the message of each row to another time."""
    return _load("reschedule", output, options)


def _load(op: str, output: Format, options: dict[str, Any]) -> int:
    from ops.bulk.plan import Plan

    dry_run, skip_rejected, rate = (options.pop(name) for name in ("dry_run", "skip_rejected", "rate"))
    wishes = {
        name: options.pop(name) for name in ("source", "job", "columns", "templates", "rejected", "master")
    }
    plan = Plan(op=op, **wishes)
    author = None if dry_run else someone(f"bulk {op} from {plan.source}")
    with plan.begun(connect(options), say, author) as (load, run):
        checked = load.check()
        say(_told(checked))
        if checked.repeated_ids:
            say(f"warning: {_repeated(checked)}")
        if output == "table":
            _show_checked(checked)
        if checked.rejected and plan.rejected is not None:
            load.write_rejected(plan.rejected)
            say(f"the rows that would be rejected, and why: {plan.rejected}")
        loaded = None
        if run is not None and (skip_rejected or not checked.rejected):
            loaded = load.send(checked, rate, run)
    _show(output, checked, loaded)
    if loaded is None:
        say(_why_not(checked, dry_run=dry_run))
    return 5 if checked.rejected else 0


def _told(checked: Checked) -> str:
    return f"{checked.rows} rows were checked, {checked.rejected} would be rejected"


def _repeated(checked: Checked) -> str:
    ids = "id occurs" if checked.repeated_ids == 1 else "ids occur"
    return (
        f"{checked.repeated_ids} {ids} in several rows that replace or move what is there, for example"
        f" {checked.repeated_example}: which of these rows comes last is not known; make them several loads"
    )


def _why_not(checked: Checked, *, dry_run: bool) -> str:
    if dry_run:
        return "nothing was sent: this was a dry run"
    return (
        f"nothing was sent, for {checked.rejected} rows would be rejected: mend them (--rejected writes them"
        " to files), or send the others with --skip-rejected"
    )


def _show_checked(checked: Checked) -> None:
    for rows, columns in ((_targets(checked), TARGET_COLUMNS), (_rejects(checked), REJECT_COLUMNS)):
        if rows:
            emit("table", rows, columns)
            click.echo()


def _show(output: Format, checked: Checked, loaded: Loaded | None) -> None:
    done: dict[str, Any] = {
        "rows": checked.rows,
        "rejected": checked.rejected,
        "repeated_ids": checked.repeated_ids,
    }
    if loaded is not None:
        done |= {"sent": loaded.sent, "were_there": loaded.were_there}
    if output != "table":
        done |= {"targets": _targets(checked), "rejects": _rejects(checked)}
    emit_one(output, done)


def _targets(checked: Checked) -> list[dict[str, Any]]:
    return [
        {"target": one.target, "rows": one.rows, "first": _time(one.first_ms), "last": _time(one.last_ms)}
        for one in checked.targets
    ]


def _rejects(checked: Checked) -> list[dict[str, Any]]:
    return [{"code": one.code, "rows": one.rows, "example": one.example} for one in checked.rejects]


def _time(at_ms: int | None) -> str | None:
    from delayline.times import render_time

    return None if at_ms is None else render_time(at_ms)
