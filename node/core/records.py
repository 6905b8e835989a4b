"""What one transaction sends, in its order.

A plain delivery is made of its row when it is sent, and not kept. So the same few pieces of memory serve one
message after the other; thousands of records that are made first and sent later find theirs cold, which took
as long as all the rest [measured: docs/benchmarks.md].
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from delayline.names import raw_source_format
from delayline.wire import delivery_headers, user_headers
from node.core.ports import Outgoing
from store.keys import RowKey
from store.rows import ScheduledRow, decode_message
from store.taking import Rows


class Deliveries:
    """Makes what targets get. `buffer`: where the requests stand. `now_ms`: when it is sent."""

    def __init__(self, buffer: str, now_ms: int) -> None:
        self._source_format = raw_source_format(buffer)
        self._now_ms = now_ms

    def record(self, key: RowKey, row: ScheduledRow) -> Outgoing:
        """Of one message."""
        root = row.root
        headers = delivery_headers(
            user_headers(row.headers),
            row.id,
            self._source_format % key[1:] if root is None else root.encode(),
            row.scheduled_for_ms,
            row.attempt,
            row.occurrence,
        )
        target_key = row.key if row.target_key is None else row.target_key[0]
        return Outgoing(
            row.target_topic, row.target_partition, target_key, row.value, headers, self._now_ms, key
        )


class PlannedRecords:
    """Implements `node.core.ports.Records`."""

    def __init__(self, deliveries: Deliveries) -> None:
        self.topics: set[str] = set()
        self._deliveries = deliveries
        self._last: list[Outgoing] = []
        self._parts: list[list[Outgoing] | _Run] = [self._last]
        self._count = 0

    def append(self, record: Outgoing) -> None:
        """Adds a record."""
        self._last.append(record)
        self._count += 1
        self.topics.add(record.topic)

    def deliver(self, rows: Rows, topics: Iterable[str]) -> None:
        """Adds the deliveries of messages. `topics`: where they go."""
        self._last = []
        self._parts += _Run(rows, self._deliveries), self._last
        self._count += len(rows)
        self.topics.update(topics)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Outgoing]:
        return chain.from_iterable(self._parts)


class _Run:
    """Messages, each of which becomes a record when its turn has come."""

    def __init__(self, rows: Rows, deliveries: Deliveries) -> None:
        self._rows = rows
        self._deliveries = deliveries

    def __iter__(self) -> Iterator[Outgoing]:
        record = self._deliveries.record
        for key, raw in self._rows:
            yield record(key, decode_message(raw))
