"""What an operator asks of a lane: to deliver a past range again, to skip ahead, to stop a replay (rule 8,
docs/design.md).

A request is taken up by the leader in a transaction: that one's checkpoint has its number, and so no request
is taken up twice, whoever is leader. Where it leads to is part of the frontier, as all else that a new leader
has to go on with.
"""

from __future__ import annotations

from typing import Final

import msgspec

from store.holds import Holds, hold_of
from store.keys import RowKey
from store.overrun import Overruns

_MOST: Final = (1 << 32) - 1, (1 << 64) - 1  # partition and offset


class ReplayRequest(msgspec.Struct, frozen=True, tag="replay"):
    """Delivers again what fell due from `from_ms` up to and without `to_ms`; to one target only, if that is
    named.
    """

    number: int
    from_ms: int
    to_ms: int
    target: str | None = None


class SkipRequest(msgspec.Struct, frozen=True, tag="skip"):
    """Delivers nothing that falls due before `to_ms` and is pending, but for what is late already."""

    number: int
    to_ms: int


class StopReplay(msgspec.Struct, frozen=True, tag="stop-replay"):
    """Ends a replay where it is."""

    number: int


OperatorRequest = ReplayRequest | SkipRequest | StopReplay


class Replay(msgspec.Struct, frozen=True):
    """A replay under way: a second cursor, behind the position.

    `applied` is that of the frontier that it began behind: what has arrived since is no part of it, nor is
    what was held then (`holds`, and the `overruns` that these rest on): it was not delivered.
    `written_back` as it was then: that is applied first, for of what was parked it is the message.
    """

    number: int
    next: RowKey
    last: RowKey
    applied: dict[int, int]
    target: str | None
    carried: int = 0  # messages so far
    written_back: dict[int, int] = {}
    holds: Holds = ()
    overruns: Overruns = ()

    def lacks(self, applied: dict[int, int]) -> dict[int, int]:
        """As far as has to be applied before it can go on, where that is not."""
        return {p: end for p, end in self.written_back.items() if applied.get(p, 0) < end}

    def spans(self, key: RowKey) -> bool:
        """Whether the cursor comes to a row with this key."""
        return self.next <= key <= self.last

    def covers(self, key: RowKey, target: str | None) -> bool:
        """Whether a row that is there is one of those to be delivered again."""
        was_passed = self.spans(key) and key[2] < self.applied.get(key[1], 0)
        return was_passed and hold_of(self.holds, self.overruns, key, target) is None


class Operation(msgspec.Struct, frozen=True):
    """What operators have asked for, as far as the lane has come with it.

    `request`: the last one that was taken up, for whoever holds what was done against it: a short replay
    begins and ends in one transaction, and no checkpoint has its cursor.
    """

    number: int = 0  # of the last request that was taken up
    request: OperatorRequest | None = None
    refused: str | None = None  # why nothing came of that
    replay: Replay | None = None
    skip_to: RowKey | None = None  # what is due by then is skipped


def taken_up(
    now: Operation,
    request: OperatorRequest,
    position: RowKey | None,
    applied: dict[int, int],
    now_ms: int,
    kept_from_ms: int,
    written_back: dict[int, int],
    held: tuple[Holds, Overruns],
) -> Operation:
    """What the operation is once a request has been taken up; what is due from `kept_from_ms` on is there.

    `written_back`: how far the service has written back so far. `held`: the holds, and the
    overruns that they rest on.
    """
    why = _why_not(now, request, position, now_ms, kept_from_ms)
    if why is not None:
        return msgspec.structs.replace(now, number=request.number, request=request, refused=why)
    if isinstance(request, ReplayRequest):
        assert position is not None, "it would have been refused"
        last = min(_before(request.to_ms), position)
        begin = request.from_ms, 0, 0
        replay = Replay(
            request.number,
            begin,
            last,
            dict(applied),
            request.target,
            written_back=dict(written_back),
            holds=held[0],
            overruns=held[1],
        )
        return Operation(request.number, request, replay=replay, skip_to=now.skip_to)
    if isinstance(request, SkipRequest):
        return Operation(request.number, request, replay=now.replay, skip_to=_before(request.to_ms))
    return Operation(request.number, request, skip_to=now.skip_to)


def _before(time_ms: int) -> RowKey:
    """The last key that is due before a time."""
    return (time_ms - 1, *_MOST)


def _why_not(
    now: Operation, request: OperatorRequest, position: RowKey | None, now_ms: int, kept_from_ms: int
) -> str | None:
    if isinstance(request, SkipRequest):
        return "it is in the future: only what is due can be skipped" if request.to_ms > now_ms else None
    if isinstance(request, StopReplay):
        return "there is no replay" if now.replay is None else None
    if now.replay is not None:
        return "another replay is under way: stop it, or wait for its end"
    if request.from_ms < kept_from_ms:
        return f"what fell due before {kept_from_ms} (epoch ms) is not kept any more"
    if position is None or position < (request.from_ms, 0, 0):
        return "nothing that fell due since then has been delivered"
    return "the range is empty" if request.to_ms <= request.from_ms else None
