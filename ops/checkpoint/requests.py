"""Asking the leaders of lanes for a replay or a skip: what would come of it, and then that it is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from election.errors import ElectionError
from election.operators import Author, HistoryEntry, PauseState
from election.registry import Registry
from node.config import ConnectionConfig
from node.http.answers import Foreseen
from ops.checkpoint.lane_request import LaneRequest, described, progress
from ops.checkpoint.show import last_request, wanted_lanes
from ops.clients.nodes import ask_lanes
from ops.clients.zookeeper import mirrored_checkpoint, registry
from ops.errors import ConflictError, NotFoundError, UnavailableError, translated
from store.operations import Operation, ReplayRequest, SkipRequest, StopReplay

COUNT_TIMEOUT_S: Final = 60.0
LOOK_S: Final = 0.1
SAY_S: Final = 1.0

Say = Callable[[str], None]


def foresee(
    config: ConnectionConfig, request: ReplayRequest | SkipRequest, lane: int | None
) -> list[Foreseen]:
    """What would come of the request, as a node of each lane counts.

    Raises ZnodeMissing, NotFoundError for a lane that is not there, and UnavailableError if no node of it
    answers.
    """
    with registry(config) as znodes:
        wanted_lanes(config, znodes, lane)
    path = "/replay" if isinstance(request, ReplayRequest) else "/skip"
    named = msgspec.to_builtins(request)
    params = {name: named[name] for name in ("from_ms", "to_ms", "target") if name in named}
    return ask_lanes(config, lane, Foreseen, path, params, COUNT_TIMEOUT_S)


def require_accepted(prospects: Sequence[Foreseen]) -> None:
    """ConflictError if a lane's leader would refuse: what is done is done in all lanes that were named."""
    refused = [f"lane {one.node.lane} refuses: {one.refused}" for one in prospects if one.refused is not None]
    if refused:
        raise ConflictError("; ".join(refused))


def carry_out(
    config: ConnectionConfig,
    request: ReplayRequest | SkipRequest,
    lane: int | None,
    author: Author,
    say: Say,
    timeout_s: float,
) -> bool:
    """Asks the leaders, and returns once it is done in all lanes; `say` is told how it goes. False if it is
    not done but waits: a cluster that is paused takes nothing up until it goes on.

    No lane is asked while one of them could not be. Raises UnavailableError if a lane has no leader, or its
    leader does not take the request up in `timeout_s`; ConflictError if an earlier request waits, if a leader
    refuses, or if somebody ends it or takes it back.
    """
    with registry(config) as znodes:
        lanes = wanted_lanes(config, znodes, lane)
        _require_leaders(znodes, lanes)
        _require_none_waits(znodes, lanes)
        asked: list[LaneRequest] = []
        for number in lanes:
            asked.append(_ask(znodes, number, request, author, asked))
            say(f"lane {number}: request {asked[-1].number} is asked for")
        pauses, _ = znodes.pauses()
        if pauses.paused is not None:
            say("warning: the cluster is paused: it is done once the cluster is resumed")
            return False
        if isinstance(request, ReplayRequest) and pauses.paused_targets:
            say(f"warning: {_paused_targets(pauses)}: a replay waits until no target is paused")
        _follow(znodes, asked, say, timeout_s)
    failed = [one.failed for one in asked if one.failed is not None]
    if failed:
        raise ConflictError("; ".join(failed))
    return True


