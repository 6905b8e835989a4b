"""After the checkpoint topic was lost: at least once for the gap, and still nothing is lost.

The lane goes on from the later of the znode's mirror and the new master's own alignment (docs/design.md,
"Znodes"). An *era* is the time between two losses. Within one, all is as ever; what the lost checkpoints
covered may be done again in the next.
"""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise

import msgspec

from store.checkpoint import Checkpoint
from tests.simulation.host import Violation
from tests.simulation.invariants import check_epoch, check_progress
from tests.simulation.log import Entry, Partition, Transaction
from tests.simulation.requests import FAR_MS, TARGETS, Kind
from tests.simulation.world import World


def check_gap(world: World) -> None:
    """Every request has a fate; in one era a message has only one, and a control one answer; checkpoints and
    epochs follow one another as ever. Raises `Violation`.
    """
    eras = _eras(world)
    # By request, era, and whether it is an answer: a control may be a message's end as well (a replace).
    fates: defaultdict[tuple[str, bool, int], list[str]] = defaultdict(list)
    for topic in (*TARGETS, world.names.dead_letter, world.names.outcomes):
        for partition in world.topics[topic]:
            for entry in partition.committed(0, partition.stable_end):
                assert entry.transaction is not None, "the service writes in transactions"
                for source, fate in _fates(world, topic, entry):
                    fates[source, fate == "answered", eras[entry.transaction]].append(fate)
    for (source, _, era), found in fates.items():
        if len(found) > 1:
            raise Violation("I1 doubled", f"{source} was {' and '.join(found)} in era {era}")
    for partition in (*world.lost, world.checkpoints):
        _check_era(partition)
    settled = {source for source, _, _ in fates}
    for number in world.setup.partitions:
        _check_settled(world, world.topics[world.names.buffer][number], settled)


def _check_era(partition: Partition) -> None:
    found = [
        Checkpoint.decode(entry.record.value or b"")
        for entry in partition.committed(0, partition.stable_end)
        if entry.record is not None
    ]
    for last, one in pairwise(found):
        check_progress(last, one)
        # An epoch that the lost topic had, and the znode still knows of, is not used again.
        skips = one.first and one.epoch > last.epoch
        check_epoch(last, msgspec.structs.replace(one, epoch=last.epoch + 1) if skips else one)


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
