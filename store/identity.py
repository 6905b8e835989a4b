"""Whose view a store is: written when it is made, compared whenever it is opened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from store import keys
from store.kv import KeyValue, StoreError

FORMAT: Final = 10


LaterOf: TypeAlias = Callable[[str, str], str]
"""Of two states of the settings, the one that the other has become; ValueError if neither has."""


class Identity(msgspec.Struct, frozen=True):
    """What a view depends on beside the log: with another, the same records would mean other rows. Every
    format says so much, under the same key.
    """

    format: int
    cluster: str
    lane: int
    buffer_id: str
    settings: str


class OtherIdentity(StoreError):
    """The store belongs to something else; `field` says in what it differs from `stored`."""

    def __init__(self, field: str, stored: Identity, given: Identity) -> None:
        was, is_now = getattr(stored, field), getattr(given, field)
        super().__init__(f"the store was made with {field} {was!r}; it is now {is_now!r}")
        self.field = field
        self.stored = stored


class UnknownIdentity(StoreError):
    """The store does not say what it was made with, or not as any version does."""


def refresh(kv: KeyValue) -> None:
    """Writes the identity as it is anew, into a file. Raises `Full`."""
    raw = kv.get(keys.IDENTITY)
    if raw is not None:
        batch = kv.batch()
        batch.put(keys.IDENTITY, raw)
        kv.write(batch)
        kv.flush()


def claim(kv: KeyValue, identity: Identity, later_of: LaterOf) -> Identity:
    """Writes the identity into a new store, or compares it with the stored one. The identity that it has
    then. Raises `UnknownIdentity`, `OtherIdentity`.
    """
    stored = stored_identity(kv)
    claimed = identity if stored is None else expect(stored, identity, later_of)
    if claimed != stored:
        write(kv, claimed)
    return claimed


def write(kv: KeyValue, identity: Identity) -> None:
    """Says from now on whose the store is, and by what it was made. Raises `Stalled`, `Full`."""
    batch = kv.batch()
    batch.put(keys.IDENTITY, msgspec.json.encode(identity))
    kv.write(batch)
    kv.flush()


def expect(stored: Identity, given: Identity, later_of: LaterOf) -> Identity:
    """The stored one, with the later settings of the two. Raises `OtherIdentity`."""
    for field in Identity.__struct_fields__:
        if field != "settings" and getattr(stored, field) != getattr(given, field):
            raise OtherIdentity(field, stored, given)
    try:
        settings = later_of(stored.settings, given.settings)
    except ValueError:
        raise OtherIdentity("settings", stored, given) from None
    return msgspec.structs.replace(stored, settings=settings)


def stored_identity(kv: KeyValue) -> Identity | None:
    """The identity that a store was made with, of whatever format; None if it is new. Raises
    `UnknownIdentity`.
    """
    raw = kv.get(keys.IDENTITY)
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw, type=Identity)
    except msgspec.MsgspecError as error:
        raise UnknownIdentity(f"the store does not say what it was made with: {error}") from error