def _ask(
    znodes: Registry,
    lane: int,
    request: ReplayRequest | SkipRequest,
    author: Author,
    before: Sequence[LaneRequest],
) -> LaneRequest:
    """Asks one lane's leader; `before`: those that were asked already, for the error to name."""
    entry = HistoryEntry(what=described(request), author=author, lane=lane)
    try:
        return LaneRequest(lane, znodes.ask(lane, request, entry), request)
    except ElectionError as error:
        operators = translated(error)
        if not before or operators is None:
            raise
        already = ", ".join(
            f"lane {one.lane} ('delayline checkpoint cancel --lane {one.lane}' ends it)" for one in before
        )
        raise type(operators)(f"{operators}; it is asked for already in {already}") from error


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What was under way or waited in a lane, and the number of the request that ends it."""

    lane: int
    number: int
    what: str


def cancel(
    config: ConnectionConfig, lane: int | None, author: Author, say: Say, timeout_s: float
) -> tuple[list[Cancelled], bool]:
    """Ends replays where they are, and takes back what waits to be taken up. What, and whether it is done;
    it is not yet if the cluster is paused.

    Raises NotFoundError if there is nothing to cancel, UnavailableError as `carry_out`.
    """
    with registry(config) as znodes:
        lanes = wanted_lanes(config, znodes, lane)
        busy = {number: what for number in lanes if (what := _under_way(znodes, number)) is not None}
        if not busy:
            raise NotFoundError("there is nothing to cancel: no replay is under way, and no request waits")
        _require_leaders(znodes, list(busy))
        asked, stop = [], StopReplay(0)
        for number, what in busy.items():
            entry = HistoryEntry(what=described(stop), author=author, lane=number, before=what)
            asked.append(LaneRequest(number, znodes.ask(number, stop, entry, instead=True), stop))
        pauses, _ = znodes.pauses()
        if pauses.paused is None:
            _follow(znodes, asked, say, timeout_s)
        else:
            say("warning: the cluster is paused: replays end once the cluster is resumed")
    return [Cancelled(one.lane, one.number, busy[one.lane]) for one in asked], pauses.paused is None


def _paused_targets(pauses: PauseState) -> str:
    return f"{', '.join(sorted(pauses.paused_targets))} paused"


def _require_leaders(znodes: Registry, lanes: Sequence[int]) -> None:
    for lane in lanes:
        if not znodes.candidates(lane):
            raise UnavailableError(
                f"lane {lane} has no leader, which has to do it: see 'delayline cluster status', start a node"
                " with 'delayline node run'"
            )


def _require_none_waits(znodes: Registry, lanes: Sequence[int]) -> None:
    for lane in lanes:
        last = last_request(znodes, lane)
        if last is not None and last.number > _operation(znodes, lane).number:
            raise ConflictError(
                f"request {last.number} waits for the leader of lane {lane} ({described(last)}): wait, or"
                f" take it back with 'delayline checkpoint cancel --lane {lane}'; nothing was asked for"
            )


def _operation(znodes: Registry, lane: int) -> Operation:
    checkpoint = mirrored_checkpoint(znodes, lane)
    return Operation() if checkpoint is None else checkpoint.operation


def _under_way(znodes: Registry, lane: int) -> str | None:
    operation, last = _operation(znodes, lane), last_request(znodes, lane)
    if last is not None and last.number > operation.number:
        return described(last)
    return None if operation.replay is None else progress(operation.replay)


def _follow(znodes: Registry, asked: Sequence[LaneRequest], say: Say, timeout_s: float) -> None:
    """Until all are over, as the mirrored checkpoints show."""
    begun_s, said_s = time.monotonic(), -SAY_S
    while not all(one.over for one in asked):
        waiting = [one for one in asked if not one.over and not one.look(_operation(znodes, one.lane))]
        if waiting and time.monotonic() - begun_s > timeout_s:
            raise UnavailableError(
                f"lane {waiting[0].lane}: its leader has not taken request {waiting[0].number} up in"
                f" {timeout_s:g} s; it does when it can, unless 'delayline checkpoint cancel --lane"
                f" {waiting[0].lane}' takes it back"
            )
        if time.monotonic() - said_s >= SAY_S or all(one.over for one in asked):
            said_s = time.monotonic()
            _say_news(asked, say)
        time.sleep(LOOK_S)


def _say_news(asked: Sequence[LaneRequest], say: Say) -> None:
    for one in asked:
        if one.news is not None:
            say(f"lane {one.lane}: {one.news}")
            one.news = None
