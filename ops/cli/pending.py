"""`delayline pending`: what waits, out of one cluster and into another."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ops.cli.operator import agree, confirm_option, expect_answer, someone
from ops.cli.options import (
    OutputFile,
    ParquetPlace,
    connect,
    connect_both,
    connection_options,
    to_options,
)
from ops.cli.output import Format, emit, emit_one, output_option, say

if TYPE_CHECKING:
    from ops.pending.export import Exported
    from ops.pending.file import ExportFile
    from ops.pending.imports import Checked
    from ops.pending.listing import Listing


@click.group("pending")
def pending_group() -> None:
    """Move what waits to another cluster, or keep a copy of it.

    A move is an export to a file, and an import of that. An export takes each message out of its cluster,
    which goes on delivering: what comes up before it is taken out is delivered there, and is not in the file.
    All three may be killed at any moment and started again.
    """


_rate_option = click.option(
    "--rate",
    type=click.FloatRange(min=1),
    default=5_000,
    show_default=True,
    metavar="N",
    help="Messages a second, at most.",
)
_give_up_option = click.option(
    "--give-up-open",
    is_flag=True,
    help="Go on where it cannot be told any more what became of the messages asked for last.",
)

SURVEY_COLUMNS = {"state": "state", "target": "target", "messages": "messages", "first_due": "first due"}
REFUSED_COLUMNS = {"line": "line", "source": "source", "code": "code", "detail": "detail"}


@pending_group.command(
    "move", epilog="Example: delayline pending move moved.jsonl --confirm delay --to-cluster delay2"
)
@click.argument("messages", metavar="[FILE]", type=OutputFile(), required=False)
@click.option("--dry-run", is_flag=True, help="Check what waits, and change nothing; needs no FILE.")
@_give_up_option
@_rate_option
@confirm_option
@to_options
@output_option
@connection_options
def move_command(
    output: Format,
    messages: Path | None,
    rate: float,
    confirm: str | None,
    *,
    dry_run: bool,
    give_up_open: bool,
    **options: Any,
) -> int:
    """Move what waits into another cluster, each message once.

    The old cluster is that of the connection options, and is the one to confirm. If the new one would refuse
    a message, nothing is changed, and the exit code is 5. What is taken out is kept in FILE. What was asked
    for after it has begun stays. Killed, it is started again with the same words.

    What is moved to another time meanwhile, and would be refused then, stays, too. If it was taken out by
    then it goes to FILE.refused, all else is moved, and the exit code is 5.
    """
    from ops.pending import move
    from ops.pending.listing import hidden_words

    file = None
    if messages is not None or not dry_run:
        file = _file(messages, None, "name the FILE, or give --dry-run")
    if not dry_run:
        expect_answer(confirm)
    old, new = connect_both(options)
    where = f"{new.cluster} at {new.bootstrap_servers}"
    what = f"cluster {old.cluster} will not deliver what waits in it, but {where} will"
    if confirm is not None and not dry_run:
        agree(old.cluster, confirm, what)  # a wrong name is not to wait for the check
    way = move.between(old, new)
    aside = 0 if file is None or dry_run else move.set_aside(way, file, say)
    plan = move.check(way, file, rate, say)
    checked = plan.checked
    _say_checked(checked)
    if plan.hidden:
        say(hidden_words(plan.hidden))
    if file is None or dry_run or plan.is_refused:
        say("nothing was changed")
        columns = {key: name for key, name in REFUSED_COLUMNS.items() if key != "line"}
        return _show_checked(output, checked, {"messages": checked.left}, columns)
    if checked.refusals:
        say(
            f"{checked.refusals.total()} messages would be refused, the first {checked.refused[0].source},"
            f" {checked.refused[0].code}: it goes on without them, for others are in neither cluster now"
        )
    agree(old.cluster, confirm, what)
    who = someone(f"move from {old.cluster} into {where}")
    done = move.move(way, plan, file, rate, who, say, give_up_open=give_up_open)
    left = _left(done.exported) | {"would_be_refused": done.exported.would_be_refused}
    refused = aside + done.refused
    counts = {"imported": done.imported, "refused": refused} | left
    emit_one(output, _exported(output, file, done.exported) | counts)
    say(_left_to_do(done.exported))
    return 5 if refused else 0


def _left_to_do(done: Exported) -> str:
    """What follows a move."""
    if done.too_large or done.would_be_refused or done.hidden:
        return (
            f"not all is moved ({done.too_large} too large, {done.would_be_refused} would be refused,"
            f" {done.hidden} hidden, {done.later} later): do not stop the old cluster's nodes yet"
        )
    if done.later:
        return (
            f"{done.later} messages were asked for since it began, and wait in the old cluster: have"
            " producers schedule in the new one, and run it again with the same words"
        )
    return (
        "nothing that was checked waits in the old cluster any more: have producers schedule in the new one,"
        " if they do not yet, and run it again after that; once nothing is later, stop the old one's nodes"
    )


@pending_group.command("export", epilog="Example: delayline pending export pending.jsonl --confirm delay")
@click.argument("messages", metavar="[FILE]", type=OutputFile(), required=False)
@click.option(
    "--to",
    "table",
    type=ParquetPlace(OutputFile()),
    metavar="parquet:PATH",
    help="Instead of FILE: a table with its columns.",
)
@click.option("--keep", is_flag=True, help="A copy: the messages go on waiting where they are.")
@click.option("--dry-run", is_flag=True, help="Count what waits, and change nothing; needs no FILE.")
@_give_up_option
@_rate_option
@confirm_option
@output_option
@connection_options
def export_command(
    output: Format,
    messages: Path | None,
    table: Path | None,
    rate: float,
    confirm: str | None,
    *,
    keep: bool,
    dry_run: bool,
    give_up_open: bool,
    **options: Any,
) -> None:
    """Take what waits out of the cluster and write it to FILE, or with --keep a copy of it.

    What was asked for after it has begun stays. Killed, it is started again with the same words: FILE is
    written at the end, with all that was ever taken out. 'delayline pending forget' ends that.

    Started again too late, after retention, it refuses; with --give-up-open it goes on, and writes what it
    cannot account for to FILE.given-up, for you to decide on.
    """
    from ops.pending import export

    if dry_run:
        _show_survey(output, export.survey(connect(options)))
        return
    file = _file(messages, table, "name the FILE, give --to parquet:PATH, or --dry-run")
    if keep:
        done = export.copy(connect(options), file, rate, say)
    else:
        expect_answer(confirm)
        config = connect(options)
        agree(config.cluster, confirm, f"cluster {config.cluster} will not deliver what waits in it")
        who = someone(f"export to {file}")
        done = export.move(config, file, rate, who, say, give_up_open=give_up_open)
    emit_one(output, _exported(output, file, done) | _left(done))
    if done.later:
        say(f"{done.later} messages were asked for since it began, and wait: run it again for them")


@pending_group.command("import", epilog="Example: delayline pending import pending.jsonl --cluster delay2")
@click.argument("messages", metavar="[FILE]", type=click.Path(dir_okay=False, path_type=Path), required=False)
@click.option(
    "--from",
    "table",
    type=ParquetPlace(click.Path(dir_okay=False, path_type=Path)),
    metavar="parquet:PATH",
    help="Instead of FILE: a table that 'export --to' has written.",
)
@click.option("--check", is_flag=True, help="Say what would be refused, and send nothing.")
@click.option(
    "--without-refused",
    is_flag=True,
    help="Send the others, and write what would be refused to FILE.refused.",
)
@_rate_option
@output_option
@connection_options
def import_command(
    output: Format,
    messages: Path | None,
    table: Path | None,
    rate: float,
    *,
    check: bool,
    without_refused: bool,
    **options: Any,
) -> int:
    """Have the messages of FILE wait in a cluster, each once, however often it is imported.

    All of FILE is checked before: if the cluster would refuse a message, nothing is sent, and the exit code
    is 5; so it is where --without-refused has sent the others. Killed, it is started again with the same
    words. A message that has no id gets moved/BUFFER_ID/SOURCE, after the columns of its line: cancel it by
    that.
    """
    from ops.pending import imports

    file = _file(messages, table, "name the FILE, or give --from parquet:PATH")
    cluster = imports.cluster_of(connect(options))
    checked = imports.check(cluster, file.read())
    _say_checked(checked)
    if check:
        before = {"imported_before": checked.messages - checked.left}
        counts = {"export": checked.export, "messages": checked.messages} | before
        return _show_checked(output, checked, counts, REFUSED_COLUMNS)
    if not without_refused:
        imports.require_taken(file, cluster.config.cluster, checked)
    who = someone(f"import of {file}")
    sent, refused = imports.send_file(cluster, file, rate, who, say, without_refused=without_refused)
    done = {"messages": checked.messages, "imported": sent, "refused": refused}
    emit_one(output, {"export": checked.export} | done | {"before": checked.messages - sent - refused})
    return 5 if refused else 0


@pending_group.command("show", epilog="Example: delayline pending show --cluster delay")
@output_option
@connection_options
def show_command(output: Format, **options: Any) -> None:
    """Show what was taken out of the cluster, as its topic for exports has it."""
    from ops.pending import export

    found = export.kept(connect(options))
    emit_one(
        output,
        {
            "topic": found.topic,
            "export": found.export,
            "messages": found.messages,
            "outcomes": _counted(output, found.outcomes),
            "open": found.open,
            "not_the_services": found.strangers,
        },
    )


@pending_group.command("forget", epilog="Example: delayline pending forget --confirm delay")
@confirm_option
@connection_options
def forget_command(confirm: str | None, **options: Any) -> None:
    """Delete the topic that has what was taken out: once it is imported, and its file is not needed."""
    from ops.pending import export

    expect_answer(confirm)
    config = connect(options)
    what = f"what was taken out of cluster {config.cluster} will be in its file alone"
    agree(config.cluster, confirm, what)
    found = export.forget(config, someone("it is imported"))
    say(f"{found.topic} is deleted, with {found.messages} messages")


def _file(lines: Path | None, table: Path | None, otherwise: str) -> ExportFile:
    """The file of an export. Usage error where none is named (`otherwise` says what to do), or two are."""
    from ops.pending.jsonl import in_lines

    if lines is not None and table is not None:
        raise click.UsageError(f"{lines} and {table} are both named: give the one that is meant")
    if table is not None:
        from ops.pending.parquet import in_parquet

        return in_parquet(table)
    if lines is None:
        raise click.UsageError(otherwise)
    return in_lines(lines)


def _exported(output: Format, file: ExportFile, done: Exported) -> dict[str, Any]:
    """What an export has done."""
    return {"file": str(file), "messages": done.messages, "this_run": _counted(output, done.outcomes)}


def _left(done: Exported) -> dict[str, int]:
    """What it has left."""
    return {"later": done.later, "too_large": done.too_large, "hidden": done.hidden}


def _counted(output: Format, counts: Mapping[str, int]) -> Any:
    """The outcomes of cancels, for people or for programs."""
    if output != "table":
        return dict(counts)
    return ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())) or None


def _show_survey(output: Format, listing: Listing) -> None:
    from delayline.times import render_time
    from ops.pending.listing import hidden_words

    rows = [
        {
            "state": kind.state,
            "target": kind.target,
            "messages": count,
            "first_due": render_time(listing.first_due_ms[kind]),
        }
        for kind, count in sorted(listing.kinds.items())
    ]
    emit(output, rows, SURVEY_COLUMNS)
    say(f"{listing.messages} messages wait; nothing was changed")
    if listing.hidden:
        say(hidden_words(listing.hidden))
    if listing.others:
        say(f"{listing.others} requests more are none, and end by themselves: rejects and reschedules")


def _say_checked(checked: Checked) -> None:
    if checked.missing:
        say(f"targets that are not there now: {', '.join(checked.missing[:5])}")
    if checked.moved_id is not None:
        say(f"a message without an id gets one of its export and source, such as {checked.moved_id}")


def _show_checked(
    output: Format, checked: Checked, messages: Mapping[str, Any], columns: Mapping[str, str]
) -> int:
    """Shows how many `messages` there are, what they become, and which are refused; the exit code."""
    refused = [
        {"line": one.number, "source": one.source, "code": one.code, "detail": one.detail}
        for one in checked.refused
    ]
    rows = [{key: row[key] for key in columns} for row in refused]
    counts = {
        **messages,
        "requests": checked.requests,
        "overdue": checked.overdue,
        "recurring": checked.recurring,
        "refused": checked.refusals.total(),
    }
    data = counts | {"codes": dict(checked.refusals), "first_refused": rows, "missing": checked.missing}
    if output != "table":
        emit_one(output, data)
    else:
        emit_one(output, counts)
        if rows:
            emit(output, rows, columns)
    return 5 if rows else 0
