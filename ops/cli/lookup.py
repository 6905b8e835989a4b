"""`delayline message show` and `list`: what became of a message, and what is pending."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from ops.cli.options import connect, connection_options
from ops.cli.output import Format, age, emit, emit_one, output_option, say

if TYPE_CHECKING:
    from node.http.answers import AnsweringNode, Extent, Message, Shown
    from ops.message.lookup import MessageListing

_NODE = click.option(
    "--node", metavar="NODE", help="The node to ask (default: the leader, or any that answers)."
)

_TIMES = ("due_ms", "scheduled_for_ms", "expire_at_ms", "at_ms")
_LIST_COLUMNS = {
    "due": "due",
    "id": "id",
    "state": "state",
    "target": "target",
    "attempt": "attempt",
    "occurrence": "occurrence",
    "source": "source",
}
_EVENT_COLUMNS = {
    "at": "at",
    "outcome": "outcome",
    "op": "op",
    "epoch": "epoch",
    "request": "request",
    "message": "message",
    "code": "code",
}


@click.command(epilog="Example: delayline message show order-1")
@click.argument("id_", metavar="[ID]", required=False)
@click.option("--source", metavar="SOURCE", help="Of the request whose message is meant, instead of ID.")
@_NODE
@click.option(
    "--history", is_flag=True, help="All outcomes of the replay window, however many there are to read."
)
@output_option
@connection_options
def show(
    output: Format,
    id_: str | None,
    source: str | None,
    node: str | None,
    history: bool,  # noqa: FBT001
    **options: Any,
) -> int:
    """Show what became of the message with this ID, or of this SOURCE.

    Pending, parked, delivered, cancelled, expired or dead-lettered, when and in which epoch; and its outcomes
    in the replay window: replaced, rescheduled and the like. Exit code 3 if it is unknown.
    """
    import msgspec

    from node.http.answers import MessageState
    from ops.message import lookup

    if (id_ is None) == (source is None):
        raise click.UsageError("give the message's ID, or --source")
    extent: Extent = "all" if history else "recent"
    if id_ is not None:
        answer = lookup.show(connect(options), id_, node, extent)
    else:
        answer = lookup.show_source(connect(options), str(source), node, extent)
    if output != "table":
        emit_one(output, msgspec.to_builtins(answer))
    else:
        _show(answer)
    _say_who_answered(answer.node)
    return 3 if answer.message.state == MessageState.UNKNOWN else 0


@click.command(
    "list", epilog="Example: delayline message list --to 2030-01-01T00:00:00Z --target orders --limit 20"
)
@click.option("--from", "begin", metavar="TIME", help="Due then or later: RFC 3339 or epoch milliseconds.")
@click.option("--to", "end", metavar="TIME", help="Due before that.")
@click.option("--target", metavar="TOPIC", help="Messages to this topic.")
@click.option("--id-prefix", metavar="PREFIX", help="Messages whose id begins so.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="So many at most.")
@click.option(
    "--after", metavar="CURSOR", help="Go on behind an earlier list, with the cursor it has ended with."
)
@_NODE
@output_option
@connection_options
def list_command(output: Format, **options: Any) -> None:
    """List what is pending, in order of due time: messages, and requests that wait to be looked at.

    Each that stays pending is listed once from page to page, whatever is scheduled and delivered meanwhile.
    """
    import msgspec

    from ops.message import lookup

    asked = {name: options.pop(name) for name in ("begin", "end", "target", "id_prefix")}
    query = {
        "from_ms": _time(asked["begin"], "--from"),
        "to_ms": _time(asked["end"], "--to"),
        "target": asked["target"],
        "id_prefix": asked["id_prefix"],
    }
    limit, after, node = options.pop("limit"), _cursor(options.pop("after")), options.pop("node")
    listing = lookup.pending(connect(options), query, after, limit, node)
    if output != "table":
        emit(output, [], {}, data=msgspec.to_builtins(listing))
    elif listing.messages:
        emit(output, [_row(message) for message in listing.messages], _LIST_COLUMNS)
    _say_count(listing)
    for answering in listing.nodes:
        _say_who_answered(answering)


def _time(text: str | None, option: str) -> int | None:
    from delayline.times import parse_time

    try:
        return None if text is None else parse_time(text.encode())
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: {error}", param_hint=option) from None


def _cursor(text: str | None) -> str | None:
    from node.http.answers import parse_cursor

    try:
        if text is not None:
            parse_cursor(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--after") from None
    return text


def _row(message: Message) -> dict[str, Any]:
    from delayline.times import render_time

    return {
        "due": None if message.due_ms is None else render_time(message.due_ms),
        "id": message.id,
        "state": message.state if message.op == "schedule" else f"{message.state} {message.op}",
        "target": _target(message),
        "attempt": message.attempt,
        "occurrence": message.occurrence,
        "source": message.source,
    }


def _target(message: Message) -> str | None:
    topic, partition = message.target_topic, message.target_partition
    return topic if partition is None else f"{topic}/{partition}"


def _show(answer: Shown) -> None:
    import msgspec

    from delayline.times import render_time

    history = answer.history
    now_ms = time.time_ns() // 1_000_000
    message = msgspec.to_builtins(answer.message)
    said = {name: value for name, value in message.items() if value is not None and name != "op"}
    said |= {name: age(said[name], now_ms) for name in _TIMES if name in said}
    emit_one("table", {name.removesuffix("_ms"): value for name, value in said.items()})
    if history is None:
        return
    if history.events:
        click.echo()
        rows = [{**msgspec.to_builtins(one), "at": render_time(one.at_ms)} for one in history.events]
        emit("table", rows, _EVENT_COLUMNS)
    if history.left_out:
        say(f"its outcomes are left out: {history.left_out} records to read; --history reads them all")
    elif history.trouble:
        say(f"its outcomes cannot be told: {history.trouble}")


def _say_count(listing: MessageListing) -> None:
    shown, total = len(listing.messages), listing.total
    of = "" if total is None else f" of {'at least ' if total.at_least else ''}{total.count}"
    say(f"{shown}{of} pending" + (f"; more behind --after {listing.next}" if listing.next else ""))


def _say_who_answered(answering: AnsweringNode) -> None:
    """Who has answered, and how far it was."""
    from delayline.times import render_time

    lag, up_to_ms = answering.lag, answering.delivered_up_to_ms
    read = " ".join(f"{partition}:{offset}" for partition, offset in sorted(answering.applied.items()))
    behind = "how far behind the log's end is not known" if lag is None else f"lag {lag}"
    up_to = f"delivered up to {render_time(up_to_ms)}" if up_to_ms else "nothing delivered yet"
    who = f"{answering.node} ({answering.state}, lane {answering.lane})"
    say(f"{who}: applied {read}, {behind}, {up_to}")
