"""`delayline message`: requests by hand, with the producer that applications use, and what became of them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ops.cli import lookup
from ops.cli.options import connect_kafka, connection_options, together
from ops.cli.output import Format, emit_one, output_option, say

if TYPE_CHECKING:
    from delayline import DelayProducer, Receipt, Recurrence
    from node.config import KafkaConfig

_BLOCK_S = 5.0


@click.group("message", commands=[lookup.show, lookup.list_command])
def message_group() -> None:
    """Schedule, cancel, reschedule, run a message now; show what became of it, list what is pending."""


_time_options = together(
    click.option(
        "--at", "deliver_at", metavar="TIME", help="RFC 3339 with an offset, or epoch milliseconds."
    ),
    click.option("--after", metavar="DURATION", help="1500ms, 90s, 1h30m, 2d or PT30M from now."),
    click.option("--level", type=int, help="A delay of the cluster's table: 1, 2, ..."),
    click.option("--expire-at", metavar="TIME", help="Not worth delivering after this."),
)


_repeat_options = together(
    click.option("--every", metavar="DURATION", help="Again and again, so long after the last one."),
    click.option("--factor", metavar="NUMBER", help="With --every: the interval grows by it each time."),
    click.option("--cron", metavar="EXPRESSION", help='Whenever it fires, such as "30 9 * * MON-FRI".'),
    click.option("--time-zone", metavar="NAME", help="Of --cron, such as Europe/Berlin (default: UTC)."),
    click.option("--times", type=int, help="Deliveries in all; without --id give this or --until."),
    click.option("--until", metavar="TIME", help="None after this."),
    click.option("--missed", type=click.Choice(["all", "latest", "skip"]), help="Which of those to deliver."),
)


def _repeat(options: dict[str, Any]) -> Recurrence | None:
    """What the options of a recurring message say."""
    from delayline import requests

    given = {name: options.pop(name) for name in ("every", "factor", "cron", "time_zone", *_LIMITS)}
    asked = {name: value for name, value in given.items() if value is not None}
    interval, expression = asked.pop("every", None), asked.pop("cron", None)
    if (interval is None) == (expression is None):
        if interval is not None or asked:
            raise click.UsageError("give --every or --cron, and what goes with it")
        return None
    if interval is not None:
        if "time_zone" in asked:
            raise click.UsageError("--time-zone goes with --cron")
        return requests.every(interval, **asked)
    if "factor" in asked:
        raise click.UsageError("--factor goes with --every")
    return requests.cron(str(expression), **asked)


_LIMITS = ("times", "until", "missed")


_WAIT = click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0),
    default=10.0,
    show_default=True,
    help="Seconds to wait for what became of the request; 0: do not wait.",
)


@message_group.command(
    epilog="Example: delayline message schedule orders '{\"n\": 1}' --after 90s --id order-1 -H kind=reminder"
)
@click.argument("topic")
@click.argument("value")
@click.option("--key", help="The message's key.")
@click.option("-H", "--header", "headers", metavar="NAME=VALUE", multiple=True, help="May be repeated.")
@click.option("--id", "id_", help="Makes the message known by this id; replaces a pending one with the same.")
@click.option(
    "--if-exists",
    type=click.Choice(["replace", "keep"]),
    default="replace",
    show_default=True,
    help="What is to become of a message that has this id; keep makes it safe to repeat.",
)
@click.option("--partition", type=int, help="Of the target (default: by key).")
@_time_options
@_repeat_options
@output_option
@connection_options
def schedule(
    output: Format, topic: str, value: str, headers: tuple[str, ...], id_: str | None, **options: Any
) -> None:
    """Deliver VALUE to TOPIC later; without a time, at once. With --every or --cron, again and again.

    A VALUE of - is read from standard input. Prints the request's source, which the delivered message carries
    as `delay-source`.
    """
    from delayline import requests

    payload = sys.stdin.buffer.read() if value == "-" else value.encode()
    pairs = [_header(text) for text in headers]
    request = {name: options.pop(name) for name in ("key", "partition", "if_exists", *_TIMES)}
    request["repeat"] = _repeat(options)
    requests.schedule(topic, payload, headers=pairs, id=id_, **request)  # says what is wrong at once
    config = _reached(options)
    source = _send(config, lambda p: p.schedule(topic, payload, headers=pairs, id=id_, **request))
    emit_one(output, {"source": source, "id": id_})


@message_group.command(epilog="Example: delayline message cancel --source delay.buffer/0/42")
@click.argument("id_", metavar="[ID]", required=False)
@click.option("--source", metavar="SOURCE", help="Of the request whose message is meant, instead of ID.")
@_WAIT
@output_option
@connection_options
def cancel(output: Format, id_: str | None, source: str | None, wait_s: float, **options: Any) -> int:
    """Do not deliver the pending message with this ID, or of this SOURCE: any message has one, with an id or
    without; `message schedule` prints it, and delivered messages have it in `delay-source`. A recurring one
    ends.

    Exit code 3 if there is no such message, 5 if it was too late.
    """
    from delayline import requests

    if (id_ is None) == (source is None):
        raise click.UsageError("give the message's ID, or --source")
    requests.cancel(id_, source=source)  # says what is wrong at once
    return _control(output, options, id_, wait_s, lambda p: p.cancel(id_, source=source))


@message_group.command(epilog="Example: delayline message reschedule order-1 --at 2030-01-01T09:00:00+01:00")
@click.argument("id_", metavar="ID")
@_time_options
@_WAIT
@output_option
@connection_options
def reschedule(output: Format, id_: str, wait_s: float, **options: Any) -> int:
    """Deliver the pending message with this ID at another time.

    Exit code 3 if there is no such message, 5 if it was too late, or a later request has overtaken it.
    """
    from delayline import requests

    request = {name: options.pop(name) for name in _TIMES}
    if all(request[name] is None for name in ("deliver_at", "after", "level")):
        raise click.UsageError("give the new time: --at, --after or --level ('run-now' delivers at once)")
    requests.reschedule(id_, **request)  # says what is wrong at once
    return _control(output, options, id_, wait_s, lambda p: p.reschedule(id_, **request))


@message_group.command("run-now", epilog="Example: delayline message run-now order-1")
@click.argument("id_", metavar="ID")
@_WAIT
@output_option
@connection_options
def run_now(output: Format, id_: str, wait_s: float, **options: Any) -> int:
    """Deliver the pending message with this ID at once.

    Exit code 3 if there is no such message, 5 if it was too late, or a later request has overtaken it.
    """
    return _control(output, options, id_, wait_s, lambda p: p.run_now(id_))


_TIMES = ("deliver_at", "after", "level", "expire_at")


def _control(
    output: Format,
    options: dict[str, Any],
    id_: str | None,
    wait_s: float,
    send: Callable[[DelayProducer], Receipt],
) -> int:
    from delayline import UnansweredError

    config = _reached(options)
    if wait_s == 0:
        emit_one(output, {"source": _send(config, send), "id": id_})
        return 0
    with _producer(config, outcomes=True) as producer:
        receipt = send(producer)
        source = receipt.result(_BLOCK_S)
        try:
            outcome = receipt.outcome(wait_s)
        except UnansweredError:
            return _unanswered(output, source, id_, wait_s)
    answer = {"source": source, "id": id_, "outcome": outcome.outcome}
    more = {"message": outcome.message, "code": outcome.code, "detail": outcome.detail}
    emit_one(output, answer | {key: value for key, value in more.items() if value is not None})
    return _exit_code(outcome.outcome)


def _exit_code(outcome: str) -> int:
    from delayline import OutcomeKind

    match outcome:
        case OutcomeKind.CANCELLED | OutcomeKind.RESCHEDULED:
            return 0
        case OutcomeKind.UNKNOWN:
            return 3
        case OutcomeKind.TOO_LATE | OutcomeKind.OVERTAKEN:
            return 5
        case _:
            return 1


def _unanswered(output: Format, source: str, id_: str | None, wait_s: float) -> int:
    emit_one(output, {"source": source, "id": id_, "outcome": None})
    say(
        f"no answer in {wait_s:g} s; the request stays in the buffer and will be answered:"
        " see 'delayline cluster status' for a lane without a leader"
    )
    return 6


def _reached(options: dict[str, Any]) -> KafkaConfig:
    """The configuration, once a broker has answered: the admin's client tells why, if none does."""
    from delayline.names import ClusterNames
    from ops.clients.kafka import KafkaAdmin

    config = connect_kafka(options)
    KafkaAdmin(config).require(ClusterNames(config.cluster).buffer)
    return config


def _send(config: KafkaConfig, send: Callable[[DelayProducer], Receipt]) -> str:
    with _producer(config) as producer:
        return send(producer).result(_BLOCK_S)


def _producer(config: KafkaConfig, *, outcomes: bool = False) -> DelayProducer:
    from delayline import DelayProducer

    properties = config.client_config() | {"log_level": 0}
    return DelayProducer(properties, cluster=config.cluster, max_block_s=_BLOCK_S, outcomes=outcomes)


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="-H")
    return name, value
