"""Taking messages out of a cluster: a cancel of each by its source, and what it has come to.

A cancel ends a message as it is when nodes apply it, and that may be another row than was read: it was moved
or parked meanwhile, or an occurrence was delivered and the next one written back. The outcome names the row
that was there. What was on its way then stands behind the cancel, and nodes drop it for that: it is what the
cancel has ended. Its parent is later than that of the row, and before the cancel. It is no copy of something
that was aborted: nodes would not know that either.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import msgspec

from delayline import requests
from delayline.names import parse_source, source
from delayline.signing import Keyring
from node.core.outcome_record import OutcomeRecord, decode_outcome
from node.kafka.fetch.records import LogRecord
from node.kafka.reader import OffsetsGone, TopicReader
from ops.clients.kafka import KafkaAdmin
from ops.errors import UnavailableError
from ops.pending.behind import Behind, RootId, Window
from ops.pending.content import BufferContent
from ops.pending.copies import copies
from ops.pending.journal import GIVEN_UP, TAKEN, Asked, Batch, Instead, Journal, OpenBatch, Settled
from ops.pending.line import Found
from ops.pending.reading import Gone, gone, reader_from
from ops.pending.sending import Sent, bytes_of_line, send
from ops.pending.signed_topic import Transactions
from store.keys import RecordId

_WAIT_S: Final = 0.1
_ANSWER_PATIENCE_S: Final = 60.0


class Taken(NamedTuple):
    """A batch that is settled: the outcomes, and what was exported in place of what was read."""

    outcomes: list[str]
    instead: dict[int, Found]


class Taker(AbstractContextManager["Taker"]):
    """Takes batches, one after the other; as a context manager it ends its readers.

    Raises OperatorError; then a later run goes on where this one has ended.
    """

    def __init__(
        self,
        content: BufferContent,
        ring: Keyring,
        journal: Journal,
        transactions: Transactions,
        opened: OpenBatch | None,
    ) -> None:
        self._content = content
        self._config = content.config
        self._ring = ring
        self._journal = journal
        self._transactions = transactions
        self._admin = KafkaAdmin(content.config)
        names = content.names
        outcomes_from = self._admin.ends(names.outcomes) if opened is None else opened.batch.outcomes_from
        buffer_from = self._admin.ends(names.buffer) if opened is None else opened.batch.buffer_from
        self._answers = _Answers(reader_from(self._config.client_config(), names.outcomes, outcomes_from))
        self._behind = Behind(content, buffer_from)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._answers.reader.close()
        self._behind.reader.close()

    def __enter__(self) -> Self:
        return self

    def ask(self, number: int, found: Sequence[Found]) -> OpenBatch:
        """Cancels messages, and writes down which, at once."""
        batch = Batch(
            number=number,
            messages=len(found),
            outcomes_from=dict(self._answers.reader.reached),
            buffer_from=dict(self._behind.reader.reached),
        )
        self._transactions.begin()
        offsets = self._cancel(found)
        opened = OpenBatch(batch)
        producer = self._transactions.producer
        self._journal.write(producer, batch)
        for index, (one, offset) in enumerate(zip(found, offsets, strict=True)):
            cancel = source(self._content.names.buffer, one.row[0], offset)
            asked = Asked(
                batch=number, index=index, cancel=cancel, row=one.row, parent=one.parent, message=one.message
            )
            self._journal.write(producer, asked)
            opened.asked.append(asked)
        self._transactions.commit()
        return opened

    def _cancel(self, found: Sequence[Found]) -> list[int]:
        """The offsets of the cancels."""
        sent = Sent()
        for index, one in enumerate(found):
            request = requests.cancel(source=one.message.source)
            headers: Any = request.headers
            send(
                self._transactions.producer,
                self._content.names.buffer,
                None,
                None,
                headers,
                one.row[0],
                sent.answers(index),
            )
        self._transactions.flush()
        if sent.error is not None:
            raise self._transactions.failure(sent.error)
        return [sent.offsets[index] for index in range(len(found))]

    def settle(self, opened: OpenBatch) -> list[str]:
        """Waits for the outcomes, finds what was ended, and writes it down."""
        answers = self._answers.wait([asked.cancel for asked in opened.asked])
        taken = self._taken(opened.asked, answers)
        number = opened.batch.number
        self._transactions.begin()
        for index, found in taken.instead.items():
            entry = Instead(batch=number, index=index, message=found.message)
            self._journal.write(self._transactions.producer, entry)
        self._journal.write(self._transactions.producer, Settled(batch=number, outcomes=taken.outcomes))
        self._transactions.commit()
        return taken.outcomes

    def give_up(self, opened: OpenBatch) -> None:
        """Settles a batch that is `Gone`, and reads on from where the log ends now."""
        self._answers.reader.start(self._admin.ends(self._content.names.outcomes))
        self._behind.reader.start(self._admin.ends(self._content.names.buffer))
        outcomes = [GIVEN_UP] * len(opened.asked)
        self._transactions.begin()
        self._journal.write(
            self._transactions.producer, Settled(batch=opened.batch.number, outcomes=outcomes)
        )
        self._transactions.commit()

    def _taken(self, asked: Sequence[Asked], answers: Mapping[str, OutcomeRecord]) -> Taken:
        ended = [(index, one) for index, one in enumerate(asked) if answers[one.cancel].outcome == TAKEN]
        return Taken([answers[one.cancel].outcome for one in asked], self._instead(ended, answers))

    def _instead(
        self, ended: Sequence[tuple[int, Asked]], answers: Mapping[str, OutcomeRecord]
    ) -> dict[int, Found]:
        """What cancels have ended, where that is not the row that was read."""
        rows = {index: self._row_of(one, answers[one.cancel].message) for index, one in ended}
        windows = {_root(one): Window.of(rows[index], parse_source(one.cancel)[2]) for index, one in ended}
        # Whatever the service had written back by the time of the outcomes is below the ends that are now.
        self._behind.read(windows)
        candidates = {row: window.after for root, window in windows.items() for row in self._behind.of(root)}
        copied = copies(self._config, self._content.names.buffer, self._ring, candidates)
        followed_by = {
            root: [row for row in self._behind.of(root) if row not in copied][-1:] for root in windows
        }
        read = {found.row: found for found in self._content.at(chain.from_iterable(followed_by.values()))}
        instead: dict[int, Found] = {}
        for index, one in ended:
            rest = followed_by[_root(one)]
            if rest:
                instead[index] = self._expected(read, *rest)
            elif answers[one.cancel].message is None:
                raise Gone(f"{one.message.source} was cancelled, and what it was cannot be found")
            elif rows[index].row != one.row:
                instead[index] = rows[index]
        return instead

    def _row_of(self, asked: Asked, named: str | None) -> Found:
        """The row that was there when the cancel was applied."""
        if named is not None and parse_source(named)[1:] != asked.row:
            return self._row(named)
        return Found(asked.row, _root(asked)[1], asked.parent, asked.message)

    def _row(self, named: str) -> Found:
        _, partition, offset = parse_source(named)
        found = {one.row: one for one in self._content.at([(partition, offset)])}
        return self._expected(found, (partition, offset))

    def _expected(self, found: Mapping[RecordId, Found], row: RecordId) -> Found:
        if row not in found:
            name = source(self._content.names.buffer, *row)
            raise Gone(f"{name} was cancelled, and is not in the log any more")
        return found[row]


def _root(asked: Asked) -> RootId:
    _, partition, offset = parse_source(asked.message.source)
    return partition, offset


class _Answers:
    """Reads the outcomes topic on and on."""

    def __init__(self, reader: TopicReader) -> None:
        self.reader = reader

    def wait(self, cancels: Sequence[str]) -> dict[str, OutcomeRecord]:
        """The outcomes of all of them. Raises UnavailableError."""
        missing = {cancel.encode(): cancel for cancel in cancels}
        answers: dict[str, OutcomeRecord] = {}
        until_s = time.monotonic() + _ANSWER_PATIENCE_S
        while missing:
            for record in self._poll():
                cancel, answer = missing.get(record.key or b""), _answer_of(record)
                if cancel is not None and answer is not None:
                    del missing[cancel.encode()]
                    answers[cancel] = answer
                    until_s = time.monotonic() + _ANSWER_PATIENCE_S
            if missing and time.monotonic() > until_s:
                raise UnavailableError(
                    f"{len(missing)} cancels have had no answer for {_ANSWER_PATIENCE_S:g} s: see 'delayline"
                    " cluster status' for a lane without a leader, and run it again; nothing is lost"
                )
        return answers

    def _poll(self) -> list[LogRecord]:
        try:
            return self.reader.poll(_WAIT_S)
        except OffsetsGone as error:
            raise gone(error) from error


def _answer_of(record: LogRecord) -> OutcomeRecord | None:
    """What an outcome says. None if it is none: no node has written it, and the true one comes."""
    try:
        told = decode_outcome(record.value or b"")
        if told.message is not None:
            parse_source(told.message)
    except (msgspec.MsgspecError, ValueError):
        return None
    return told


def batches(found: Iterator[Found], most: int, most_bytes: int) -> Iterator[list[Found]]:
    """As many as one transaction takes; of a message the first row alone."""
    batch: list[Found] = []
    roots: set[RootId] = set()
    size_bytes = 0
    for one in found:
        root = one.row[0], one.root
        if root in roots:
            continue
        batch.append(one)
        roots.add(root)
        size_bytes += bytes_of_line(one.message)
        if len(batch) == most or size_bytes >= most_bytes:
            yield batch
            batch, roots, size_bytes = [], set(), 0
    if batch:
        yield batch
