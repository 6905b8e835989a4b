"""What a replay or a skip would do, before an operator asks for it: by the rules by which the leader takes it
up and selects, on a snapshot of a view (rule 8, docs/design.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from store import keys
from store.checkpoint import Frontier, Reached, Vector
from store.kv import KeyValue
from store.operations import Replay, ReplayRequest, SkipRequest
from store.replays import replayable
from store.rows import message_target

Rows = Iterator[tuple[bytes, bytes]]


class Rehearsal(NamedTuple):
    """`refused`: why nothing would come of it. `targets`: for each row of the range, the topic that it would
    go to again, or would be kept from; None for what stays as it is.
    """

    reached: Reached
    aligned: Frontier
    refused: str | None
    targets: Iterator[str | None]


class Rehearsed(NamedTuple):
    """Messages by their targets; `at_least` if not all of the range was looked at."""

    reached: Reached
    aligned: Frontier
    refused: str | None
    targets: dict[str, int]
    at_least: bool


def begin(
    request: ReplayRequest | SkipRequest,
    now_ms: int,
    window_ms: int,
    kv: KeyValue,
    aligned: Frontier,
    reached: Reached,
) -> Rehearsal:
    """Takes the request up as a leader that has nothing in flight would. For the view's `snapshot`: what it
    gives is walked later.
    """
    asked = msgspec.structs.replace(request, number=aligned.operation.number + 1)
    nowhere: Vector = {}  # what was parked is looked at as it is
    then = aligned.taken_up(asked, now_ms, window_ms, nowhere)
    if then.refused is not None:
        return Rehearsal(reached, aligned, then.refused, iter(()))
    if isinstance(request, ReplayRequest):
        assert then.replay is not None, "it was not refused"
        rows = kv.scan(keys.row(*then.replay.next), keys.after(keys.row(*then.replay.last)))
        return Rehearsal(reached, aligned, None, _carried(kv, then.replay, rows))
    behind = keys.behind(aligned.position)
    rows = kv.scan(behind, keys.row(request.to_ms, 0, 0))
    return Rehearsal(reached, aligned, None, _skipped(aligned, rows))


def _carried(kv: KeyValue, replay: Replay, rows: Rows) -> Iterator[str | None]:
    for raw_key, raw in rows:
        key = keys.timed(raw_key)
        target = replayable(kv, key, raw) if replay.covers(key, message_target(raw)) else None
        yield target if replay.target in {None, target} else None


def _skipped(aligned: Frontier, rows: Rows) -> Iterator[str | None]:
    """What waits for the end of a pause is held, and not skipped; nor is what is done."""
    for raw_key, raw in rows:
        key = keys.timed(raw_key)
        target = message_target(raw)
        yield None if aligned.overran(key) or aligned.is_held(key, target) else target
