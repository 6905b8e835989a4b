"""Handing leadership over by an operator's wish: what is refused, what is written, and when it is done.

The nodes do the rest (node/switchover.py): who stands between the leader and the wanted node
leaves the queue, the leader finishes its transaction and steps down.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from election.operators import SWITCHOVER, Author, HistoryEntry, Switchover
from election.registry import Registry
from node.config import ConnectionConfig
from ops.clients.members import Member, members_of
from ops.clients.zookeeper import mirrored_checkpoint, registry
from ops.errors import ConfigError, ConflictError, NotFoundError, UnavailableError
from store.checkpoint import Checkpoint

LOOK_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Done:
    """Who was leader and who is, and how long it took until the new one delivered."""

    lane: int
    before: str
    leader: str
    epoch: int
    took_s: float


def switchover(
    config: ConnectionConfig, lane: int | None, to: str | None, author: Author, timeout_s: float
) -> Done:
    """Make `to`, or whoever is next, leader of a lane, and wait until it has delivered.

    Raises NotFoundError if there is no leader, or `to` is no candidate; ConflictError if it is leader
    already, if there is no other candidate, the next one is silent or has a wrong clock, and if another node
    has become leader in its place; UnavailableError if nothing has come of it in `timeout_s`.
    """
    with registry(config) as znodes:
        lane = _lane(znodes, config.cluster, lane, to)
        begun_s = time.monotonic()
        leading = _leading(znodes, lane, to, begun_s + timeout_s)
        entry = HistoryEntry(
            what=SWITCHOVER,
            author=author,
            lane=lane,
            before=leading.node,
            after=to,
            epoch=leading.epoch,
        )
        znodes.want_switchover(lane, Switchover(leading.epoch, to, author), entry)
        try:
            new = _wait_delivered(znodes, lane, leading, begun_s + timeout_s)
        finally:
            znodes.drop_switchover(lane)
    took_s = time.monotonic() - begun_s
    if to not in {None, new.node}:
        raise ConflictError(f"{new.node} has become leader of lane {lane}, not {to}: see whether that is up")
    return Done(lane, leading.node, new.node, new.epoch, took_s)


def _lane(znodes: Registry, cluster: str, lane: int | None, to: str | None) -> int:
    lanes = znodes.settings().lanes
    if lane is None and to is not None:
        member = members_of(znodes).get(to)
        if member is not None and member.lane is not None:
            return member.lane
    if lane is None and lanes > 1:
        raise ConfigError(f"cluster {cluster} has {lanes} lanes: say which, with --lane")
    if lane is not None and not 0 <= lane < lanes:
        raise NotFoundError(f"cluster {cluster} has no lane {lane}: it has lanes 0 to {lanes - 1}")
    return lane or 0


def _leading(znodes: Registry, lane: int, to: str | None, until_s: float) -> Checkpoint:
    """The checkpoint of the present leader; one that has just been elected is waited for."""
    while True:
        queue = [candidate.node for candidate in znodes.candidates(lane).values()]
        refuse(queue, lane, to, members_of(znodes), time.time_ns() // 1_000_000)
        checkpoint = mirrored_checkpoint(znodes, lane)
        if checkpoint is not None and checkpoint.node == queue[0]:
            return checkpoint
        if time.monotonic() > until_s:
            raise UnavailableError(
                f"{queue[0]} is elected for lane {lane} and has not begun to deliver: 'delayline cluster"
                " status' says why"
            )
        time.sleep(LOOK_S)


def refuse(
    queue: Sequence[str], lane: int, to: str | None, members: Mapping[str, Member], now_ms: int
) -> None:
    """Raise if nothing good can come of it. A node that may hang is not made leader: nobody would be, until
    its session ends.
    """
    if not queue:
        raise NotFoundError(f"lane {lane} has no leader: 'delayline cluster status' shows who could be")
    if to == queue[0]:
        raise ConflictError(f"{to} is the leader of lane {lane} already")
    if to is not None and to not in queue:
        raise NotFoundError(
            f"{to} is no candidate for lane {lane}: there are {', '.join(queue[1:]) or 'none but the leader'}"
        )
    if len(queue) == 1:
        raise ConflictError(f"{queue[0]} is the only candidate for lane {lane}: start another node first")
    new = to or queue[1]
    member = members.get(new)
    another = "name another with --to"
    if member is None:
        raise ConflictError(f"nothing has been heard of {new}: {another}, or see whether it hangs")
    if member.is_silent(now_ms):
        silent_s = member.silent_ms(now_ms) // 1000
        raise ConflictError(
            f"nothing has been heard of {new} for {silent_s} s: {another}, or see whether it hangs"
        )
    if (off_ms := member.wrong_clock_ms) is not None:
        raise ConflictError(
            f"the clock of {new} is {off_ms:+d} ms off that of ZooKeeper's server: it would deliver nothing;"
            f" set it, for example with `chronyc makestep`, or {another}"
        )


def _wait_delivered(znodes: Registry, lane: int, old: Checkpoint, until_s: float) -> Checkpoint:
    """The checkpoint of another leader whose delivered-up-to has moved since its first; while the cluster is
    paused, one behind its first.
    """
    first: Checkpoint | None = None
    while time.monotonic() < until_s:
        now = mirrored_checkpoint(znodes, lane)
        if now is not None and now.epoch > old.epoch and now.node != old.node:
            if first is None or now.epoch > first.epoch:
                first = now
            elif now.delivered_up_to_ms > first.delivered_up_to_ms or _paused_and_alive(znodes, first, now):
                return now
        time.sleep(LOOK_S)
    raise UnavailableError(
        f"{old.node} is still leader of lane {lane}: see its log, and 'delayline cluster status'"
        if first is None
        else f"{first.node} has become leader of lane {lane} and has not delivered yet: see its log"
    )


def _paused_and_alive(znodes: Registry, first: Checkpoint, now: Checkpoint) -> bool:
    return now.at_ms > first.at_ms and znodes.pauses()[0].paused is not None
