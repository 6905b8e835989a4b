"""Carries that are copies, told before they are applied: a client sends as many as it likes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from delayline.signing import Serial
from store.arrivals import Arrival, Kind
from store.checkpoint import Vector

_CARRY: Final = Kind.CARRY


def without_copied_carries(
    arrivals: Sequence[Arrival], applied: Vector, serials: Mapping[int, Serial]
) -> list[Arrival]:
    """The same, but that a carry which is a copy is nothing but a place in the log, so that it parts no batch
    from the next one. Only the service writes the others, and it writes them in a row.

    Just what `BatchApply` would take for one (store/apply.py, `_is_copy`): it asks that of each arrival that
    has a serial, in log order, whatever else comes of that, and begins with the highest that is stored. It
    leaves out what is below *applied*, and so does this. What becomes of a copy of a carry is nothing, since
    nothing is carried in the first meaning; its offset and its timestamp count, as they do there.
    """
    highest = dict(serials)
    found: list[Arrival] = []
    for one in arrivals:
        serial, partition = one.serial, one.partition
        if serial is not None and one.offset >= applied[partition]:
            last = highest.get(partition)
            if last is None or serial > last:
                highest[partition] = serial
            elif one.kind is _CARRY:
                found.append(_nothing(one))
                continue
        found.append(one)
    return found


def _nothing(copy: Arrival) -> Arrival:
    at_ms = copy.timestamp_ms
    # Without a serial: it is spent. No `SPENT`, which has no place in what is applied.
    return Arrival(copy.partition, copy.offset, at_ms, Kind.MARK, at_ms, None, None, None, b"")
