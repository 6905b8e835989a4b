"""`delayline checkpoint`: what has been delivered, exactly; who has changed what; replays and skips."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from ops.cli.checkpoint_change import cancel, replay, skip
from ops.cli.checkpoint_file import export, import_
from ops.cli.options import connect, connection_options
from ops.cli.output import Format, age, emit, output_option, printable, say

if TYPE_CHECKING:
    from election.operators import Author, PauseState
    from ops.checkpoint.history import Change
    from ops.checkpoint.show import CheckpointPair
    from store.checkpoint import Checkpoint
    from store.operations import Operation


@click.group("checkpoint", commands=[replay, skip, cancel, export, import_])
def checkpoint_group() -> None:
    """Show what has been delivered, exactly; deliver it again, or skip ahead."""


COLUMNS = {"lane": "lane", "field": "field", "topic": "topic", "znode": "znode"}
HISTORY_COLUMNS = {
    "at": "when",
    "lane": "lane",
    "what": "what",
    "who": "who",
    "before": "from",
    "after": "to",
    "why": "why",
}


@checkpoint_group.command(epilog="Example: delayline checkpoint show --lane 0")
@click.option("--lane", type=int, help="One lane (default: all).")
@output_option
@connection_options
def show(output: Format, lane: int | None, **options: Any) -> int:
    """Show the checkpoint in the topic and in the znode, side by side, and what a difference means.

    With it the operation under way: a replay and how far it has come, a skip, what was refused last; and what
    is paused. Exit code 1 if the two differ in a way that a healthy cluster never shows.
    """
    from ops.checkpoint import show

    shown = show.show(connect(options), lane)
    now_ms = time.time_ns() // 1_000_000
    paused = _paused(shown.pauses, now_ms)
    if output == "table":
        rows = [row for pair in shown.pairs for row in _rows(pair, now_ms)]
        rows += [{"lane": "all", "field": "paused", "topic": None, "znode": one} for one in paused]
        if rows:
            emit(output, rows, COLUMNS)
    else:
        emit(output, [], {}, data=[_as_data(pair, shown.pauses) for pair in shown.pairs])
    for pair in shown.pairs:
        say(f"{'warning: ' if pair.alarming else ''}lane {pair.lane}: {pair.meaning}")
    for one in paused:
        say(f"warning: {one.plain}")
    return 1 if any(pair.alarming for pair in shown.pairs) else 0


@checkpoint_group.command(epilog="Example: delayline checkpoint history --limit 5")
@click.option("--lane", type=int, help="What concerns this lane (default: all).")
@click.option(
    "--limit", type=click.IntRange(1, 1_000), default=50, show_default=True, help="So many, the last ones."
)
@output_option
@connection_options
def history(output: Format, lane: int | None, limit: int, **options: Any) -> None:
    """Show what has changed: every leadership, and what operators have done; who, when, from, to, why.

    Leaderships are kept for ever, of operators' changes the last 1,000. Without Kafka the latter are shown.
    """
    from ops.checkpoint import history

    found = history.history(connect(options), lane, limit)
    if output != "table":
        emit(output, [], {}, data=[_change_data(change) for change in found.changes])
    elif found.changes:
        emit(output, [_change_row(change) for change in found.changes], HISTORY_COLUMNS)
    elif found.trouble is None:
        say("nothing has changed yet: no node has been leader")
    if found.trouble is not None:
        say(f"warning: leaderships are not known: {found.trouble}")


def _change_data(change: Change) -> dict[str, Any]:
    return {
        "at_ms": change.at_ms,
        "lane": change.lane,
        "what": change.what,
        "who": change.who,
        "from": change.before,
        "to": change.after,
        "why": change.why,
    }


def _change_row(change: Change) -> dict[str, Any]:
    from delayline.times import render_time

    lane = "all" if change.lane is None else str(change.lane)
    texts = {name: getattr(change, name) for name in ("what", "who", "before", "after", "why")}
    return texts | {"at": render_time(change.at_ms), "lane": lane}


def _paused(pauses: PauseState, now_ms: int) -> list[Text]:
    found = [] if pauses.paused is None else [("the whole cluster", pauses.paused)]
    found += [(f"target {target}", author) for target, author in sorted(pauses.paused_targets.items())]
    return [Text(_said(what, author, now_ms), style="bold red") for what, author in found]


def _said(what: str, author: Author, now_ms: int) -> str:
    since = age(author.at_ms, now_ms)
    return printable(f"{what} is paused since {since} by {author.by}: {author.reason}")


def _rows(pair: CheckpointPair, now_ms: int) -> list[dict[str, Any]]:
    topic, znode = _fields(pair.in_topic, now_ms), _fields(pair.in_znode, now_ms)
    names = topic | znode
    rows = [
        {"lane": pair.lane, "field": name, "topic": topic.get(name), "znode": znode.get(name)}
        for name in names
    ]
    if pair.waits is not None:
        from ops.checkpoint.lane_request import described

        waits = f"request {pair.waits.number} waits for the leader: {described(pair.waits)}"
        rows.append({"lane": pair.lane, "field": "asked", "topic": None, "znode": waits})
    return rows


def _fields(checkpoint: Checkpoint | None, now_ms: int) -> dict[str, str]:
    if checkpoint is None:
        return {}
    return {
        "epoch": str(checkpoint.epoch),
        "position": _position(checkpoint),
        "delivered up to": age(checkpoint.delivered_up_to_ms, now_ms),
        "applied": _vector(checkpoint.applied),
        "seen": _vector(checkpoint.seen),
        "written back": _vector(checkpoint.written_back),
        "awaited": _awaited(checkpoint),
        "operation": _operation(checkpoint.operation),
        **({"held": _held(checkpoint)} if checkpoint.holds else {}),
        "leader": checkpoint.node,
        "written": age(checkpoint.at_ms, now_ms),
    }


def _awaited(checkpoint: Checkpoint) -> str:
    """What was written back and could not be read yet: of each partition, how many."""
    awaited = checkpoint.awaited
    counts = Counter({partition: len(listed) for partition, listed in awaited.successors.items()})
    counts.update({partition: len(listed) for partition, listed in awaited.unnamed.items()})
    said = [f"{partition}: {count}" for partition, count in sorted(counts.items())]
    said += [f"{partition}: more, below {end}" for partition, end in sorted(awaited.unlisted.items())]
    return ", ".join(said) or "nothing"


def _held(checkpoint: Checkpoint) -> str:
    """What waits for the end of its target's pause: of each hold, how much at most, and from when on."""
    from delayline.times import render_time

    return ", ".join(
        f"{hold.target}: {hold.rows:,} due since {render_time(hold.next[0])}"
        + ("" if hold.last is None else f", on their way up to {render_time(hold.last[0])}")
        for hold in checkpoint.holds
    )


