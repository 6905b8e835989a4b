"""After the checkpoint topic was lost: at least once for the gap, and still nothing is lost.

The lane goes on from the later of the znode's mirror and the new master's own alignment (docs/design.md,
"Znodes"). An *era* is the time between two losses. Within one, all is as ever; what the lost checkpoints
covered may be done again in the next.
"""

from __future__ import annotations

import json
from collections import Counter

from tests.simulation.host import Violation
from tests.simulation.log import Entry, Partition, Transaction
from tests.simulation.requests import FAR_MS, TARGETS, Kind
from tests.simulation.world import World


def check_gap(world: World) -> None:
    """Every request has a fate; none has two of a kind in one era. Raises `Violation`."""
    eras = _eras(world)
    fates: Counter[tuple[str, str, int]] = Counter()  # (request, fate, era)
    for topic in (*TARGETS, world.names.dead_letter, world.names.outcomes):
        for partition in world.topics[topic]:
            for entry in partition.committed(0, partition.stable_end):
                assert entry.transaction is not None, "the service writes in transactions"
                for source, fate in _fates(world, topic, entry):
                    fates[source, fate, eras[entry.transaction]] += 1
    for (source, fate, era), count in fates.items():
        if count > 1:
            raise Violation("I1 doubled", f"{source} was {fate} {count} times in era {era}")
    settled = {source for source, _, _ in fates}
    for number in world.setup.partitions:
        _check_settled(world, world.topics[world.names.buffer][number], settled)


def _eras(world: World) -> dict[Transaction, int]:
    """The era of each of the service's transactions."""
    return {
        entry.transaction: era
        for era, partition in enumerate((*world.lost, world.checkpoints))
        for entry in partition.entries
        if entry.transaction is not None
    }


def _fates(world: World, topic: str, entry: Entry) -> list[tuple[str, str]]:
    """Which requests a record settles, and how."""
    assert entry.record is not None, "markers are not read"
    headers = dict(entry.record.headers)
    if (headers.get("delay-id") or b"").startswith(b"forged"):
        return []
    if topic != world.names.outcomes:
        fate = "dead-lettered" if topic == world.names.dead_letter else "delivered"
        return [((headers["delay-source"] or b"").decode(), fate)]
    outcome = json.loads(entry.record.value or b"")
    if str(outcome["id"]).startswith("forged"):
        return []
    answered = [((entry.record.key or b"").decode(), "answered")] if outcome["op"] != "schedule" else []
    if outcome["outcome"] in {"cancelled", "replaced"}:
        answered.append((outcome["root"], outcome["outcome"]))
    return answered


def _check_settled(world: World, partition: Partition, settled: set[str]) -> None:
    for entry in partition.committed(0, partition.stable_end):
        request, record = entry.request, entry.record
        assert record is not None, "markers are not read"
        if request is None or request.forged:
            continue
        far = request.kind is Kind.SCHEDULE and (
            request.scheduled_for_ms(record.timestamp_ms) > world.now_ms + FAR_MS // 2
        )
        source = f"{world.names.buffer}/{record.partition}/{record.offset}"
        if source not in settled and not far and not _moved_far(world, partition, record.offset):
            raise Violation("I1", f"lost: nothing became of {source}")


def _moved_far(world: World, partition: Partition, root: int) -> bool:
    """Whether a message was rescheduled to a time far away."""
    wanted = f"{world.names.buffer}/{partition.number}/{root}".encode()
    soon_ms = world.now_ms + FAR_MS // 2
    for entry in partition.committed(root, partition.stable_end):
        assert entry.record is not None, "markers are not read"
        headers = dict(entry.record.headers)
        moved = entry.request is None and headers.get("delay-root") == wanted
        if moved and int(headers["delay-deliver-at"] or b"") > soon_ms:
            return True
    return False
