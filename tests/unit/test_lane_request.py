"""What checkpoints tell of a request, in the order in which an operator's command happens to see them."""

from __future__ import annotations

from typing import Final

import pytest

from ops.checkpoint.lane_request import LaneRequest
from store.operations import Operation, OperatorRequest, Replay, ReplayRequest, SkipRequest, StopReplay

MOST: Final = (1 << 32) - 1, (1 << 64) - 1
REPLAY: Final = ReplayRequest(5, 1_000, 2_000)
SKIP: Final = SkipRequest(5, 2_000)
STOP: Final = StopReplay(5)
BEFORE: Final = Operation(4)

DONE: Final = "done"
OVERTAKEN: Final = "request 5 was ended or taken back by request"


def at(
    request: OperatorRequest,
    *,
    refused: str | None = None,
    replay: int | None = None,
    skip: int | None = None,
) -> Operation:
    """After a request; a replay of this number is under way, and a skip to this time."""
    now = None if replay is None else Replay(replay, (1_000, 0, 0), (1_999, *MOST), {0: 9}, None)
    skip_to = None if skip is None else (skip - 1, *MOST)
    return Operation(request.number, request, refused, now, skip_to)


REPLAYS: Final = at(REPLAY, replay=5)
SKIPS: Final = at(SKIP, skip=2_000)


@pytest.mark.parametrize(
    ("request_", "seen", "end"),
    [
        (REPLAY, [BEFORE], None),
        (REPLAY, [REPLAYS], None),
        (REPLAY, [at(REPLAY)], DONE),
        (REPLAY, [at(REPLAY, skip=9_000)], DONE),
        (REPLAY, [REPLAYS, at(REPLAY)], DONE),
        (REPLAY, [at(REPLAY, refused="no", replay=4)], "lane 0 refuses: no"),
        (REPLAY, [REPLAYS, at(StopReplay(6))], f"{OVERTAKEN} 6"),
        (REPLAY, [BEFORE, at(StopReplay(6))], f"{OVERTAKEN} 6"),
        (REPLAY, [BEFORE, at(StopReplay(6), refused="there is no replay")], f"{OVERTAKEN} 6"),
        (REPLAY, [BEFORE, at(ReplayRequest(6, 1, 2), replay=6)], f"{OVERTAKEN} 6"),
        (REPLAY, [REPLAYS, at(ReplayRequest(6, 1, 2), replay=6)], DONE),
        (REPLAY, [REPLAYS, at(ReplayRequest(7, 1, 2), replay=7)], f"{OVERTAKEN} 7"),
        (REPLAY, [REPLAYS, at(StopReplay(6), refused="there is no replay")], DONE),
        (REPLAY, [at(ReplayRequest(6, 1, 2), refused="another", replay=5)], None),
        (REPLAY, [at(SkipRequest(6, 9), replay=5), at(SkipRequest(6, 9))], DONE),
        (SKIP, [SKIPS], None),
        (SKIP, [at(SKIP)], DONE),
        (SKIP, [at(SKIP, refused="no")], "lane 0 refuses: no"),
        (SKIP, [SKIPS, at(StopReplay(6), skip=2_000)], None),
        (SKIP, [SKIPS, at(StopReplay(6))], DONE),
        (SKIP, [SKIPS, at(SkipRequest(6, 1_500), skip=1_500)], f"{OVERTAKEN} 6"),
        (SKIP, [SKIPS, at(SkipRequest(6, 9_000_000), refused="it is in the future")], DONE),
        (SKIP, [BEFORE, at(StopReplay(6))], f"{OVERTAKEN} 6"),
        (STOP, [BEFORE], None),
        (STOP, [at(STOP, skip=2_000)], DONE),
        (STOP, [at(ReplayRequest(6, 1, 2), replay=6)], DONE),
    ],
)
def test_a_request_is_done_only_where_it_was_seen_to_be(
    request_: OperatorRequest, seen: list[Operation], end: str | None
) -> None:
    one = LaneRequest(0, 5, request_)
    for operation in seen:
        assert not one.over
        one.look(operation)
    said = DONE if one.over and one.failed is None else one.failed
    assert one.over == (end is not None)
    assert (end or "") in (said or "")
