"""`delayline audit`: what became of every request, read from Kafka by Spark."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ops.cli.options import connect, connection_options
from ops.cli.output import Format, emit, output_option, say

if TYPE_CHECKING:
    from node.config import ConnectionConfig
    from ops.audit import Report

MORE_IN_JSON = 20


@click.command(
    "audit", epilog="Example: delayline audit --bootstrap localhost:9092 --zookeeper localhost:2181"
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
@output_option
@connection_options
def audit_command(output: Format, **options: Any) -> int:
    """Prove what became of every request: Spark reads the topics and accounts for each one.

    Exit code 1 if a message was lost, doubled, early, altered or out of order, if an outcome is false, or if
    the checkpoints are not what they must be; each violation is listed with its source.
    """
    wishes = {name: options.pop(name) for name in ("ledger", "now_ms", "grace_ms")}
    report = _report(connect(options), {name: wish for name, wish in wishes.items() if wish is not None})
    if output == "json":
        emit(output, [], {}, data=report.as_dict())
    else:
        _show(report)
    say("every request is accounted for" if report.clean else "error: the audit has found violations")
    return 0 if report.clean else 1


def _report(config: ConnectionConfig, wishes: dict[str, Any]) -> Report:
    from delayline.names import ClusterNames  # noqa: PLC0415
    from ops import topics  # noqa: PLC0415 - `--help` needs neither Spark nor Kafka
    from ops.audit import AuditConfig, audit, spark_session  # noqa: PLC0415
    from ops.kafka import KafkaAdmin  # noqa: PLC0415

    settings = topics.read_settings(config)
    KafkaAdmin(config).require(ClusterNames(config.cluster).buffer)  # Spark would wait for minutes
    say("starting Spark")
    spark = spark_session()
    try:
        wanted = AuditConfig(config.bootstrap_servers, settings, kafka=dict(config.kafka), **wishes)
        return audit(spark, wanted).report
    finally:
        with suppress(Exception):  # after Ctrl-C there may be nothing left of it to stop
            spark.stop()


def _show(report: Report) -> None:
    from ops.audit.report import KINDS  # noqa: PLC0415

    classes = [{"class": name, "requests": count} for name, count in report.classes.items()]
    emit("table", classes, {"class": "class", "requests": "requests"})
    click.echo()
    counts = report.as_dict()
    checks = [
        {"found": counts.get(kind, counts.get(f"{kind}s")), "check": kind, "meaning": meaning}
        for kind, meaning in KINDS.items()
    ]
    emit("table", checks, {"check": "check", "found": "found", "meaning": "meaning"})
    click.echo()
    late = report.lateness_ms
    click.echo(
        f"{report.requests} requests; lateness p50 {late.p50} ms, p99 {late.p99} ms, max {late.max} ms"
    )
    shown = report.violations[:MORE_IN_JSON]
    if shown:
        click.echo()
        rows = [{"kind": v.kind, "source": v.source, "detail": v.detail} for v in shown]
        emit("table", rows, {"kind": "kind", "source": "source", "detail": "detail"})
    if len(report.violations) > len(shown):
        say(f"{len(report.violations) - len(shown)} more: see them with -o json")
