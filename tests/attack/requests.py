"""Requests, sound and hostile, drawn from a seed: what stands in a record's key, value and headers."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, NamedTuple

from delayline.headers import (
    H_AFTER,
    H_ATTEMPT,
    H_CRON,
    H_DELIVER_AT,
    H_EXPIRE_AT,
    H_ID,
    H_IF_EXISTS,
    H_INTERVAL,
    H_LEVEL,
    H_OCCURRENCE,
    H_OP,
    H_PARENT,
    H_ROOT,
    H_SCHEDULED_FOR,
    H_SOURCE,
    H_TARGET_KEY,
    H_TARGET_PARTITION,
    H_TARGET_TOPIC,
    H_TIMES,
)
from delayline.partitioner import partition_for
from tests.attack.expected import Expected, Rule, content_of, place_of
from tests.bad_input.row import PARTITIONS, Answered, Delivered, Names, RawHeader, Row
from tests.bad_input.table import TABLE

Header = tuple[bytes, bytes | None]

_ONE: Final = Expected(Rule.ONE)
_LETTER: Final = Expected(Rule.LETTER)
_MOST_DELAY_MS: Final = 3_000
_KNOWN_IDS: Final = 12  # which collide
_ODD_KEYS: Final = (
    b"",
    b" ",
    b"a\x00b",
    b"\xff\xfe",
    b"trace-\xc3",
    b"Delay-After",
    b"delay-",
    b"delay-\x00",
)


_PLACED: Final = (H_PARENT.encode(), H_SOURCE.encode())
"""What they say is right or wrong by the partition that it is said in."""


class Request(NamedTuple):
    """What one record asks for. `times`: how often it is delivered, if it is a recurring one."""

    what: str
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    expected: Expected
    times: int = 0


class Requests:
    """Makes them for one partition of the buffer at a time; the same seed makes the same."""

    def __init__(self, rng: random.Random, cluster: str) -> None:
        """The cluster's settings are those of tests/bad_input, and so is its table."""
        self._rng = rng
        self._place = Names(cluster, cluster)
        self._target = f"{cluster}.orders".encode()
        self._number = 0
        self._rows = [self._of_table(row) for row in TABLE if _fits(row)]
        self._combined = [row for row in TABLE if _fits(row) and _combines(row)]
        self._ways: list[tuple[int, Callable[[int], Request]]] = [
            (40, self.sound),
            (15, self._row),
            (15, self._two_rows),
            (10, self._mangled),
            (8, self._known_id),
            (4, self._garbage),
            (3, self._missing_target),
        ]

    def draw(self, partition: int) -> Request:
        """Any of them."""
        ways, weights = [way for _, way in self._ways], [weight for weight, _ in self._ways]
        return self._rng.choices(ways, weights)[0](partition)

    def sound(self, partition: int, value_bytes: int | None = None) -> Request:
        """A message that must arrive, unaltered."""
        rng = self._rng
        self._number += 1
        value = rng.choice((None, b"", b"%d" % self._number, rng.randbytes(rng.randrange(200))))
        if value_bytes is not None:
            value = rng.randbytes(value_bytes)
        key = rng.choice((None, b"", b"k%d" % self._number, rng.randbytes(8)))
        delay_ms, time = self._time()
        headers: list[Header] = [(H_TARGET_TOPIC.encode(), self._target), *time, *self._own()]
        if rng.random() < 0.2:
            headers.append((H_TARGET_PARTITION.encode(), b"%d" % rng.randrange(2)))
        if rng.random() < 0.1:
            headers.append((H_EXPIRE_AT.encode(), b"4102444800000"))  # in the year 2100
        record_key = key
        if rng.random() < 0.3:
            record_key = self._fresh_id(partition)
            headers += ((H_ID.encode(), record_key), (H_TARGET_KEY.encode(), key))
            if rng.random() < 0.3:
                headers.append((H_IF_EXISTS.encode(), b"keep"))
        rng.shuffle(headers)
        expected = Expected(Rule.DELIVERED, content_of(value, headers), place_of(self._target, key), delay_ms)
        return Request("sound", record_key, value, tuple(headers), expected)

    def recurring(self, partition: int) -> Request:
        """A message that must arrive twice."""
        key, value = b"k", self._rng.randbytes(10)
        headers: list[Header] = [
            (H_TARGET_TOPIC.encode(), self._target),
            (H_INTERVAL.encode(), b"1s"),
            (H_TIMES.encode(), b"2"),
        ]
        expected = Expected(
            Rule.DELIVERED, content_of(value, headers), place_of(self._target, key), delay_ms=2_000
        )
        return Request("sound, recurring", key, value, tuple(headers), expected, times=2)

    def probe(self) -> Request:
        """A message for now."""
        headers = ((H_TARGET_TOPIC.encode(), self._target), (b"probe", b"1"))
        expected = Expected(Rule.DELIVERED, content_of(b"probe", headers), place_of(self._target, b"p"))
        return Request("a probe", b"p", b"probe", headers, expected)

    def older(self, partition: int) -> Request:
        """What does nothing: lines of the page of bad input speak of the first records of a partition."""
        id_ = self._fresh_id(partition)
        headers = ((H_OP.encode(), b"cancel"), (H_ID.encode(), id_))
        return Request("a cancel of what is not there", id_, None, headers, _ONE)

    # -- ways to be hostile

    def _row(self, partition: int) -> Request:
        fitting = [row for at, row in self._rows if at in (None, partition)]
        return self._rng.choice(fitting)

    def _of_table(self, row: Row) -> tuple[int | None, Request]:
        """A line of the page of bad input, with what it says comes of it; where it belongs, if anywhere."""
        headers = self._resolved(row.headers)
        has_id = any(name == H_ID.encode() for name, _ in headers)
        if isinstance(row.fate, Answered) or has_id or H_ID in row.group:
            expected = _ONE
        elif isinstance(row.fate, Delivered):
            expected = Expected(Rule.DELIVERED, content_of(row.value, headers), None, 2_000)
        else:
            expected = _LETTER._replace(delay_ms=2_000)
        request = Request(f"bad input: {row.name}", row.key, row.value, headers, _cut(expected, headers))
        pinned = has_id or any(name in _PLACED for name, _ in headers)
        return row.partition if pinned else None, request

    def _two_rows(self, partition: int) -> Request:
        """What is odd about two lines at once, some of it twice, and in any order."""
        first, second = self._rng.sample(self._combined, 2)
        headers = [*self._resolved(first.headers), *self._resolved(second.odd)]
        self._rng.shuffle(headers)
        what = f"bad input: {first.name} + {second.name}"
        return Request(what, first.key, second.value, tuple(headers), _ONE._replace(delay_ms=2_000))

    def _mangled(self, partition: int) -> Request:
        """A sound one with something left out, doubled, null, cut, or put between."""
        rng = self._rng
        sound = self.sound(partition)
        headers = list(sound.headers)
        for _ in range(rng.randrange(1, 4)):
            place = rng.randrange(len(headers))
            name, value = headers[place]
            way = rng.randrange(6)
            if way == 0:
                del headers[place]
            elif way == 1:
                headers.insert(rng.randrange(len(headers) + 1), (name, value))
            elif way == 2:
                headers[place] = (name, None)
            elif way == 3:
                headers[place] = (name, (value or b"")[: rng.randrange(4)])
            elif way == 4:
                headers[place] = (name, rng.randbytes(rng.randrange(20)))
            else:
                headers.insert(place, (rng.choice(_ODD_KEYS), rng.choice((None, b"", b"1", b"\xff"))))
            if not headers:
                break
        expected = Expected(Rule.ONE, content_of(sound.value, headers), None, _MOST_DELAY_MS)
        return Request("mangled", sound.key, sound.value, tuple(headers), _cut(expected, headers))

    def _known_id(self, partition: int) -> Request:
        """A schedule, a cancel or a reschedule of one of a few ids; now and then in another partition."""
        rng = self._rng
        id_ = self._id(partition, rng.randrange(_KNOWN_IDS))
        if rng.random() < 0.05:
            id_ = self._id(1 - partition, rng.randrange(_KNOWN_IDS))
        delay_ms = rng.randrange(_MOST_DELAY_MS)
        time = [(H_AFTER.encode(), b"%dms" % delay_ms)]
        headers: list[Header] = [(H_ID.encode(), id_)]
        op = rng.choice(("schedule", "schedule", "keep", "cancel", "reschedule"))
        if op in ("schedule", "keep"):
            headers += ((H_TARGET_TOPIC.encode(), self._target), *time)
            headers += [(H_IF_EXISTS.encode(), b"keep")] * (op == "keep")
        else:
            headers += ((H_OP.encode(), op.encode()), *(time if op == "reschedule" else ()))
        # A message may be moved again and again: each move puts it off.
        return Request(
            f"{op} of a known id", id_, b"v", tuple(headers), _ONE._replace(delay_ms=10 * delay_ms)
        )

    def forged(self, partition: int) -> Request:
        """What only the service itself says."""
        rng = self._rng
        sound = self.sound(partition)
        parent = rng.choice((0, rng.randrange(1, 50), rng.randrange(1000), 2**63 - 1))
        root = min(parent, rng.randrange(1000))
        headers: list[Header] = [
            *sound.headers,
            (H_PARENT.encode(), b"%d" % parent),
            (H_ROOT.encode(), f"{self._place.names.buffer}/{partition}/{root}".encode()),
        ]
        headers += [
            (name.encode(), b"%d" % rng.choice((1, 2, 7, 2**31 - 1)))
            for name in (H_ATTEMPT, H_OCCURRENCE, H_SCHEDULED_FOR)
            if rng.random() < 0.3
        ]
        if rng.random() < 0.5:
            headers.append((b"delay-as-of", b"%d.%d" % (parent % 1000, parent % 1000 + 1)))
            headers.append((b"delay-signature", rng.choice((b"", b"1:" + rng.randbytes(16).hex().encode()))))
        if rng.random() < 0.3:
            headers.append((H_SOURCE.encode(), headers[len(sound.headers) + 1][1]))
        rng.shuffle(headers)
        return Request("forged", sound.key, sound.value, tuple(headers), _LETTER)

    def _garbage(self, partition: int) -> Request:
        rng = self._rng
        headers = tuple(
            (rng.randbytes(rng.randrange(8)), rng.choice((None, rng.randbytes(rng.randrange(8)))))
            for _ in range(rng.randrange(6))
        )
        return Request("garbage", rng.randbytes(5), rng.randbytes(rng.randrange(100)), headers, _LETTER)

    def _missing_target(self, partition: int) -> Request:
        name = f"{self._place.targets}.missing-{self._rng.randrange(1000)}".encode()
        return Request("missing target", b"k", b"v", ((H_TARGET_TOPIC.encode(), name),), _LETTER)

    # -- parts of them

    def _time(self) -> tuple[int, tuple[Header, ...]]:
        """How long from now, and how it is said."""
        rng = self._rng
        delay_ms = rng.choice((0, 0, rng.randrange(200), rng.randrange(_MOST_DELAY_MS)))
        way = rng.randrange(4)
        if way == 0:
            return 0, ()
        if way == 1:
            return 200, ((H_LEVEL.encode(), b"%d" % rng.randrange(-1, 5)),)
        if way == 2:
            return 0, ((H_DELIVER_AT.encode(), b"%d" % rng.randrange(2**40)),)  # in the past
        return delay_ms, ((H_AFTER.encode(), b"%d.%03ds" % divmod(delay_ms, 1000)),)  # cut, it has no unit

    def _own(self) -> list[Header]:
        rng = self._rng
        return [
            (
                rng.choice((b"trace", b"h", "ä".encode(), b"x-delay-after", b"")),
                rng.choice((None, b"", b"\xff\x00")),
            )
            for _ in range(rng.choice((0, 0, 1, 3)))
        ]

    def _fresh_id(self, partition: int) -> bytes:
        while True:
            self._number += 1
            id_ = b"id-%d" % self._number
            if partition_for(id_, PARTITIONS) == partition:
                return id_

    def _id(self, partition: int, number: int) -> bytes:
        """One of the few, the same each time."""
        while partition_for(b"known-%d" % number, PARTITIONS) != partition:
            number += _KNOWN_IDS
        return b"known-%d" % number

    def _resolved(self, headers: tuple[RawHeader, ...]) -> tuple[Header, ...]:
        return tuple(
            (
                name if isinstance(name, bytes) else name.encode(),
                None if value is None else self._place.resolved(value),
            )
            for name, value in headers
        )


def _cut(expected: Expected, headers: tuple[Header, ...] | list[Header]) -> Expected:
    """What is not compared where a client library shows the reader something else."""
    return expected._replace(content=None) if any(b"\x00" in name for name, _ in headers) else expected


def _fits(row: Row) -> bool:
    """Not the largest, which the batches make, and not what says that it is another request."""
    large = row.zeros or row.batch_bytes or len(row.headers) > 100
    forged = isinstance(row.fate, Delivered) and any(name == H_PARENT for name, _ in row.headers)
    return not large and not forged


def _combines(row: Row) -> bool:
    """Two of them are due within seconds, make no chain without an end, and forge nothing."""
    names = {name for name, _ in row.headers}
    return names.isdisjoint((H_INTERVAL, H_CRON, H_PARENT))
