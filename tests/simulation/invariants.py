"""I1 to I7 (docs/design.md) on a finished history, against the plain model. Raises `Violation`."""

from __future__ import annotations

import json
from itertools import pairwise

from delayline.signing import Serial
from store.awaited import Successor
from store.checkpoint import Checkpoint
from store.keys import RowKey
from store.operations import Operation
from tests.simulation.begins import check_begins
from tests.simulation.host import Violation
from tests.simulation.judge import Found, Judge, Sent
from tests.simulation.log import Transaction
from tests.simulation.model import Model
from tests.simulation.replicas import check_replica
from tests.simulation.requests import TARGETS
from tests.simulation.world import World


def check(world: World) -> Model:
    """Checks everything; returns the model."""
    serials = check_serials(world)
    checkpoints, numbers = _checkpoints(world)
    found = _found(world, checkpoints, numbers)
    pairs = list(pairwise([None, *checkpoints]))
    for last, one in pairs:
        assert one is not None, "only the first one has none before it"
        check_progress(last, one)
    model = Model(checkpoints, world.eras, world.setup.limits.awaited)
    model.read(world.topics[world.names.buffer], world.setup.partitions)
    Judge(world, model, found, numbers).judge()
    for last, one in pairs:
        assert one is not None, "only the first one has none before it"
        check_epoch(last, one)
    check_awaited(model)
    for node in world.nodes:
        # One that still has to learn that it is leader no more has not read what came after it.
        if node.process is not None and (node.process.leadership is None or node.process.up_to_date()):
            check_replica(node.process, model, serials)
    if checkpoints and (stuck := world.needed_for_long(checkpoints[-1])):
        raise Violation("liveness", f"the log of {stuck} is needed on: {checkpoints[-1]}")
    check_begins(world, checkpoints, world.setup.profile.begins)
    if world.retention is not None:
        world.retention.check()
    return model


def check_serials(world: World) -> dict[int, Serial]:
    """What tells a copy from the service's own: serials rise from each request that was written back into a
    partition to the next, whether it was committed or aborted. Returns the highest ones.
    """
    highest: dict[int, Serial] = {}
    for number in world.setup.partitions:
        partition = world.topics[world.names.buffer][number]
        for entry in partition.entries[: partition.stable_end]:  # nobody has read what is still open
            if entry.record is None or entry.transaction is None or not entry.transaction.lane:
                continue
            as_of, count = (dict(entry.record.headers)["delay-as-of"] or b"").split(b".")
            serial, last = (int(as_of), int(count)), highest.get(number, (-1, -1))
            if serial <= last or max(serial) > entry.record.offset:
                raise Violation("serial", f"{number}/{entry.record.offset}: {serial} after {last}")
            highest[number] = serial
    return highest


def _checkpoints(world: World) -> tuple[list[Checkpoint], dict[Transaction, int]]:
    """The committed checkpoints in order, and the transactions that they number."""
    partition = world.checkpoints
    checkpoints: list[Checkpoint] = []
    numbers: dict[Transaction, int] = {}
    for entry in partition.own_ever():
        assert entry.record is not None, "markers are not read"
        assert entry.transaction is not None, "a checkpoint is written in a transaction"
        if entry.transaction in numbers:
            raise Violation("I5", "two checkpoints in one transaction")
        numbers[entry.transaction] = len(checkpoints)
        checkpoints.append(Checkpoint.decode(entry.record.value or b""))
    return checkpoints, numbers


def _found(world: World, checkpoints: list[Checkpoint], numbers: dict[Transaction, int]) -> Found:
    found = Found(checkpoints, {}, {}, {}, {})
    for topic in (*TARGETS, world.names.dead_letter, world.names.outcomes, world.names.buffer):
        for partition in world.topics[topic]:
            for entry in partition.committed(0, partition.stable_end):
                if entry.transaction is None or not entry.transaction.lane:
                    continue
                if entry.transaction not in numbers:
                    raise Violation("I1", "a transaction without a checkpoint was committed")
                assert entry.record is not None, "markers are not read"
                _sort_in(world, found, Sent(numbers[entry.transaction], entry.record, topic))
    return found


def _sort_in(world: World, found: Found, sent: Sent) -> None:
    record = sent.record
    headers = dict(record.headers)
    if sent.topic == world.names.outcomes:
        outcome = json.loads(record.value or b"")
        found.outcomes.setdefault((record.key or b"").decode(), []).append((sent.number, outcome))
    elif sent.topic == world.names.buffer:
        if headers.get("delay-op") == b"carry":
            return
        parent = (record.partition, int(headers["delay-parent"] or b""))
        if parent in found.written_back:
            raise Violation("I7", f"two requests were written back for {parent}")
        found.written_back[parent] = sent
    else:
        kind = found.dead_letters if sent.topic == world.names.dead_letter else found.deliveries
        kind.setdefault((headers["delay-source"] or b"").decode(), []).append(sent)


