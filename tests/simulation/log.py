"""Kafka's log as the simulation has it: partitions, transactions, markers, the last stable offset.

What is kept of Kafka: a record is appended whether its transaction will commit or not; a marker takes an
offset in every partition of its transaction; a transaction's markers are written one after the other, so
its records become visible in one partition before they do in another; a read_committed reader sees nothing
at or above the first offset of a transaction whose marker is not there yet. A partition may lose its end,
where a broker comes to lead it that had not copied all: its leader epoch is higher from then on.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from delayline.wire import H_SIGNATURE, Header
from node.kafka.fetch.records import LogRecord
from store.arrivals import Arrival
from store.checkpoint import Checkpoint
from tests.simulation.requests import Request


class Fate(Enum):
    """What has been decided of a transaction."""

    OPEN = "open"
    COMMIT = "commit"
    ABORT = "abort"


class Transaction:
    """One transaction: of the service (`lane`) or of some application."""

    def __init__(self, number: int, *, lane: bool, producer: object = None) -> None:
        self.number = number
        self.lane = lane
        self.producer = producer  # of the service's: its id
        self.fate = Fate.OPEN
        self.unmarked: list[Partition] = []  # partitions of it without its marker, in order of first use

    def decide(self, fate: Fate) -> None:
        """Decides its fate; nothing can change it from then on."""
        assert self.fate is Fate.OPEN, "a transaction is decided once"
        self.fate = fate

    def mark_next(self) -> None:
        """Writes the marker of one partition."""
        if self.unmarked:
            self.unmarked.pop(0).mark(self)

    def mark_all(self) -> None:
        """Writes the markers that are missing."""
        while self.unmarked:
            self.mark_next()


class Entry:
    """What stands at one offset; without a record it is a marker."""

    __slots__ = ("arrivals", "checkpoint", "record", "request", "transaction")

    def __init__(
        self, record: LogRecord | None, transaction: Transaction | None, request: Request | None
    ) -> None:
        self.record = record
        self.transaction = transaction
        self.request = request  # what the user meant; None: not a user's
        self.arrivals: list[Arrival] | None = None  # parsed once, since every node would parse it alike
        self.checkpoint: Checkpoint | str | None = None  # or what it is instead; as well

    @property
    def aborted(self) -> bool:
        """Whether its transaction was."""
        return self.transaction is not None and self.transaction.fate is Fate.ABORT


class Partition:
    """One partition of a topic."""

    def __init__(self, topic: str, number: int) -> None:
        self.topic = topic
        self.number = number
        self.entries: list[Entry] = []
        self.begin = 0  # below, retention has removed what was there; it is kept here, for the judge
        self.ever: list[Entry] = []  # and what it has lost
        self.leader_epoch = 0
        self.was_held = False  # by a stranger's transaction
        self._open: dict[Transaction, int] = {}
        self._left_open: list[Transaction] = []  # of these, which were decided, and their markers are lost

    @property
    def end(self) -> int:
        """The high watermark."""
        return len(self.entries)

    @property
    def stable_end(self) -> int:
        """The last stable offset."""
        return min(self._open.values()) if self._open else len(self.entries)

    def append(
        self,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: list[Header],
        transaction: Transaction | None = None,
        request: Request | None = None,
    ) -> int:
        """Appends a record; returns its offset."""
        offset = len(self.entries)
        record = LogRecord(self.number, offset, timestamp_ms, key, value, headers)
        self._add(Entry(record, transaction, request))
        if transaction is not None and transaction not in self._open:
            self._open[transaction] = offset
            transaction.unmarked.append(self)
        return offset

    def newest_ms(self) -> int:
        """Of the records that there are, whatever becomes of them."""
        return max((one.record.timestamp_ms for one in self.entries if one.record is not None), default=0)

    def first_from(self, timestamp_ms: int, begin: int) -> int:
        """The first offset from one on whose record is not older; the end if there is none."""
        for offset in range(begin, self.end):
            record = self.entries[offset].record
            if record is not None and record.timestamp_ms >= timestamp_ms:
                return offset
        return self.end

    def mark(self, transaction: Transaction) -> None:
        """Appends the transaction's marker. It decides over all that is open of its producer."""
        self._open.pop(transaction, None)
        for left in [one for one in self._left_open if one.producer is transaction.producer]:
            left.fate = transaction.fate
            self._left_open.remove(left)
            del self._open[left]
        self._add(Entry(None, transaction, None))

    def _add(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.ever.append(entry)

    def lose_end(self, count: int) -> None:
        """Another broker leads, which lacks so many of the last entries. Where one is the marker of a commit
        of the service's, its transaction is open again. (Another's an operator ends; an abort stays one.)
        """
        self.leader_epoch += 1
        kept, lost = self.entries[: max(0, self.end - count)], self.entries[max(0, self.end - count) :]
        self._open = {one: first for one, first in self._open.items() if first < len(kept)}
        self._left_open = [one for one in self._left_open if one in self._open]
        unmarked = {entry.transaction for entry in lost if entry.record is None}
        for offset, entry in enumerate(kept):
            was = entry.transaction
            if was in unmarked and was is not None and was.lane and was.fate is Fate.COMMIT:
                left = Transaction(was.number, lane=True, producer=was.producer)
                kept[offset] = Entry(entry.record, left, entry.request)
                self._open[left] = offset
                self._left_open.append(left)
        self.entries = kept

    @property
    def is_own_open(self) -> bool:
        """Whether a transaction of the service's lacks its marker: for a moment, or for good."""
        return any(transaction.lane for transaction in self._open)

    def has_left_open(self, producer: object) -> bool:
        """Whether one of an id is."""
        return any(one.producer is producer for one in self._left_open)

    def join(self, transaction: Transaction) -> None:
        """It is to end here, too."""
        if self not in transaction.unmarked:
            transaction.unmarked.append(self)

    @property
    def is_held(self) -> bool:
        """Whether a transaction is open that is none of the service's."""
        return any(not transaction.lane for transaction in self._open)

    def own_ever(self) -> Iterator[Entry]:
        """The checkpoints that the service has committed, also if they are lost."""
        for entry in self.ever:
            transaction = entry.transaction
            if transaction is not None and transaction.fate is Fate.COMMIT and is_checkpoint(entry):
                yield entry

    def committed(self, begin: int, end: int) -> Iterator[Entry]:
        """What a read_committed reader gets of [begin, end); `end`: the last stable offset at most."""
        for entry in self.entries[begin:end]:
            if entry.record is None:
                continue
            if entry.transaction is None or entry.transaction.fate is Fate.COMMIT:
                yield entry

    def signed(self, begin: int, end: int) -> Iterator[Entry]:
        """The same, and what was aborted of what bears a signature, as nodes ask for it
        (node/kafka/reader.py).
        """
        for entry in self.entries[begin:end]:
            if entry.record is not None and (not entry.aborted or H_SIGNATURE in dict(entry.record.headers)):
                yield entry

    def own(self, begin: int, end: int) -> Iterator[Entry]:
        """The checkpoints of the service among that."""
        yield from filter(is_checkpoint, self.committed(begin, end))

    def last_own(self, *, hidden: bool = False) -> Entry | None:
        """The last checkpoint of the service's that a read_committed reader sees; or that is `hidden` from it
        for now.
        """
        for offset in range((self.end if hidden else self.stable_end) - 1, -1, -1):
            for entry in self.own(offset, offset + 1):
                return entry
        return None


def is_checkpoint(entry: Entry) -> bool:
    """Whether it is the service's own."""
    return entry.transaction is not None and entry.transaction.lane and entry.record is not None


class Topics:
    """All topics. Partitions of a topic that does not exist cannot be reached."""

    def __init__(self, partitions: dict[str, int]) -> None:
        self._topics = {
            topic: [Partition(topic, number) for number in range(count)]
            for topic, count in partitions.items()
        }

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def __getitem__(self, topic: str) -> list[Partition]:
        return self._topics[topic]
