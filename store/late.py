"""The late index: which rows arrived with a key at or below the position (rule 1, docs/design.md)."""

from __future__ import annotations

from collections.abc import Iterator

from store import keys
from store.keys import RowKey
from store.kv import KeyValue


def late_keys(kv: KeyValue, partition: int, begin: int) -> Iterator[RowKey]:
    """The late rows of a partition from an offset on, in offset order."""
    for raw_key, raw_due in kv.scan(keys.late(partition, begin), keys.late(partition + 1, 0)):
        yield (keys.unpack_due(raw_due), *keys.placed(raw_key))
