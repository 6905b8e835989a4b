"""Batches of requests, sound and hostile, drawn from a seed: how they are written for a produce request."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tests.attack.expected import Expected, Rule
from tests.attack.requests import Request, Requests
from tests.bad_input.row import PARTITIONS
from tests.support.raw import (
    Attribute,
    Codec,
    Framing,
    Odd,
    RawBatch,
    RawRecord,
    batch_of,
    compress,
    overlong,
    records_bytes,
)

KINDS: Final = {
    "requests": 40,
    "forged": 5,
    "negative-length": 10,
    "odd-record": 8,
    "record-length": 6,
    "offset-delta": 5,
    "odd-batch": 8,
    "odd-payload": 5,
    "refused": 5,
    "transaction": 4,
    "recurring": 2,
    "large": 1,
    "crowd": 1,
}
"""What is drawn, and how often of a hundred."""

_ONE: Final = Expected(Rule.ONE, delay_ms=3_000)
_NEGATIVE: Final = (-2, -3, -64, -65, -(2**31))
_LARGE_BYTES: Final = 900_000
_NOBODYS: Final = 2**40
"""From here on producer ids are nobody's: brokers give them out from 0 on. Who writes with the id of one of
the service's producers, and a higher epoch, keeps that one out of the partition (docs/attack.md).
"""
_CROWD: Final = 1_000
_COUNTED: Final = 100
_MOST_IN_A_BATCH: Final = 20


@dataclass(frozen=True, slots=True)
class Attack:
    """A produce request for one partition, and what must come of its records if the broker takes it.

    `expected`: of each record, or one for all; empty: nothing must come of it; `whole`: one dead letter may
    stand for all of them; `commit`: whether its transaction is committed or aborted, None if there is none.
    """

    kind: str
    what: str
    partition: int
    batch: RawBatch
    expected: Sequence[Expected]
    whole: bool = False
    times: int = 0
    commit: bool | None = None
    twice: bool = False  # two batches in one request

    @property
    def cost(self) -> int:
        """For how many records it counts where the rate is bounded."""
        return max(1, min(self.batch.count, _COUNTED))


class Attacks:
    """Makes them; the same seed makes the same. `only`: of these kinds alone; bombs are made elsewhere."""

    def __init__(self, seed: int, cluster: str, only: Sequence[str] = ()) -> None:
        self._rng = random.Random(seed)
        self.requests = Requests(self._rng, cluster)
        kinds = [kind for kind in KINDS if kind in only] or list(KINDS if not only else ["requests"])
        self._ways = [self._known()[kind] for kind in kinds]
        self._weights = [KINDS[kind] for kind in kinds]

    def draw(self) -> Attack:
        """Any of them."""
        partition = self._rng.randrange(PARTITIONS)
        return self._rng.choices(self._ways, self._weights)[0](partition)

    def _known(self) -> dict[str, Callable[[int], Attack]]:
        return {
            "requests": self._plain,
            "forged": self._forged,
            "negative-length": self._negative_length,
            "odd-record": self._odd_record,
            "record-length": self._record_length,
            "offset-delta": self._offset_delta,
            "odd-batch": self._odd_batch,
            "odd-payload": self._odd_payload,
            "refused": self._refused,
            "transaction": self._transaction,
            "recurring": self._recurring,
            "large": self._large,
            "crowd": self._crowd,
        }

    # -- what a broker, and the node, must take as it is

    def _plain(self, partition: int) -> Attack:
        return self._attack("requests", "requests", partition, self._some(partition))

    def _forged(self, partition: int) -> Attack:
        requests = [*self._some(partition), self.requests.forged(partition)]
        return self._attack("forged", "one that is forged, behind others", partition, requests)

    def _recurring(self, partition: int) -> Attack:
        request = self.requests.recurring(partition)
        return replace(self._attack("recurring", request.what, partition, [request]), times=request.times)

    def _large(self, partition: int) -> Attack:
        """One value of up to a batch's limit, which cannot be compressed."""
        request = self.requests.sound(partition, self._rng.randrange(1, _LARGE_BYTES))
        return self._attack("large", "a large value", partition, [request])

    def _crowd(self, partition: int) -> Attack:
        """Very many records that ask for nothing."""
        records = [RawRecord(value=b"x")] * self._rng.randrange(1, _CROWD)
        batch = batch_of(records, self._codec())
        return Attack("crowd", f"{len(records)} records", partition, batch, [_rejected()])

    def _transaction(self, partition: int) -> Attack:
        commit = self._rng.random() < 0.5
        made = self._attack(
            "transaction", f"a transaction, commit={commit}", partition, self._some(partition)
        )
        return replace(made, commit=commit)

    # -- what other producers write

    def _negative_length(self, partition: int) -> Attack:
        """A length that is null to the broker, in some of the records."""
        rng, requests = self._rng, self._some(partition)
        records, expected = _records(requests), [request.expected for request in requests]
        for place in rng.sample(range(len(records)), rng.randrange(1, min(3, len(records)) + 1)):
            records[place] = self._with_negative(records[place])
            expected[place] = _ONE
        return self._of_records("negative-length", "a negative length", partition, records, expected)

    def _with_negative(self, record: RawRecord) -> RawRecord:
        odd = Odd(self._rng.choice(_NEGATIVE))
        field = self._rng.randrange(3)
        if field == 0:
            return replace(record, key=odd)
        if field == 1:
            return replace(record, value=odd)
        return replace(record, headers=(*record.headers, (b"odd", odd)))

    def _odd_record(self, partition: int) -> Attack:
        """Numbers that are written in more bytes than they need, or mean nothing."""
        rng, requests = self._rng, self._some(partition)
        field, value = rng.choice(
            (
                ("attributes", rng.randrange(1, 256)),
                ("timestamp_delta", rng.choice((-1, 2**31, 2**63 - 1, -(2**63), overlong(0, 10)))),
                ("header_count", None),
                ("key", Odd(overlong(3, rng.randrange(2, 6)), b"key")),
                ("value", Odd(overlong(0, rng.randrange(2, 6)))),
            )
        )
        records = [replace(record, **_changed(field, value)) for record in _records(requests)]
        what = f"each record's {field} is {value!r}"
        return self._of_records("odd-record", what, partition, records, [_ONE], whole=True)

    def _record_length(self, partition: int) -> Attack:
        """A record's own length, which brokers do not look at where it is compressed."""
        rng = self._rng
        records = _records(self._some(partition))
        place = rng.randrange(len(records))
        length = rng.choice((0, -1, -2, 1, 5, 6, 1000, 2**31 - 1, -(2**31), overlong(9, 5)))
        records[place] = replace(records[place], length=length)
        what = f"record {place} of {len(records)} says it has {length!r} bytes"
        codec = rng.choice((Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD))
        return self._of_records("record-length", what, partition, records, [_ONE], codec, whole=True)

    def _offset_delta(self, partition: int) -> Attack:
        """A record's own offset, which brokers do not look at where it is not compressed."""
        rng = self._rng
        records = _records(self._some(partition))
        place = rng.randrange(len(records))
        delta = rng.choice((-1, 0, 1, place - 1, place + 1, len(records), 1000, 2**31 - 1, -(2**31)))
        records[place] = replace(records[place], offset_delta=delta)
        what = f"record {place} of {len(records)} says it is record {delta}"
        return self._of_records("offset-delta", what, partition, records, [_ONE], Codec.NONE, whole=True)

    def _odd_batch(self, partition: int) -> Attack:
        """Fields of the batch's own."""
        rng = self._rng
        fields: dict[str, Any] = rng.choice(
            (
                {"attributes": Attribute.UNKNOWN << rng.randrange(9)},
                {"attributes": Attribute.DELETE_HORIZON, "first_timestamp_ms": rng.randrange(2**42)},
                {"attributes": 0xFF80 | Attribute.DELETE_HORIZON},
                {"leader_epoch": rng.choice((0, 9, 2**31 - 1, -(2**31)))},
                {"first_timestamp_ms": rng.choice((-5, 2**63 - 1, -(2**63))), "max_timestamp_ms": -9},
                {"max_timestamp_ms": rng.choice((2**63 - 1, -(2**63)))},
                {
                    "producer_id": rng.randrange(_NOBODYS, 2**50),
                    "producer_epoch": 0,
                    "base_sequence": rng.randrange(99),
                },
                {"producer_id": -7, "producer_epoch": 3, "base_sequence": 1},
                {"producer_id": 2**63 - 1, "producer_epoch": 2**15 - 1, "base_sequence": 2**31 - 1},
                {
                    "producer_id": _NOBODYS - rng.randrange(1, 4),
                    "producer_epoch": 0,
                    "base_sequence": rng.randrange(4),
                },
            )
        )
        made = self._attack("odd-batch", f"{fields}", partition, self._some(partition), **fields)
        # Where a bit means nothing today, it is enough that nothing is lost.
        return replace(made, expected=[_ONE], whole=True) if "attributes" in fields else made

    def _odd_payload(self, partition: int) -> Attack:
        """Several compressed pieces in a row, and junk behind them."""
        rng = self._rng
        records = _records(self._some(partition))
        cut = rng.randrange(len(records) + 1)
        first = records_bytes(records[:cut])
        whole = records_bytes(records)
        codec = rng.choice((Codec.GZIP, Codec.LZ4, Codec.ZSTD))
        if codec is not Codec.LZ4 and rng.random() < 0.5:
            payload = compress(codec, first) + compress(codec, whole[len(first) :])
            what = f"{codec.name} in two pieces"
        else:
            payload = compress(codec, whole) + rng.randbytes(rng.randrange(1, 30))
            what = f"{codec.name} with junk behind"
        batch = RawBatch(payload, len(records), attributes=codec)
        return Attack("odd-payload", what, partition, batch, [_ONE], whole=True)

    def _refused(self, partition: int) -> Attack:
        """What brokers do not take; if one does, it must come to something."""
        rng, requests = self._rng, self._some(partition)
        fields: dict[str, Any] = rng.choice(
            (
                {"crc": rng.randrange(2**32)},
                {"magic": rng.choice((0, 1, 3, -1))},
                {"length": rng.choice((0, -1, 48, 49, 1000, 2**31 - 1))},
                {"base_offset": rng.choice((-1, 1, 2**63 - 1))},
                {"count": rng.choice((0, -1, 2**31 - 1, len(requests) + 1))},
                {"last_offset_delta": rng.choice((-1, len(requests), 2**31 - 1))},
                {"attributes": Attribute.CONTROL},
                {"attributes": Attribute.TRANSACTIONAL},
                {"attributes": Attribute.TRANSACTIONAL | Attribute.CONTROL, "producer_id": 5},
                {"attributes": Attribute.LOG_APPEND_TIME},
                {"payload": rng.randbytes(rng.randrange(40))},
            )
        )
        made = self._attack("refused", f"{fields}", partition, requests, **fields)
        if rng.random() < 0.1:
            made = replace(made, what="two batches in one request", twice=True)
        elif rng.random() < 0.2:
            codec = rng.randrange(5, 8)
            made = replace(made, what=f"codec {codec}", batch=replace(made.batch, attributes=codec))
        return replace(made, expected=[_ONE], whole=True)

    # -- parts of them

    def _some(self, partition: int) -> list[Request]:
        return [self.requests.draw(partition) for _ in range(self._rng.randrange(1, _MOST_IN_A_BATCH))]

    def _codec(self) -> Codec:
        return self._rng.choice((Codec.NONE, *tuple(Codec)))

    def _attack(self, kind: str, what: str, partition: int, requests: list[Request], **fields: Any) -> Attack:
        expected = [request.expected for request in requests]
        if len(requests) == 1:
            what = f"{what}: {requests[0].what}"
        return self._of_records(kind, what, partition, _records(requests), expected, **fields)

    def _of_records(
        self,
        kind: str,
        what: str,
        partition: int,
        records: list[RawRecord],
        expected: list[Expected],
        codec: Codec | None = None,
        *,
        whole: bool = False,
        **fields: Any,
    ) -> Attack:
        codec = self._codec() if codec is None else codec
        batch = batch_of(records, codec, self._rng.choice(tuple(Framing)), **fields)
        return Attack(kind, f"{what}; {codec.name.lower()}", partition, batch, expected, whole)


def _records(requests: list[Request]) -> list[RawRecord]:
    return [RawRecord(request.key, request.value, request.headers) for request in requests]


def _rejected() -> Expected:
    return Expected(Rule.LETTER)


def _changed(field: str, value: Any) -> dict[str, Any]:
    """An overlong number of no headers is written without any."""
    if field == "header_count":
        return {"headers": (), "header_count": overlong(0, 5)}
    return {field: value}