def _operation(operation: Operation) -> str:
    from ops.checkpoint.lane_request import described, progress
    from store.operations import SkipRequest

    said = []
    if operation.replay is not None:
        said.append(f"request {operation.replay.number}: {progress(operation.replay)}")
    if operation.skip_to is not None:
        said.append(described(SkipRequest(0, operation.skip_to[0] + 1)))
    last = "" if operation.request is None else f", {described(operation.request)},"
    if operation.refused is not None:
        said.append(f"request {operation.number}{last} was refused: {operation.refused}")
    if not said and operation.number:
        said.append(f"none; request {operation.number}{last} was the last")
    return "; ".join(said) or "none"


def _position(checkpoint: Checkpoint) -> str:
    from delayline.times import render_time

    if checkpoint.position is None:
        return "nothing delivered"
    due_ms, partition, offset = checkpoint.position
    return f"{render_time(due_ms)} {partition}/{offset}"


def _vector(vector: dict[int, int]) -> str:
    return " ".join(f"{partition}:{offset}" for partition, offset in sorted(vector.items())) or "-"


def _as_data(pair: CheckpointPair, pauses: PauseState) -> dict[str, Any]:
    import msgspec

    return {
        "lane": pair.lane,
        "topic": msgspec.to_builtins(pair.in_topic),
        "znode": msgspec.to_builtins(pair.in_znode),
        "alarming": pair.alarming,
        "meaning": pair.meaning,
        "waits": msgspec.to_builtins(pair.waits),
        "pauses": msgspec.to_builtins(pauses),
    }
