"""Whose view a store is: written when it is made, compared whenever it is opened."""

from __future__ import annotations

from typing import Final

import msgspec

from store import keys
from store.kv import Batch, KeyValue, StoreError
from store.records import decode_control

FORMAT: Final = 4
UNSIGNED_FORMAT: Final = 3  # of a version that signed nothing; its rows are the same


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
        _write(kv, identity, kv.batch())
        return
    stored = msgspec.json.decode(raw, type=Identity)
    old = stored.format == UNSIGNED_FORMAT
    if old:
        stored = msgspec.structs.replace(stored, format=FORMAT)
    for field in Identity.__struct_fields__:
        if getattr(stored, field) != getattr(identity, field):
            raise OtherIdentity(field, stored, identity)
    if old:
        batch = kv.batch()
        _index_controls(kv, batch)
        _write(kv, stored, batch)


def _index_controls(kv: KeyValue, batch: Batch) -> None:
    """The store's version did not find controls by their id."""
    for raw_key, raw in kv.scan(keys.CONTROL, keys.end_of(keys.CONTROL)):
        partition, offset = keys.placed(raw_key)
        control = decode_control(raw)
        if control.ends:
            batch.put(keys.ending(partition, control.id, offset), b"")


def _write(kv: KeyValue, identity: Identity, batch: Batch) -> None:
    batch.put(keys.IDENTITY, msgspec.json.encode(identity))
    kv.write(batch)
    kv.flush()
