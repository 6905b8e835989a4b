"""What the service has written into the buffer, signature and all, sent again by somebody else."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Container
from dataclasses import replace

from delayline.headers import H_PARENT
from tests.attack.batches import Attack
from tests.attack.expected import Expected, Rule
from tests.bad_input.row import PARTITIONS
from tests.support.raw import Attribute, Connection, RawBatch, batches_in

COPY = "copy"


class Copies:
    """Reads the buffer as it goes; what is there is copied at most once for each look."""

    def __init__(self, connection: Connection, buffer: str, seed: int) -> None:
        self._connection = connection
        self._buffer = buffer
        self._read_to: Counter[int] = Counter()
        self._rng = random.Random(seed)

    def draw(self, strangers: Container[int]) -> Attack | None:
        """A batch that the service has written since the last look, to its own partition or another one; None
        if there is none. `strangers`: whose transactions are not the service's, by producer id.
        """
        partition = self._rng.randrange(PARTITIONS)
        raw = self._connection.fetch(self._buffer, partition, self._read_to[partition])
        found = None
        for batch in batches_in(raw):
            self._read_to[partition] = batch.base_offset + batch.count
            if batch.producer_id not in strangers and _is_written_back(batch):
                found = batch
        if found is None:
            return None
        copied = replace(
            RawBatch(found.payload, found.count),
            attributes=found.attributes & ~(Attribute.TRANSACTIONAL | Attribute.LOG_APPEND_TIME),
        )
        to = self._rng.randrange(PARTITIONS)
        what = f"a copy of {self._buffer}/{partition}/{found.base_offset}"
        # Elsewhere its signature does not hold: there it is a forged one.
        return Attack(COPY, what, to, copied, [] if to == partition else [Expected(Rule.LETTER)])


def _is_written_back(batch: RawBatch) -> bool:
    plain = batch.attributes & Attribute.TRANSACTIONAL and not batch.attributes & Attribute.CONTROL
    return bool(plain) and H_PARENT.encode() in batch.payload
