"""Changing the key that the service signs with, while it runs.

A new key is added first, and signs nothing. Once every node that is there says that it knows it, it becomes
the one that signs; those before stay, for what they have signed. So no node that is there meets a signature
of a key that it does not know; one that was away waits for it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Final

from delayline.signing import Keyring, SigningKey
from election.operators import Author, HistoryEntry
from election.registry import Registry
from node.config import ConnectionConfig
from ops.clients.members import Member, members_of
from ops.clients.zookeeper import registry, required_keys
from ops.errors import ConflictError, UnavailableError

LOOK_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class KeyStatus:
    """The keys, and which nodes know which."""

    ring: Keyring
    known: dict[str, list[str]]


def key_status(config: ConnectionConfig) -> KeyStatus:
    """How it is. ZnodeMissing if the cluster has no keys."""
    with registry(config) as znodes:
        return _key_status(znodes)


def rotate(config: ConnectionConfig, author: Author, timeout_s: float) -> KeyStatus:
    """Adds a key, waits until every node knows it, and lets it sign. What was begun before is ended.

    Raises ZnodeMissing if the cluster has no keys, UnavailableError if a node does not know it in time: then
    the key before goes on signing, and another `rotate` waits on.
    """
    with registry(config) as znodes:
        required_keys(znodes)
        begun = znodes.change_keys(_with_another, HistoryEntry(what="key rotate: a new key", author=author))
        new = begun.waiting
        if new is None:
            return _key_status(znodes)
        _wait_known(znodes, new.id, timeout_s)
        entry = HistoryEntry(what="key rotate", author=author, before=begun.signs, after=new.id)
        znodes.change_keys(lambda ring: _signing(new, begun, ring), entry)
        return _key_status(znodes)


def _with_another(ring: Keyring) -> Keyring:
    """If none waits to sign already."""
    return ring.with_another(time.time_ns() // 1_000_000) if ring.waiting is None else ring


def _signing(new: SigningKey, begun: Keyring, ring: Keyring) -> Keyring:
    """The keys there, which may have lost the new one meanwhile, once that signs."""
    try:
        return replace(ring.united(begun), signs=new.id)
    except ValueError:
        raise ConflictError(
            "the cluster's keys were made anew meanwhile: look at them, without --execute, and run this again"
        ) from None


def _key_status(znodes: Registry) -> KeyStatus:
    known = {node: _keys_of(member) for node, member in sorted(members_of(znodes).items())}
    return KeyStatus(required_keys(znodes), known)


def _keys_of(member: Member) -> list[str]:
    return [] if member.status is None else member.status.keys


def _wait_known(znodes: Registry, id_: str, timeout_s: float) -> None:
    """A node whose store is not open yet asks before it takes anything in."""
    until_s = time.monotonic() + timeout_s
    while True:
        members = members_of(znodes)
        ignorant = sorted(
            node for node, one in members.items() if not one.is_closed and id_ not in _keys_of(one)
        )
        if not ignorant:
            return
        if time.monotonic() > until_s:
            raise UnavailableError(
                f"the new key is written and signs nothing yet: {', '.join(ignorant)} has not said within"
                f" {timeout_s:g} s that it knows it (or not in words of this version); see 'delayline cluster"
                " status', or run this again to wait on"
            )
        time.sleep(LOOK_S)
