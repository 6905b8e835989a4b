"""What every node's store must hold once all is quiet: the same as every other's, and as the plain model."""

from __future__ import annotations

from delayline.signing import Serial
from store import keys
from store.checkpoint import Frontier
from store.kv import KeyValue
from store.rows import decode_index, decode_serials, message_target
from tests.simulation.host import Violation
from tests.simulation.model import NEVER, Model, RowKey
from tests.simulation.pending import check_pending
from tests.simulation.process import Process


def check_replica(process: Process, model: Model, serials: dict[int, Serial]) -> None:
    """Raises `Violation` if the store of a process that has read everything is not what it should be.

    `serials`: the highest ones of the partitions.
    """
    store = process.store
    position = process.view.tip.position
    begin = keys.behind(position)
    tip, now_ms = process.view.tip, process.now_ms()
    if any(hold.rows and (hold.last is None or hold.last[0] <= now_ms) for hold in tip.holds):
        raise Violation("replica", f"{process.name} has holds left: {tip.holds}")
    behind = [row for row in store.scan(begin, keys.end_of(keys.ROW)) if not tip.passed(keys.timed(row[0]))]
    behind += _held(store, tip)
    check_pending(process.name, store, process.view)
    found = sorted(keys.timed(raw_key) for raw_key, _ in behind)
    wanted = sorted(
        row.key
        for row in model.rows.values()
        if row.done_in == NEVER and row.removed_by is None and not row.dropped
    )
    if found != wanted:
        odd = sorted(set(found) ^ set(wanted))
        raise Violation("replica", f"{process.name} and the log differ in what is pending: {odd}")
    for name, prefix in (("late entries", keys.LATE), ("pending answers", keys.PENDING_ANSWER)):
        left = [keys.record_id(raw_key) for raw_key, _ in store.scan(prefix, keys.end_of(prefix))]
        if left:
            raise Violation("replica", f"{process.name} has {name} left: {left}")
    if any(store.scan(keys.ENDING, keys.end_of(keys.ENDING))):
        raise Violation("replica", f"{process.name} has entries of pending answers left")
    raw_serials = store.get(keys.SERIALS)
    known = decode_serials(raw_serials) if raw_serials else {}
    # Where a view has begun, all that has a lower as-of is spent.
    begun = {partition: serial for partition, serial in known.items() if serial[1] < 0}
    if known != serials | {p: max(serial, serials.get(p, serial)) for p, serial in begun.items()}:
        raise Violation("replica", f"{process.name} and the log differ in the serials: {serials}")
    for key in wanted:
        _check_index(process.name, store, key, model)


def _held(store: KeyValue, tip: Frontier) -> list[tuple[bytes, bytes]]:
    """What a clock that was ahead has passed while its target was paused, and is not due yet."""
    return [
        (raw_key, raw)
        for raw_key, raw in (store.scan(keys.ROW, keys.end_of(keys.ROW)) if tip.holds else ())
        if tip.passed(key := keys.timed(raw_key)) and tip.is_held(key, message_target(raw))
    ]


def _check_index(name: str, store: KeyValue, key: RowKey, model: Model) -> None:
    """A pending row with an id is what its index entry points to."""
    id_ = model.rows[key[1:]].request.id
    if id_ is None or model.rows[key[1:]].request.kind.value != "schedule":
        return
    raw = store.get(keys.index(key[1], id_))
    if raw is None or decode_index(raw).offset != key[2]:
        raise Violation("replica", f"{name}: the index entry of {id_} is not that of {key}")