def _order(operation: Operation) -> tuple[int, bool, RowKey]:
    """Later ones compare greater."""
    replay = operation.replay
    return operation.number, replay is None, (-1, -1, -1) if replay is None else replay.next


def check_progress(last: Checkpoint | None, one: Checkpoint) -> None:
    """I5: nothing in a checkpoint moves back from the one before it, and no partition goes; but for the
    position and delivered-up-to in a rewind, which changes nothing else.
    """
    if last is not None and _goes_back(last, one):
        check_rewind(last, one)
    elif last is not None:
        for name in ("applied", "seen", "read", "written_back", "carried"):
            before, after = getattr(last, name), getattr(one, name)
            if any(after.get(number, -1) < offset for number, offset in before.items()):
                raise Violation("I5", f"{name} moved back from {before} to {after}")
        if (one.position or (-1, -1, -1)) < (last.position or (-1, -1, -1)):
            raise Violation("I5", f"position moved back from {last.position} to {one.position}")
        if _order(one.operation) < _order(last.operation):
            raise Violation("I5", f"an operation moved back from {last.operation} to {one.operation}")
        if one.delivered_up_to_ms < last.delivered_up_to_ms:
            raise Violation("I5", "delivered-up-to moved back")
    if any(one.seen.get(number, 0) < offset for number, offset in one.applied.items()):
        raise Violation("I5", f"seen {one.seen} is below applied {one.applied}")


def _goes_back(last: Checkpoint, one: Checkpoint) -> bool:
    falls = (one.position or ()) < (last.position or ())
    return bool(one.overruns) and (falls or one.delivered_up_to_ms < last.delivered_up_to_ms)


def check_rewind(last: Checkpoint, one: Checkpoint) -> None:
    """The overrun is what the checkpoint before says is done."""
    for name in ("applied", "seen", "read", "written_back", "awaited", "carried"):
        if getattr(last, name) != getattr(one, name):
            raise Violation("I5", f"{name} changes with a rewind from {last} to {one}")
    overrun = one.overruns[-1]
    if (overrun.position, overrun.applied) != (last.position, last.applied):
        raise Violation("I5", f"{overrun} is not {last}")
    if one.delivered_up_to_ms > last.delivered_up_to_ms or (one.position or (0, 0, 0)) > overrun.position:
        raise Violation("I5", f"a rewind goes ahead, from {last} to {one}")


def check_awaited(model: Model) -> None:
    """Each checkpoint lists what was written back up to then and is not seen: nothing else, all of what was
    moved, and of the rest so much that there is room for.
    """
    for number, one in enumerate(model.checkpoints):
        for partition in one.seen:
            listed: dict[tuple[int, bool], Successor] = {
                (row, True): successor for row, successor in one.awaited.successors.get(partition, {}).items()
            }
            for root, offset in one.awaited.unnamed.get(partition, {}).items():
                listed[root, False] = Successor(offset)
            unlisted = one.awaited.unlisted.get(partition, 0)
            for follows, row, moves in model.hidden(number, partition):
                successor = listed.pop((follows, row.request.id is not None), None)
                wanted = Successor(row.place[1], row.moved_by if moves else None)
                may_lack = not moves and row.place[1] < unlisted and successor is None
                if successor != wanted and not may_lack:
                    raise Violation(
                        "awaited", f"checkpoint {number}: {successor} for {wanted} at {row.place}"
                    )
            moved = len(one.awaited.moved_offsets(partition, {}))
            if moved > model.most_awaited:
                raise Violation("awaited", f"checkpoint {number} lists {moved} moved ones in {partition}")
            if listed:
                raise Violation("awaited", f"checkpoint {number} lists {listed} in {partition}")


def check_epoch(last: Checkpoint | None, one: Checkpoint) -> None:
    """I6: epochs never interleave, and each has one node; an epoch begins with a first checkpoint, which
    repeats the last one of the epoch before.
    """
    if not one.first:
        if last is None or (one.epoch, one.node) != (last.epoch, last.node):
            raise Violation("I6", f"epoch {one.epoch} of {one.node} has no first checkpoint of its own")
        return
    if one.epoch != (1 if last is None else last.epoch + 1):
        raise Violation("I6", f"epoch {one.epoch} follows {last and last.epoch}")
    if last is not None and (one.frontier, one.write_back) != (last.frontier, last.write_back):
        raise Violation("I6", f"the first checkpoint of epoch {one.epoch} does not repeat the last one")
