"""Whose view a store is: written when it is made, compared whenever it is opened."""

from __future__ import annotations

from typing import Final

import msgspec

from store import keys
from store.kv import KeyValue, StoreError

FORMAT: Final = 10


class Identity(msgspec.Struct, frozen=True):
    """What a view depends on beside the log: with another, the same records would mean other rows."""

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


class OtherFormat(StoreError):
    """The store is of another version, which may have said other things of it."""


class _IdentityFormat(msgspec.Struct, frozen=True):
    """What every version has said of a store."""

    format: int


def refresh(kv: KeyValue) -> None:
    """Writes the identity as it is anew, into a file. Raises `Full`."""
    raw = kv.get(keys.IDENTITY)
    if raw is not None:
        batch = kv.batch()
        batch.put(keys.IDENTITY, raw)
        kv.write(batch)
        kv.flush()


def claim(kv: KeyValue, identity: Identity) -> None:
    """Writes the identity into a new store, or compares it with the stored one. Raises `OtherFormat`,
    `OtherIdentity`.
    """
    stored = stored_identity(kv)
    if stored is None:
        batch = kv.batch()
        batch.put(keys.IDENTITY, msgspec.json.encode(identity))
        kv.write(batch)
        kv.flush()
        return
    for field in Identity.__struct_fields__:
        if getattr(stored, field) != getattr(identity, field):
            raise OtherIdentity(field, stored, identity)


def stored_identity(kv: KeyValue) -> Identity | None:
    """The identity that a store was made with; None if it is new. Raises `OtherFormat`."""
    raw = kv.get(keys.IDENTITY)
    if raw is None:
        return None
    try:
        of = msgspec.json.decode(raw, type=_IdentityFormat).format
        if of != FORMAT:
            raise OtherFormat(f"the store was made with format {of}; it is now {FORMAT}")
        return msgspec.json.decode(raw, type=Identity)
    except msgspec.MsgspecError as error:
        raise OtherFormat(f"the store does not say what it was made with: {error}") from error
