"""After the checkpoint topic was lost, or its end: at least once for the gap, and still nothing is lost.

What was written back in the gap stays in the log, and what it followed from is done again: a message that was
parked may arrive twice, and a recurring one without an id goes on twice from there.

The lane goes on from the latest checkpoint that is known (docs/design.md, rule 6), and an era ends where that
is not the last one (tests/simulation/eras.py). Within what an era goes on from and its own, all is as ever;
what the lost checkpoints covered may be done again in the next.
"""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise

import msgspec

from delayline.outcome_kinds import OutcomeKind
from tests.simulation.eras import Era, eras
from tests.simulation.host import Violation
from tests.simulation.invariants import check_epoch, check_progress, check_serials
from tests.simulation.log import Entry, Partition, Transaction
from tests.simulation.model import row_of
from tests.simulation.requests import FAR_MS, TARGETS, Kind
from tests.simulation.world import World

_NO_CHANGE = frozenset((OutcomeKind.DUPLICATE, OutcomeKind.SKIPPED, "ended"))
"""Nothing has changed, or it was done."""


def check_gap(world: World) -> None:
    """Every request has a fate; in one era a message, or an occurrence of it, has only one, and a control one
    answer; checkpoints and epochs follow one another as ever. Raises `Violation`.
    """
    check_serials(world)
    found = eras([*world.lost, world.checkpoints])
    of_eras = _of_eras(found)
    _check_fates(world, of_eras, _written_back_in_gaps(world, of_eras, len(found)))
    for era in found:
        _check_era(era)


def _of_eras(found: list[Era]) -> dict[Transaction, list[int]]:
    """The numbers of the eras that each of the service's transactions is part of."""
    of_eras: defaultdict[Transaction, list[int]] = defaultdict(list)
    for number, era in enumerate(found):
        for one in era.all:
            of_eras[one.transaction].append(number)
    return dict(of_eras)


def _check_fates(world: World, of_eras: dict[Transaction, list[int]], written_back: list[set[str]]) -> None:
    settled: set[str] = set()
    # By request, occurrence, era, and whether it is an answer: a control may be a message's end as well (a
    # replace).
    fates: defaultdict[tuple[str, int, bool, int], list[str]] = defaultdict(list)
    for topic in (*TARGETS, world.names.dead_letter, world.names.outcomes):
        for partition in world.topics[topic]:
            for entry in partition.committed(0, partition.stable_end):
                assert entry.transaction is not None, "the service writes in transactions"
                for source, number, fate in _fates(world, topic, entry):
                    settled.add(source)
                    if fate not in _NO_CHANGE:
                        for era in of_eras[entry.transaction]:
                            fates[source, number, fate == "answered", era].append(fate)
    for (source, number, _, era), found in fates.items():
        if len(found) > 1 and source not in written_back[era]:
            raise Violation("I1 doubled", f"{source}, {number}, was {' and '.join(found)} in era {era}")
    for number in world.setup.partitions:
        _check_settled(world, world.topics[world.names.buffer][number], settled)


def _check_era(era: Era) -> None:
    for last, one in pairwise(committed.checkpoint for committed in era.all):
        check_progress(last, one)
        # An epoch that the lost topic had, and the znode still knows of, is not used again.
        skips = one.first and one.epoch > last.epoch
        check_epoch(last, msgspec.structs.replace(one, epoch=last.epoch + 1) if skips else one)


def _written_back_in_gaps(world: World, of_eras: dict[Transaction, list[int]], count: int) -> list[set[str]]:
    """Of each era, the users' requests after which something was written back before, in what it does not go
    on from.
    """
    roots: list[set[str]] = [set() for _ in range(count)]
    for partition in world.topics[world.names.buffer]:
        for entry in partition.committed(0, partition.stable_end):
            if entry.request is not None or entry.record is None or entry.transaction is None:
                continue
            known_in = of_eras[entry.transaction]
            for era in set(range(known_in[0], count)).difference(known_in):
                roots[era].add((dict(entry.record.headers)["delay-root"] or b"").decode())
    return roots


def _recurs(world: World, root: str) -> bool:
    """Whether a user's request is for a recurring message."""
    _, partition, offset = root.rsplit("/", 2)
    found = world.topics[world.names.buffer][int(partition)]
    (entry,) = found.committed(int(offset), int(offset) + 1)
    return entry.request is not None and entry.request.repeat is not None


def _fates(world: World, topic: str, entry: Entry) -> list[tuple[str, int, str]]:
    """Which requests, and which occurrences, a record settles, and how."""
    assert entry.record is not None, "markers are not read"
    headers = dict(entry.record.headers)
    if topic != world.names.outcomes:
        fate = OutcomeKind.DEAD_LETTERED if topic == world.names.dead_letter else OutcomeKind.DELIVERED
        number = int(headers.get("delay-occurrence") or b"1")
        return [((headers["delay-source"] or b"").decode(), number, fate)]
    outcome = json.loads(entry.record.value or b"")
    own = (entry.record.key or b"").decode()
    if outcome["outcome"] == OutcomeKind.DUPLICATE:
        return [(own, 1, OutcomeKind.DUPLICATE)]
    fates = [(own, 1, "answered")] if outcome["op"] != "schedule" else []
    if outcome["outcome"] in {OutcomeKind.CANCELLED, OutcomeKind.REPLACED, OutcomeKind.SKIPPED}:
        # Of a recurring message it may be the next one that is cancelled, and the one named is done.
        fates.append((outcome["root"], 1, "ended" if _recurs(world, outcome["root"]) else outcome["outcome"]))
    return fates


def _check_settled(world: World, partition: Partition, settled: set[str]) -> None:
    for entry in partition.committed(0, partition.stable_end):
        request, record = entry.request, entry.record
        assert record is not None, "markers are not read"
        if request is None:
            continue
        source = f"{world.names.buffer}/{record.partition}/{record.offset}"
        if request.kind is Kind.COPY:
            if source in settled:
                raise Violation("I1", f"something became of {source}, which is a copy")
            continue
        far = request.kind is Kind.SCHEDULE and (
            request.scheduled_for_ms(record.timestamp_ms) > world.now_ms + FAR_MS // 2
        )
        first = row_of((record.partition, record.offset), request, record.timestamp_ms)
        far = far or (request.repeat is not None and first.due_ms > world.now_ms - 2_000)
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
