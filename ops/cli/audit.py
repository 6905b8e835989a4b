"""`delayline audit`: what became of every request, read from Kafka by Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ops.cli.options import OutputFile, connect, connection_options, spark_option
from ops.cli.output import Format, emit, output_option, say
from ops.cli.watch import watch_command

if TYPE_CHECKING:
    from node.config import ConnectionConfig
    from pipeline.audit import Audit, AuditConfig, AuditReport
    from pipeline.audit.picture import Picture

MORE_IN_JSON = 20


@click.group(
    "audit",
    invoke_without_command=True,
    epilog="Example: delayline audit --bootstrap localhost:9092 --zookeeper localhost:2181",
)
@click.option(
    "--ledger",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What producers saw acknowledged: proves that the buffer holds all of it.",
)
@click.option("--now", "now_ms", type=int, metavar="EPOCH_MS", help="Nothing due by then may be outstanding.")
@click.option(
    "--grace", "grace_ms", type=int, metavar="MS", help="How late a message may be (default: 5000)."
)
@click.option("--html", type=OutputFile(), help="Write a page to look at there, too: one file, no server.")
@spark_option
@output_option
@connection_options
@click.pass_context
def audit_command(
    ctx: click.Context, /, output: Format, html: Path | None, master: str, **options: Any
) -> int:
    """Prove what became of every request: Spark reads the topics and accounts for each one.

    Exit code 1 if a message was lost, doubled, early, altered or out of order, if an outcome is false, or if
    the checkpoints are not what they must be; each violation is listed with its source.
    """
    if ctx.invoked_subcommand is not None:
        _require_none_before(ctx, ctx.invoked_subcommand)
        return 0
    wishes = {name: options.pop(name) for name in ("ledger", "now_ms", "grace_ms")}
    given = {name: wish for name, wish in wishes.items() if wish is not None}
    write_page = None if html is None else _page_writer(html)
    report, picture = _audited(connect(options), given, master, pictured=write_page is not None)
    if output != "table":
        emit(output, [], {}, data=report.as_dict())
    else:
        _show(report)
    if write_page is not None and picture is not None:
        write_page(picture)
    if report.unseen:
        from pipeline.audit.report import unseen_words

        say(unseen_words(report.unseen))
    say("every request is accounted for" if report.clean else "error: the audit has found violations")
    return 0 if report.clean else 1


audit_command.add_command(watch_command)


def _require_none_before(ctx: click.Context, command: str) -> None:
    """It would not hear of them."""
    for option in ctx.command.params:
        if ctx.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE:
            raise click.UsageError(
                f"{option.opts[0]} stands before {command}, and would mean nothing: write options behind it"
            )


def _audited(
    config: ConnectionConfig, wishes: dict[str, Any], master: str, *, pictured: bool
) -> tuple[AuditReport, Picture | None]:
    """The report, and what a page shows beside it, if that is wanted."""
    from ops.spark import audit_session, spark_errors, stopped_after
    from ops.topics.audited import audit_config
    from pipeline.audit import audit
    from pipeline.audit.snapshot import take_snapshot
    from pipeline.kafka.offsets import TopicOffsets

    wanted = audit_config(config, **wishes)
    snapshot = take_snapshot(TopicOffsets(wanted), wanted.names)
    say("starting Spark")
    session = audit_session(master, records=snapshot.records)
    with stopped_after(session) as spark, spark_errors(config.bootstrap_servers):
        found = audit(spark, wanted, snapshot)
        return found.report, _picture(found, wanted) if pictured else None


def _picture(found: Audit, config: AuditConfig) -> Picture:
    from pipeline.audit.picture import picture  # only with --html

    return picture(found, config)


def _page_writer(file: Path) -> Callable[[Picture], None]:
    """Imports what a page takes: a package that is not installed is missed now, not after the audit."""
    from pipeline.audit.page import audit_page  # only with --html
    from pipeline.page import write

    def write_page(picture: Picture) -> None:
        write(audit_page(picture), file)
        say(f"the page to look at: {file}")

    return write_page


def _show(report: AuditReport) -> None:
    from pipeline.audit.report import KINDS

    classes = [{"class": name, "requests": count} for name, count in report.classes.items()]
    emit("table", classes, {"class": "class", "requests": "requests"})
    click.echo()
    if report.occurrences:
        ends = [{"end": end, "count": count} for end, count in report.occurrences.items()]
        emit("table", ends, {"end": "end", "count": "occurrences of recurring"})
        click.echo()
    checks = [
        {"found": report.found(kind), "check": kind, "meaning": meaning} for kind, meaning in KINDS.items()
    ]
    emit("table", checks, {"check": "check", "found": "found", "meaning": "meaning"})
    click.echo()
    late = report.lateness_ms
    click.echo(
        f"{report.requests} requests; lateness p50 {late.p50} ms, p99 {late.p99} ms, max {late.max} ms"
    )
    if report.begins:
        begins = ", ".join(f"{partition} at {offset}" for partition, offset in report.begins.items())
        click.echo(
            f"not judged: the buffer begins late (partition {begins}); other records speak of {report.gone}"
            " places before that, of which the log tells nothing any more"
        )
    shown = report.violations[:MORE_IN_JSON]
    if shown:
        click.echo()
        rows = [{"kind": v.kind, "source": v.source, "detail": v.detail} for v in shown]
        emit("table", rows, {"kind": "kind", "source": "source", "detail": "detail"})
    if len(report.violations) > len(shown):
        say(f"{len(report.violations) - len(shown)} more: see them with -o json")
