"""The thread that the handler runs on, so that the consumer can go on polling."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from queue import SimpleQueue
from reprlib import Repr
from threading import Event, Thread
from typing import Final, NamedTuple, TypeAlias

from confluent_kafka import Message

from delayline.errors import ConfigurationError
from delayline.headers import Header
from delayline.names import PartitionId, source
from delayline.record import Reject
from delayline.retry.answer import AttemptResult, FailedAttempt
from delayline.retry.attempt import Attempt, read_first, read_retried
from delayline.retry.ladder import RetryLater
from delayline.retry.sender import Sender
from delayline.retry.topics import RetryTopics
from delayline.wire import read_headers

_log = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[Attempt], RetryLater | None]
"""Returns None when it is done with the message, or `retry_later(...)` to have it again.

It has failed if it raises, or returns anything else.
"""

_LAZY: Final = (inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isgeneratorfunction)
_SHOWN: Final = Repr()  # short, and fit for what has no text
_SHOWN.maxother = 80


class HandledRecord(NamedTuple):
    """A consumed message, and where it is."""

    partition_id: PartitionId
    offset: int
    message: Message


class Handling:
    """A record in the worker's hands. The worker fills in how it ended, then says that it is done.

    Args:
        record: what is handled.
        outcome: what becomes of it if that is known beforehand; None: the handler is asked.
    """

    def __init__(self, record: HandledRecord, outcome: AttemptResult) -> None:
        self.record = record
        self.outcome = outcome
        self.is_abandoned = False  # its partition is another consumer's now, and so is its answer
        self.is_answered = False  # a retry or a dead letter is acknowledged
        self.error: BaseException | None = None
        self.done = Event()


class HandlerWorker:
    """Handles records in turn, and sends what their ends ask for.

    Its thread is a daemon: a handler that never returns does not keep the process alive.

    Raises:
        ConfigurationError: calling the handler would not run it.
    """

    def __init__(self, handler: Handler, sender: Sender, topics: RetryTopics) -> None:
        self._handler = _checked(handler)
        self._sender = sender
        self._topics = topics
        self._queue: SimpleQueue[Handling | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="delayline-handler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, handling: Handling) -> None:
        self._queue.put(handling)

    def stop(self) -> None:
        """Nothing after what was put; does not wait for that. Then it lets go of the brokers."""
        if self._thread.ident is None:
            self._sender.close()
        else:
            self._queue.put(None)

    def _run(self) -> None:
        while (handling := self._queue.get()) is not None:
            try:
                self._handle(handling)
            except BaseException as error:
                handling.error = error
            finally:
                handling.done.set()
        self._sender.close()

    def _handle(self, handling: Handling) -> None:
        attempt, unreadable = self._attempt(handling.record)
        outcome = handling.outcome or unreadable or self._ask(attempt)
        if outcome is not None and not handling.is_abandoned:
            self._sender.send(attempt, outcome)
            handling.is_answered = True

    def _attempt(self, record: HandledRecord) -> tuple[Attempt, FailedAttempt | None]:
        (topic, partition), message = record.partition_id, record.message
        here = source(topic, partition, record.offset)
        headers, unreadable = _headers(message)
        timestamp_ms = message.timestamp()[1]
        told = (read_retried if self._topics.is_retry(topic) else read_first)(headers, here, timestamp_ms)
        attempt = Attempt(
            topic=self._topics.origin(topic),
            key=_bytes(message.key()),
            value=_bytes(message.value()),
            headers=told.own,
            timestamp_ms=timestamp_ms,
            source=here,
            first_source=told.first_source,
            first_timestamp_ms=told.first_timestamp_ms,
            number=told.number,
            history=told.history,
        )
        return attempt, unreadable

    def _ask(self, attempt: Attempt) -> AttemptResult:
        try:
            asked: object = self._handler(attempt)
        except BaseException as error:  # on this thread, even SystemExit is no more than the handler's end
            _log.warning("attempt %d of %s failed", attempt.number, attempt.first_source, exc_info=True)
            return FailedAttempt.by(error)
        if asked is None or isinstance(asked, RetryLater):
            return asked
        failed = _odd_end(asked)
        _log.warning("attempt %d of %s failed: %s", attempt.number, attempt.first_source, failed.text)
        return failed


def _checked(handler: Handler) -> Handler:
    if not callable(handler):
        raise ConfigurationError(f"the handler is {_SHOWN.repr(handler)}: give a function")
    for function in (handler, type(handler).__call__):
        if any(is_lazy(function) for is_lazy in _LAZY):
            raise ConfigurationError(
                f"the handler {_SHOWN.repr(handler)} does nothing when it is called: give a plain function,"
                " without async and yield"
            )
    return handler


def _odd_end(returned: object) -> FailedAttempt:
    """Of a handler that may have done nothing: taken for done, its message would be lost."""
    text = f"the handler returned {_SHOWN.repr(returned)}: return None, or what retry_later(...) returns"
    if inspect.iscoroutine(returned):
        returned.close()  # it will not be awaited, on purpose
    return FailedAttempt("TypeError", text)


def _headers(message: Message) -> tuple[list[Header], FailedAttempt | None]:
    """None, and why, if they cannot be read."""
    headers = read_headers(message)
    if isinstance(headers, Reject):
        return [], FailedAttempt(headers.code, headers.detail, final=True)
    return headers or [], None


def _bytes(data: bytes | str | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data
