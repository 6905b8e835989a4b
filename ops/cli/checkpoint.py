"""`delayline checkpoint`: what has been delivered, exactly."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from ops.cli.options import connect, connection_options
from ops.cli.output import Format, age, emit, output_option, say

if TYPE_CHECKING:
    from ops.checkpoints import CheckpointPair
    from store.checkpoint import Checkpoint


@click.group("checkpoint")
def checkpoint_group() -> None:
    """Show what has been delivered, exactly."""


COLUMNS = {"lane": "lane", "field": "field", "topic": "topic", "znode": "znode"}


@checkpoint_group.command(epilog="Example: delayline checkpoint show --lane 0")
@click.option("--lane", type=int, help="One lane (default: all).")
@output_option
@connection_options
def show(output: Format, lane: int | None, **options: Any) -> int:
    """Show the checkpoint in the topic and in the znode, side by side, and what a difference means.

    Exit code 1 if they differ in a way that a healthy cluster never shows.
    """
    from ops import checkpoints  # noqa: PLC0415

    pairs = checkpoints.show(connect(options), lane)
    now_ms = time.time_ns() // 1_000_000
    if output == "json":
        emit(output, [], {}, data=[_as_data(pair) for pair in pairs])
    elif rows := [row for pair in pairs for row in _rows(pair, now_ms)]:
        emit(output, rows, COLUMNS)
    for pair in pairs:
        say(f"{'warning: ' if pair.alarming else ''}lane {pair.lane}: {pair.meaning}")
    return 1 if any(pair.alarming for pair in pairs) else 0


def _rows(pair: CheckpointPair, now_ms: int) -> list[dict[str, Any]]:
    topic, znode = _fields(pair.in_topic, now_ms), _fields(pair.in_znode, now_ms)
    names = topic or znode
    return [
        {"lane": pair.lane, "field": name, "topic": topic.get(name), "znode": znode.get(name)}
        for name in names
    ]


def _fields(checkpoint: Checkpoint | None, now_ms: int) -> dict[str, str]:
    if checkpoint is None:
        return {}
    return {
        "epoch": str(checkpoint.epoch),
        "position": _position(checkpoint),
        "delivered up to": age(checkpoint.delivered_up_to_ms, now_ms),
        "ingested": _vector(checkpoint.ingested),
        "seen": _vector(checkpoint.seen),
        "written back": _vector(checkpoint.written_back),
        "master": checkpoint.node,
        "written": age(checkpoint.at_ms, now_ms),
    }


def _position(checkpoint: Checkpoint) -> str:
    from delayline.times import render_time  # noqa: PLC0415

    if checkpoint.position is None:
        return "nothing delivered"
    due_ms, partition, offset = checkpoint.position
    return f"{render_time(due_ms)} {partition}/{offset}"


def _vector(vector: dict[int, int]) -> str:
    return " ".join(f"{partition}:{offset}" for partition, offset in sorted(vector.items())) or "-"


def _as_data(pair: CheckpointPair) -> dict[str, Any]:
    import msgspec  # noqa: PLC0415

    return {
        "lane": pair.lane,
        "topic": msgspec.to_builtins(pair.in_topic),
        "znode": msgspec.to_builtins(pair.in_znode),
        "alarming": pair.alarming,
        "meaning": pair.meaning,
    }
