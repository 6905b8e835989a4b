"""`delayline checkpoint replay`, `skip` and `cancel`: what a lane's leader does because an operator wants it.

Without `--execute` it is only told what would come of a replay or a skip.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ops.cli.operator import agree, agreed, author, expect_answer, operator_options, timeout_option
from ops.cli.options import connect, connection_options, together
from ops.cli.output import Format, emit, output_option, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from election.operators import Author
    from node.http.answers import Foreseen
    from store.operations import ReplayRequest, SkipRequest

_TIMEOUT = timeout_option(20.0, "How long to wait for the leader to take it up.")
_LANE = click.option("--lane", type=int, help="One lane (default: all).")
execute_options = together(
    click.option("--execute", is_flag=True, help="Do it (default: say what would be done)."),
    click.option("--reason", metavar="TEXT", help="Why; it stays in the cluster's history. For --execute."),
    click.option("--by", metavar="NAME", help="Who wants it (default: this system's user)."),
    click.option("--confirm", metavar="CLUSTER", help="The cluster's name, instead of being asked for it."),
)
"""`--execute` and what it needs; they arrive with the other options, for `who_executes`."""
_TARGET_COLUMNS = {"lane": "lane", "target": "target", "messages": "messages"}
_CANCEL_COLUMNS = {"lane": "lane", "request": "request", "cancelled": "cancelled"}


def who_executes(options: dict[str, Any]) -> tuple[Author | None, str | None]:
    """Who wants it to be done, None if it is not to be, and the name that confirms it. Usage error if it
    cannot be done.
    """
    execute, confirm = options.pop("execute"), options.pop("confirm")
    if not execute:
        del options["reason"], options["by"]
        return None, confirm
    if options["reason"] is None:
        raise click.UsageError("--execute needs --reason TEXT: it stays in the cluster's history")
    expect_answer(confirm)
    return author(options), confirm


def time_ms(_: click.Context, param: click.Parameter, value: str) -> int:
    """A time that was typed: RFC 3339 or epoch milliseconds."""
    from delayline.times import parse_time

    try:
        return parse_time(value.encode())
    except ValueError as error:
        raise click.BadParameter(f"{value!r}: {error}", param=param) from None


_TIME = "RFC 3339 or epoch milliseconds"


@click.command(
    epilog="Example: delayline checkpoint replay --from 2030-01-01T00:00:00Z --to 2030-01-01T00:05:00Z"
    " --target orders --execute --reason 'orders was restored from a backup'"
)
@click.option("--from", "from_ms", required=True, metavar="TIME", callback=time_ms, help=f"{_TIME}.")
@click.option("--to", "to_ms", required=True, metavar="TIME", callback=time_ms, help="Without this time.")
@click.option("--target", metavar="TOPIC", help="Messages to this topic (default: all).")
@_LANE
@_TIMEOUT
@execute_options
@output_option
@connection_options
def replay(
    output: Format, from_ms: int, to_ms: int, target: str | None, lane: int | None, **options: Any
) -> None:
    """Deliver again what was delivered from one time to another, each message once.

    What counts is when a message fell due. It arrives with a higher delay-attempt and the delay-source that
    it had; new messages go before. A failover does not double it, and loses nothing of it. What was skipped
    in that time is delivered, too. Without --execute it says how many messages of which targets there are.

    Exit code 5 if the leader refuses: the time is not kept any more, or another replay is under way; or if
    somebody cancels it. 6 if there is no leader.
    """
    from store.operations import ReplayRequest

    if to_ms <= from_ms:
        raise click.UsageError("--to must be later than --from")
    _carry_out(output, ReplayRequest(0, from_ms, to_ms, target), lane, options)


@click.command(
    epilog="Example: delayline checkpoint skip --to 2030-01-01T00:00:00Z --execute --reason 'too old by now'"
)
@click.option("--to", "to_ms", required=True, metavar="TIME", callback=time_ms, help=f"{_TIME}.")
@_LANE
@_TIMEOUT
@execute_options
@output_option
@connection_options
def skip(output: Format, to_ms: int, lane: int | None, **options: Any) -> None:
    """Do not deliver what is pending and fell due before a time, which is past.

    Each message gets the outcome 'skipped'; one that recurs goes on with its next occurrence; what arrives
    later is delivered, however old. To have something to skip, pause the cluster first, and resume it
    afterwards. Without --execute it says how many messages of which targets there are.

    Exit code 5 if the leader refuses: the time is in the future; 6 if there is none.
    """
    from store.operations import SkipRequest

    _carry_out(output, SkipRequest(0, to_ms), lane, options)


@click.command(epilog="Example: delayline checkpoint cancel --reason 'it was the wrong day' --confirm delay")
@_LANE
@_TIMEOUT
@operator_options
@output_option
@connection_options
def cancel(output: Format, lane: int | None, timeout_s: float, confirm: str | None, **options: Any) -> None:
    """End a replay where it is, and take back a request that waits for the leader.

    What was delivered again stays delivered. Exit code 3 if there is nothing to cancel.
    """
    from ops.checkpoint import requests

    config, by = agreed(options, confirm, "replays end where they are, and requests that wait are taken back")
    cancelled, done = requests.cancel(config, lane, by, say, timeout_s)
    rows = [{"lane": one.lane, "request": one.number, "cancelled": one.what} for one in cancelled]
    emit(output, rows, _CANCEL_COLUMNS, data={"lanes": rows, "waits": not done})


def _carry_out(
    output: Format, request: ReplayRequest | SkipRequest, lane: int | None, options: dict[str, Any]
) -> None:
    from ops.checkpoint import requests

    by, confirm = who_executes(options)
    timeout_s = options.pop("timeout_s")
    config = connect(options)
    if confirm is not None:  # before a long count
        agree(config.cluster, confirm, "")
    prospects = requests.foresee(config, request, lane)
    requests.require_accepted(prospects)
    _show(output, prospects)
    what = _what(request, prospects)
    _say_hints(request)
    if by is None:
        say(f"{what}; nothing was done, --execute does it")
        _emit(output, prospects, executed=False, waits=False)
        return
    if confirm is None:
        agree(config.cluster, None, what)
    done = requests.carry_out(config, request, lane, by, say, timeout_s)
    _emit(output, prospects, executed=done, waits=not done)


def _show(output: Format, prospects: Sequence[Foreseen]) -> None:
    """To decide on, before it is done: a table is for whoever reads it."""
    rows = [
        {"lane": one.node.lane, "target": target, "messages": count}
        for one in prospects
        for target, count in sorted(one.targets.items())
    ]
    if output == "table" and rows:
        emit(output, rows, _TARGET_COLUMNS)


def _emit(output: Format, prospects: Sequence[Foreseen], *, executed: bool, waits: bool) -> None:
    """What was done, once it is: for programs."""
    if output == "table":
        return
    import msgspec

    lanes = [
        {
            "lane": one.node.lane,
            "targets": one.targets,
            "at_least": one.at_least,
            "node": msgspec.to_builtins(one.node),
        }
        for one in prospects
    ]
    messages = sum(one.messages for one in prospects)
    data = {"messages": messages, "lanes": lanes, "executed": executed, "waits": waits}
    emit(output, [], {}, data=data)


def _what(request: ReplayRequest | SkipRequest, prospects: Sequence[Foreseen]) -> str:
    from store.operations import SkipRequest

    count = sum(one.messages for one in prospects)
    at_least = "at least " if any(one.at_least for one in prospects) else ""
    messages = f"{at_least}{count} message{'' if count == 1 else 's'}"
    return f"{messages} would {'be skipped' if isinstance(request, SkipRequest) else 'be delivered again'}"


def _say_hints(request: ReplayRequest | SkipRequest) -> None:
    from store.operations import SkipRequest

    if isinstance(request, SkipRequest):
        say("a replay over the time that was skipped delivers what was skipped, for as long as it is kept")
    else:
        say("what was skipped in that time is delivered, too")
