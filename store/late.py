"""The late index: which rows arrived with a key at or below the position (rule 1, docs/design.md).

A row becomes late as it is applied (`_store_late` in store/apply.py), or as a checkpoint is aligned that has
passed it without having applied it (`make_late` in store/alignment.py). The next selection takes it first
(`take_late` in store/taking.py); where not all fit, applied is held back to the first one left (`_hold_back`
in store/selection.py). Its entry goes with the commit that carries it, with its row, or as a checkpoint is
aligned by which it is late no more (`drop_carried` and `sweep_late` in store/alignment.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from store import keys
from store.checkpoint import Frontier
from store.keys import RowKey
from store.kv import KeyValue


def late_keys(kv: KeyValue, partition: int, begin: int) -> Iterator[RowKey]:
    """The late rows of a partition from an offset on, in offset order."""
    for raw_key, raw_due in kv.scan(keys.late(partition, begin), keys.late(partition + 1, 0)):
        yield (keys.unpack_due(raw_due), *keys.record_id(raw_key))


def late_rows(kv: KeyValue, partitions: Iterable[int], aligned: Frontier) -> Iterator[RowKey]:
    """Those of all partitions. None is below the aligned applied: such an entry went with its commit, or was
    never made.
    """
    for partition in partitions:
        yield from late_keys(kv, partition, aligned.applied.get(partition, 0))
