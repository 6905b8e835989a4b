"""What strangers make of what the service has written back: forged requests, and copies of its own.

A forged one must end as a dead letter and change nothing else, a copy must be nothing: so the model needs to
know no more of them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

import msgspec

from delayline.rejects import RejectCode
from delayline.wire import Header
from node.kafka.fetch.records import LogRecord
from node.kafka.own_checkpoints import headers_of
from store.checkpoint import Checkpoint
from tests.simulation.log import Entry, Partition, is_checkpoint
from tests.simulation.requests import H_ID, H_PARENT, H_ROOT, H_TARGET_TOPIC, TARGETS, Kind, Request
from tests.support.keys import STRANGER

OF_LATE: Final = 80  # entries of a partition in which a stranger looks for what to use
H_AS_OF: Final = "delay-as-of"
H_SIGNATURE: Final = "delay-signature"


def copied(rng: random.Random, partitions: Sequence[Partition]) -> Request | None:
    """A copy, to the byte, of a request that was written back, whatever becomes of that one's transaction."""
    entries = [entry for partition in partitions for entry in _written_back(partition)]
    if not entries:
        return None
    record = _record(rng.choice(entries))
    return Request(Kind.COPY, record.partition, record.key, record.value, list(record.headers))


def forged(
    rng: random.Random, partitions: Sequence[Partition], ids: Sequence[tuple[str, int]], drawn: Request
) -> Request:
    """Looks as if the service had written it back: something of its own with one thing altered, or `drawn`,
    a user's request, with what the service says of its own.
    """
    entries = [entry for partition in partitions for entry in _written_back(partition)]
    if not entries or rng.random() < 0.2:
        return _pretended(rng, partitions, drawn)
    record = _record(rng.choice(entries))
    altered = rng.choice(_ALTERATIONS)(rng, record, ids)
    assert altered != record, "a forgery is no copy"
    if altered.partition != record.partition and altered.partition not in {one.number for one in partitions}:
        altered = _header_added(rng, record, ids)
    return _rejected(altered.partition, altered.key, altered.value, altered.headers)


def _pretended(rng: random.Random, partitions: Sequence[Partition], drawn: Request) -> Request:
    number = drawn.partition
    end = next(partition.end for partition in partitions if partition.number == number)
    parent = rng.randint(0, max(0, end - 1))
    headers: list[Header] = [
        *drawn.headers,
        (H_TARGET_TOPIC, drawn.target.encode()),
        (H_PARENT, b"%d" % parent),
        (H_ROOT, b"delay.buffer/%d/%d" % (number, rng.randint(0, parent))),
    ]
    if rng.random() < 0.5:
        headers.append((H_AS_OF, b"%d.%d" % (end, rng.randint(0, 1_000_000))))
        signature = STRANGER.sign_request(number, drawn.key, drawn.value, headers)
        headers.append((H_SIGNATURE, signature))
    return _rejected(number, drawn.key, drawn.value, headers)


def _written_back(partition: Partition) -> list[Entry]:
    """What the service has written there of late."""
    return [
        entry
        for entry in partition.entries[-OF_LATE:]
        if entry.record is not None and entry.transaction is not None and entry.transaction.lane
    ]


def _record(entry: Entry) -> LogRecord:
    assert entry.record is not None, "markers are not among them"
    return entry.record


def _rejected(partition: int, key: bytes | None, value: bytes | None, headers: list[Header]) -> Request:
    return Request(Kind.REJECT, partition, key, value, headers, error=RejectCode.BAD_PARENT)


def checkpoint(
    rng: random.Random, partition: Partition, topic: str
) -> tuple[bytes | None, bytes | None, list[Header]] | None:
    """A record for the checkpoint topic: a copy of one of the service's own, whatever becomes of that one's
    transaction, or something else; None if there is nothing to copy yet.
    """
    own = list(filter(is_checkpoint, _written_back(partition)))
    if not own:
        return None
    aborted = [entry for entry in own if entry.aborted]
    record = _record(rng.choice(aborted if aborted and rng.random() < 0.5 else own))
    kind = rng.choice(("copy", "copy", "altered", "signed by a stranger", "unsigned", "nothing"))
    if kind == "copy":
        return record.key, record.value, list(record.headers)
    if kind == "nothing":
        return b"0", b"{}", []
    known = Checkpoint.decode(record.value or b"")
    ahead = {partition: offset + rng.choice((0, 1_000)) for partition, offset in known.applied.items()}
    position = None if rng.random() < 0.3 else (1 << 50, 0, 1 << 40)
    epoch = known.epoch + rng.randint(0, 3)
    forged = msgspec.structs.replace(known, epoch=epoch, position=position, applied=ahead, seen=ahead)
    raw = forged.encode()
    if kind == "altered":
        return record.key, raw, list(record.headers)
    if kind == "unsigned":
        return forged.record_key, raw, []
    return forged.record_key, raw, headers_of(forged, raw, topic, STRANGER)


