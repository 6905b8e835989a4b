"""Whose view a store is: written when it is made, compared whenever it is opened."""

from __future__ import annotations

from typing import Final

import msgspec

from store import keys
from store.kv import KeyValue, StoreError

FORMAT: Final = 6


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


def claim(kv: KeyValue, identity: Identity) -> None:
    """Writes the identity into a new store, or compares it with the stored one. Raises `OtherIdentity`."""
    raw = kv.get(keys.IDENTITY)
    if raw is None:
        batch = kv.batch()
        batch.put(keys.IDENTITY, msgspec.json.encode(identity))
        kv.write(batch)
        kv.flush()
        return
    stored = msgspec.json.decode(raw, type=Identity)
    for field in Identity.__struct_fields__:
        if getattr(stored, field) != getattr(identity, field):
            raise OtherIdentity(field, stored, identity)
