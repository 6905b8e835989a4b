"""Pausing deliveries and going on: what is written for the nodes, and waiting until they know."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from delayline.names import ClusterNames
from election.operators import Author, HistoryEntry, PauseState
from election.registry import Registry
from node.config import ConnectionConfig
from node.status import STALE_MS
from ops.clients.kafka import KafkaAdmin
from ops.clients.members import Member, members_of
from ops.clients.zookeeper import registry
from ops.errors import ConfigError, NotFoundError, OperatorError, UnavailableError

LOOK_S: Final = 0.1
_KAFKA_TIMEOUT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class PauseResult:
    """What is paused now, the nodes that know or ask before they deliver, and what else an operator should be
    told.
    """

    cluster: str
    pauses: PauseState
    nodes: tuple[str, ...]
    took_s: float
    words: list[str] = field(default_factory=list)


def pause(config: ConnectionConfig, targets: Sequence[str], author: Author, timeout_s: float) -> PauseResult:
    """Pause the cluster, or these targets; what is paused already stays so, in its first author's name.

    Raises ZnodeMissing if the cluster was never created, ConfigError for one of its own topics, and
    UnavailableError if a node that is there does not know of it after `timeout_s`.
    """
    own = sorted(set(targets) & ClusterNames(config.cluster).no_targets())
    if own:
        raise ConfigError(f"{own[0]} is the service's own topic, no target")
    words = [] if not targets else _unknown_to_kafka(config, targets)

    def paused(before: PauseState) -> PauseState:
        if not targets:
            return before if before.paused else msgspec.structs.replace(before, paused=author)
        there = dict.fromkeys(targets, author) | before.paused_targets
        return msgspec.structs.replace(before, paused_targets=there)

    def already(before: PauseState) -> list[str]:
        if targets:
            found = [(target, before.paused_targets.get(target)) for target in targets]
        else:
            found = [("the cluster", before.paused)]
        return [f"{what} was paused before, by {was.by}: {was.reason}" for what, was in found if was]

    return _change(
        config, paused, already, HistoryEntry(what=_named("pause", targets), author=author), timeout_s, words
    )


def resume(config: ConnectionConfig, targets: Sequence[str], author: Author, timeout_s: float) -> PauseResult:
    """Take a pause back. Raises NotFoundError if there is none, and as `pause`."""

    def resumed(before: PauseState) -> PauseState:
        if not targets:
            if before.paused is None:
                raise NotFoundError(f"cluster {config.cluster} is not paused{_what_is(before)}")
            return msgspec.structs.replace(before, paused=None)
        missing = [target for target in targets if target not in before.paused_targets]
        if missing:
            raise NotFoundError(f"target {missing[0]} is not paused{_what_is(before)}")
        left = {target: by for target, by in before.paused_targets.items() if target not in targets}
        return msgspec.structs.replace(before, paused_targets=left)

    def still(before: PauseState) -> list[str]:
        after = resumed(before)
        return [f"still paused: {what}" for what in _paused(after)]

    return _change(
        config, resumed, still, HistoryEntry(what=_named("resume", targets), author=author), timeout_s, []
    )


def _named(verb: str, targets: Sequence[str]) -> str:
    return f"{verb} {' '.join(targets)}".rstrip()


def _paused(pauses: PauseState) -> list[str]:
    return [*(["the whole cluster"] if pauses.paused else []), *sorted(pauses.paused_targets)]


def _what_is(pauses: PauseState) -> str:
    paused = _paused(pauses)
    return f"; what is: {', '.join(paused)}" if paused else ", nor is anything else"


def _unknown_to_kafka(config: ConnectionConfig, targets: Sequence[str]) -> list[str]:
    """Kafka may be the reason for the pause: it does without its word."""
    try:
        admin = KafkaAdmin(config, timeout_s=_KAFKA_TIMEOUT_S)
        missing = [target for target in targets if not admin.exists(target)]
    except OperatorError:
        return []
    return [f"warning: there is no topic {target}" for target in missing]


def _change(
    config: ConnectionConfig,
    change: Callable[[PauseState], PauseState],
    comment: Callable[[PauseState], list[str]],
    entry: HistoryEntry,
    timeout_s: float,
    words: list[str],
) -> PauseResult:
    begun_s = time.monotonic()
    with registry(config) as znodes:
        znodes.settings()
        before, _ = znodes.pauses()
        words = words + comment(before)
        pauses = znodes.change_pauses(change, entry)
        nodes = _wait_known(znodes, pauses, timeout_s)
        words += _unseen_leaders(znodes) if pauses != PauseState() else []
    return PauseResult(config.cluster, pauses, nodes, time.monotonic() - begun_s, words)


def _unseen_leaders(znodes: Registry) -> list[str]:
    return [
        f"warning: lane {lane} has no leader in ZooKeeper: one that cannot see ZooKeeper goes on delivering"
        for lane in range(znodes.settings().lanes)
        if not znodes.candidates(lane)
    ]


def _wait_known(znodes: Registry, pauses: PauseState, timeout_s: float) -> tuple[str, ...]:
    """Every node that is there says that it knows; UnavailableError names those that do not.

    A candidate must say so itself, since it may have asked before this was written. Another node whose store
    is not open, and be it that it refuses, asks before it ever delivers.
    """
    until_s = time.monotonic() + timeout_s
    while True:
        members, candidates = members_of(znodes), _candidates(znodes)
        closed = {node for node, member in members.items() if member.is_closed} - candidates
        there = sorted(members.keys() | candidates)
        ignorant = [node for node in there if node not in closed and not _knows(members.get(node), pauses)]
        if not ignorant:
            return tuple(there)
        if time.monotonic() > until_s:
            silent = ", ".join(_silence(node, members.get(node)) for node in ignorant)
            raise UnavailableError(
                f"it is written, but not every node has said within {timeout_s:g} s that it knows: {silent};"
                " see 'delayline cluster status', or run this again to wait on"
            )
        time.sleep(LOOK_S)


def _candidates(znodes: Registry) -> set[str]:
    lanes = range(znodes.settings().lanes)
    return {candidate.node for lane in lanes for candidate in znodes.candidates(lane).values()}


def _knows(member: Member | None, pauses: PauseState) -> bool:
    if member is None or member.status is None:
        return False
    paused, targets = pauses.paused is not None, sorted(pauses.paused_targets)
    return (member.status.paused, member.status.paused_targets) == (paused, targets)


def _silence(node: str, member: Member | None) -> str:
    if member is None:
        return f"{node} (has told nothing of itself)"
    if member.status is None:
        return f"{node} (its status cannot be read: it is of another version)"
    silence_ms = member.silent_ms(time.time_ns() // 1_000_000)
    return f"{node} (silent for {silence_ms // 1000} s)" if silence_ms > STALE_MS else node