# ------------------------------------------------------------------ what can be altered

Ids = Sequence[tuple[str, int]]


def _with(record: LogRecord, name: str, value: bytes | None) -> LogRecord:
    return record._replace(
        headers=[(name, value) if key == name else (key, old) for key, old in record.headers]
    )


def _key(_: random.Random, record: LogRecord, __: Ids) -> LogRecord:
    return record._replace(key=b"another")


def _value(_: random.Random, record: LogRecord, __: Ids) -> LogRecord:
    return record._replace(value=(record.value or b"?")[:-1] + b"!")


def _target(rng: random.Random, record: LogRecord, ids: Ids) -> LogRecord:
    old = dict(record.headers).get(H_TARGET_TOPIC)
    if old is None:  # a reschedule has none
        return _header_added(rng, record, ids)
    return _with(record, H_TARGET_TOPIC, next(one.encode() for one in TARGETS if one.encode() != old))


def _number(rng: random.Random, record: LogRecord, ids: Ids) -> LogRecord:
    """A time, an attempt, an occurrence, the parent: one more, or one less."""
    numbers = [
        (name, int(value))
        for name, value in record.headers
        if name.startswith("delay-") and value is not None and value.isdigit() and int(value) > 1
    ]
    if not numbers:  # a carry has none
        return _header_added(rng, record, ids)
    name, number = rng.choice(numbers)
    return _with(record, name, b"%d" % (number + rng.choice((-1, 1))))


def _root(rng: random.Random, record: LogRecord, ids: Ids) -> LogRecord:
    old = dict(record.headers).get(H_ROOT)
    if old is None:  # a carry has none
        return _header_added(rng, record, ids)
    root = b"delay.buffer/%d/%d" % (record.partition, rng.randint(0, record.offset))
    return _value(rng, record, ids) if root == old else _with(record, H_ROOT, root)


def _id(rng: random.Random, record: LogRecord, ids: Ids) -> LogRecord:
    others = [name.encode() for name, partition in ids if partition == record.partition]
    old = dict(record.headers).get(H_ID)
    others = [name for name in others if name != old]
    if not others:
        return _header_added(rng, record, ids)
    if old is None:
        return record._replace(headers=[*record.headers, (H_ID, rng.choice(others))])
    return _with(record, H_ID, rng.choice(others))


def _later(_: random.Random, record: LogRecord, __: Ids) -> LogRecord:
    """The serial, which would make it the next one."""
    as_of, count = (dict(record.headers)[H_AS_OF] or b"").split(b".")
    return _with(record, H_AS_OF, b"%d.%d" % (int(as_of), int(count) + 1_000_000))


def _signature(_: random.Random, record: LogRecord, __: Ids) -> LogRecord:
    old = dict(record.headers)[H_SIGNATURE] or b""
    return _with(record, H_SIGNATURE, old[:-1] + (b"1" if old.endswith(b"0") else b"0"))


def _unsigned(_: random.Random, record: LogRecord, __: Ids) -> LogRecord:
    return record._replace(headers=[one for one in record.headers if one[0] != H_SIGNATURE])


def _strangers(_: random.Random, record: LogRecord, __: Ids) -> LogRecord:
    headers = [one for one in record.headers if one[0] != H_SIGNATURE]
    signature = STRANGER.sign_request(record.partition, record.key, record.value, headers)
    return record._replace(headers=[*headers, (H_SIGNATURE, signature)])


def _header_added(_: random.Random, record: LogRecord, __: Ids) -> LogRecord:
    return record._replace(headers=[*record.headers, ("trace", b"added")])


def _header_taken(rng: random.Random, record: LogRecord, ids: Ids) -> LogRecord:
    own = [one for one in record.headers if not one[0].startswith("delay-")]
    if not own:
        return _header_added(rng, record, ids)
    headers = list(record.headers)
    headers.remove(rng.choice(own))
    return record._replace(headers=headers)


def _order(rng: random.Random, record: LogRecord, ids: Ids) -> LogRecord:
    headers = [*record.headers[1:], record.headers[0]]
    return _value(rng, record, ids) if headers == record.headers else record._replace(headers=headers)


def _partition(rng: random.Random, record: LogRecord, ids: Ids) -> LogRecord:
    """Into another partition; with an id it would be refused for that."""
    if H_ID in dict(record.headers):
        return _header_added(rng, record, ids)
    return record._replace(partition=record.partition + rng.choice((-1, 1)))


_ALTERATIONS: Final = (
    *(_key, _value, _target, _number, _root, _id, _later),
    *(_signature, _unsigned, _strangers, _header_added, _header_taken, _order, _partition),
)
