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
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from confluent_kafka import KafkaException

from delayline import requests
from delayline.names import parse_source, source
from delayline.signing import Keyring
from delayline.wire import H_PARENT, H_ROOT
from node.core.outcome_record import OutcomeRecord, decode_outcome
from node.core.ports import Unanswered
from node.kafka.fetch.records import LogRecord
from node.kafka.reader import OffsetsGone, TopicReader
from ops.clients.kafka import KafkaAdmin
from ops.errors import ConflictError, UnavailableError, from_kafka
from ops.pending.content import BufferContent
from ops.pending.copies import copies
from ops.pending.journal import GIVEN_UP, TAKEN, Asked, Batch, Instead, Journal, OpenBatch, Settled
from ops.pending.line import Found, MessageLine
from ops.pending.sending import Sent, bytes_of, send
from ops.pending.signed_topic import Transactions

_WAIT_S: Final = 0.1
_ANSWER_PATIENCE_S: Final = 60.0
_HIDDEN_PATIENCE_S: Final = 60.0

RootId = tuple[int, int]
"""Partition and offset of a user's own request."""


class Gone(ConflictError):
    """Of messages that were asked for cannot be told any more what became of them."""


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
        self._answers = _Answers(self._config.client_config(), names.outcomes, outcomes_from)
        self._behind = _Behind(content, buffer_from)

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
        # Whatever the service had written back by the time of the outcomes is below these ends.
        self._behind.read(
            {_root(one): index for index, one in ended}, self._admin.ends(self._content.names.buffer)
        )
        return Taken([answers[one.cancel].outcome for one in asked], self._instead(ended, answers))

    def _instead(
        self, ended: Sequence[tuple[int, Asked]], answers: Mapping[str, OutcomeRecord]
    ) -> dict[int, Found]:
        """What cancels have ended, where that is not the row that was read."""
        rows = {index: self._row_of(one, answers[one.cancel].message) for index, one in ended}
        behind = {
            index: following(self._behind.of(_root(one)), rows[index], parse_source(one.cancel)[2])
            for index, one in ended
        }
        candidates = {one.row: _after(rows[index]) for index, found in behind.items() for one in found}
        copied = copies(self._config, self._content.names.buffer, self._ring, candidates)
        instead: dict[int, Found] = {}
        for index, one in ended:
            followed_by = [found for found in behind[index] if found.row not in copied]
            if followed_by:
                instead[index] = followed_by[-1]
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
        for found in self._content.at([(partition, offset)]):
            return found
        raise Gone(f"{named} was cancelled, and is not in the log any more")


def _root(asked: Asked) -> RootId:
    _, partition, offset = parse_source(asked.message.source)
    return partition, offset


class _Answers:
    """Reads the outcomes topic on and on."""

    def __init__(self, client_config: dict[str, Any], topic: str, begins: Mapping[int, int]) -> None:
        self.reader = _reader(client_config, topic, begins)

    def wait(self, cancels: Sequence[str]) -> dict[str, OutcomeRecord]:
        """The outcomes of all of them. Raises UnavailableError."""
        missing = {cancel.encode(): cancel for cancel in cancels}
        answers: dict[str, OutcomeRecord] = {}
        until_s = time.monotonic() + _ANSWER_PATIENCE_S
        while missing:
            for record in self._poll():
                cancel = missing.pop(record.key or b"", None)
                if cancel is not None:
                    answers[cancel] = decode_outcome(record.value or b"")
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
            raise _gone(error) from error


class _Behind:
    """Reads what the service writes back into the buffer, on and on, and keeps what is of the roots that are
    asked for.
    """

    def __init__(self, content: BufferContent, begins: Mapping[int, int]) -> None:
        self.reader = _reader(content.config.client_config(), content.names.buffer, begins)
        self._content = content
        self._found: dict[RootId, list[Found]] = {}

    def read(self, roots: Mapping[RootId, int], ends: Mapping[int, int]) -> None:
        """Reads to these ends. Raises UnavailableError where an open transaction hides them."""
        self._found = {}
        self._content.learn()
        if ends.keys() - self.reader.reached.keys():  # partitions were added: all of these is new
            begins = KafkaAdmin(self._content.config).begins(self._content.names.buffer)
            self.reader.start(begins | self.reader.reached)
        try:
            for records in self.reader.read_past(dict(ends), poll_s=_WAIT_S, patience_s=_HIDDEN_PATIENCE_S):
                for record in records:
                    self._note(record, roots)
        except OffsetsGone as error:
            raise _gone(error) from error
        except Unanswered as error:
            raise UnavailableError(
                f"{error}: somebody's transaction may be open there; run it again, nothing is lost"
            ) from error

    def _note(self, record: LogRecord, roots: Mapping[RootId, int]) -> None:
        headers = dict(record.headers)
        raw_root = headers.get(H_ROOT)
        if H_PARENT not in headers or raw_root is None:
            return
        try:
            topic, *root = parse_source(raw_root.decode("latin-1"))
            root_id = root[0], root[1]
            if root_id not in roots or topic != self._content.names.buffer:
                return
        except ValueError:
            return  # a stranger's
        found = self._content.row_of(record)
        if found is not None:
            self._found.setdefault(root_id, []).append(found)

    def of(self, root: RootId) -> Sequence[Found]:
        """What it has read of a root."""
        return self._found.get(root, ())


def following(written_back: Sequence[Found], row: Found, cancel: int) -> list[Found]:
    """What may have been on its way in place of a row when that was cancelled: it stands behind the cancel,
    and follows from what stands before it. A copy of what was there earlier follows from what the row follows
    from, or from less; a copy of what was aborted since may be among them.
    """
    after = _after(row)
    return [
        one
        for one in written_back
        if one.row[1] > cancel and one.parent is not None and after < one.parent < cancel
    ]


def _after(row: Found) -> int:
    """What is later than the row follows from something above this, and stands above it itself."""
    return row.row[1] - 1 if row.parent is None else row.parent


def _gone(error: OffsetsGone) -> Gone:
    return Gone(
        f"{error}: what became of the messages that were asked for last cannot be told any more; the export"
        " was killed, and begun again too late"
    )


def _reader(client_config: dict[str, Any], topic: str, begins: Mapping[int, int]) -> TopicReader:
    try:
        reader = TopicReader(client_config, topic)
    except KafkaException as error:
        raise from_kafka(error.args[0], "") from error
    reader.start(dict(begins))
    return reader


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
        size_bytes += _size_bytes(one.message)
        if len(batch) == most or size_bytes >= most_bytes:
            yield batch
            batch, roots, size_bytes = [], set(), 0
    if batch:
        yield batch


def _size_bytes(message: MessageLine) -> int:
    headers = [(one.key, one.value) for one in message.headers]
    return bytes_of(message.key, message.value, headers)
