"""What has been fetched and waits to be read, and where its reader stands.

A reader unpacks and decodes one batch after the other, within bounds; of each partition a batch, in turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Final

from node.kafka.fetch.batches import BatchContent, Opened, RecordBatch, open_aborted, open_batch
from node.kafka.fetch.compression import Scratch
from node.kafka.fetch.records import HEADER_BYTES, LogRecord
from store.checkpoint import Vector

MOST_POLLED: Final = 500
MOST_POLLED_BYTES: Final = 2 << 20


class _Waiting:
    """Batches of a partition that wait to be read, each with what it holds; `opened` is the first of them,
    once it is being read.
    """

    def __init__(self, partition: int, from_offset: int) -> None:
        """What is below `from_offset` is passed over: a fetch may begin within a batch."""
        self.partition = partition
        self.from_offset = from_offset
        self.batches: deque[tuple[RecordBatch, BatchContent]] = deque()
        self.opened: Opened | None = None

    @property
    def size_bytes(self) -> int:
        """Of the batches as they were fetched."""
        return sum(len(batch.raw) for batch, _ in self.batches)


class Ready:
    """Batches of some partitions. Used by one thread; `reached` may be read by any."""

    def __init__(self, *, aborted: bool) -> None:
        """`aborted`: what is signed and was aborted is read as well, and told by its flaw, `ABORTED`."""
        self.reached: Vector = {}
        self._aborted = aborted
        self._scratch = Scratch()
        self._waiting: dict[int, _Waiting] = {}  # by partition; the first one is read next

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._waiting)

    def has(self, partition: int) -> bool:
        """Whether something of it waits to be read: then its reader does not stand where its fetches do."""
        return partition in self._waiting

    def start(self, offsets: Vector) -> None:
        """Nothing waits; the reader stands at these offsets."""
        self._waiting.clear()
        self.reached = dict(offsets)

    def size_bytes(self, partitions: Iterable[int]) -> int:
        """Of these partitions' batches as they were fetched."""
        return sum(self._waiting[one].size_bytes for one in partitions if one in self._waiting)

    def add(
        self, partition: int, from_offset: int, batches: Iterable[tuple[RecordBatch, BatchContent]]
    ) -> None:
        """Batches from an offset on, each with what it holds: behind those that are there."""
        self._waiting.setdefault(partition, _Waiting(partition, from_offset)).batches.extend(batches)

    def take(self) -> list[LogRecord]:
        """Reads on in what is ready, up to so many records and bytes, or the end of it: of each partition a
        batch, in turn.
        """
        taken: list[LogRecord] = []
        left_bytes = MOST_POLLED_BYTES
        while self._waiting and len(taken) < MOST_POLLED and left_bytes > 0:
            partition, waiting = next(iter(self._waiting.items()))
            opened = waiting.opened or self._open_next(waiting)
            if opened is None:
                del self._waiting[partition]
                continue
            first = len(taken)
            if opened.is_small:
                taken.extend(islice(opened.records, MOST_POLLED - first))
                left_bytes -= opened.size_bytes
            else:
                left_bytes -= self._take_large(opened, taken, left_bytes)
            if len(taken) > first:
                self.stand_at(partition, taken[-1].offset + 1)
            if len(taken) < MOST_POLLED and left_bytes > 0:
                left_bytes -= self._close(waiting)
                self._waiting[partition] = self._waiting.pop(partition)  # behind the others
        return taken

    @staticmethod
    def _take_large(opened: Opened, taken: list[LogRecord], most_bytes: int) -> int:
        """Takes records of a batch that is large; returns about how many bytes they have."""
        size_bytes = 0
        for record in opened.records:
            taken.append(record)
            size_bytes += _size_bytes(record)
            if len(taken) == MOST_POLLED or size_bytes >= most_bytes:
                break
        return size_bytes

    def _open_next(self, waiting: _Waiting) -> Opened | None:
        """Begins with the next batch of which something is read, if there is one left."""
        while waiting.batches:
            batch, content = waiting.batches[0]
            if content is BatchContent.MESSAGES or (self._aborted and content is BatchContent.ABORTED):
                open_ = open_batch if content is BatchContent.MESSAGES else open_aborted
                opened = open_(waiting.partition, batch, self._scratch)
                if batch.base_offset < waiting.from_offset:
                    wanted = (one for one in opened.records if one.offset >= waiting.from_offset)
                    opened = opened._replace(records=wanted)
                waiting.opened = opened
                return opened
            waiting.batches.popleft()
            self.stand_at(waiting.partition, batch.next_offset)
        return None

    def _close(self, waiting: _Waiting) -> int:
        """The open batch has been read to its end. Returns how much of it may have been passed over, and not
        been counted.
        """
        batch, content = waiting.batches.popleft()
        assert waiting.opened is not None, "it is open"
        size_bytes, is_small = waiting.opened.size_bytes, waiting.opened.is_small
        waiting.opened = None
        self._scratch.release()
        self.stand_at(waiting.partition, batch.next_offset)
        return size_bytes if content is BatchContent.ABORTED and not is_small else 0

    def stand_at(self, partition: int, offset: int) -> None:
        """All below that offset has been passed."""
        self.reached[partition] = max(self.reached[partition], offset)


def _size_bytes(record: LogRecord) -> int:
    """About what it takes in memory."""
    return len(record.key or b"") + len(record.value or b"") + HEADER_BYTES * (1 + len(record.headers))
