"""What becomes of one request on its way to the buffer topic."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar

from confluent_kafka import KafkaError, Message

from delayline.errors import NoOutcomeError, SendError, UnansweredError
from delayline.names import source
from delayline.outcomes import Outcome, PendingOutcome

# The longest that librdkafka may hold a thread, which then sees neither Ctrl-C nor another thread's answer.
SLICE_S: Final = 0.1

OnDelivery: TypeAlias = "Callable[[Receipt], object]"
_T = TypeVar("_T")


class Receipt:
    """The answer to one request, once there is one: `source` if it was acknowledged, else `error`.

    Like a future, but without a lock: it is filled in by whichever thread polls the producer.
    """

    __slots__ = ("_awaited", "_callback", "_on_failure", "_poll", "error", "source", "told")

    def __init__(
        self,
        poll: Callable[[float], object],
        on_failure: OnDelivery,
        callback: OnDelivery | None,
        awaited: PendingOutcome | None = None,
    ) -> None:
        self._awaited = awaited
        self._poll = poll
        self._on_failure = on_failure
        self._callback = callback
        self.source: str | None = None  # topic/partition/offset
        self.error: SendError | None = None
        self.told = callback is not None  # whether the application knows of the error

    def done(self) -> bool:
        """Whether the request was acknowledged or has failed."""
        return self.source is not None or self.error is not None

    def result(self, timeout: float | None = None) -> str:
        """Wait for the acknowledgement: the request's source, `topic/partition/offset`.

        Raises:
            SendError: the brokers did not take it.
            UnansweredError: `timeout` seconds have passed without an answer; it may still be acknowledged.
        """
        deadline = deadline_after(timeout)
        while not self.done():
            if (left := deadline - time.monotonic()) <= 0:
                raise UnansweredError(
                    f"not acknowledged within {timeout} s: wait again, or see to the brokers"
                )
            self._poll(min(left, SLICE_S))
        if self.source is not None:
            return self.source
        self.told = True
        assert self.error is not None
        raise self.error

    def outcome(self, timeout: float | None = None) -> Outcome:
        """Wait for what became of the request; the producer must have been made with `outcomes=True`.

        A cancel and a reschedule always get an outcome. A schedule gets one if it replaced a pending message,
        was a duplicate, was skipped, or went to the dead-letter topic: that it was delivered, its target
        topic says.

        Raises:
            SendError: the brokers did not take the request.
            UnansweredError: `timeout` seconds have passed without an outcome; it may still come.
            NoOutcomeError: outcomes are not read, or no longer.
        """
        if self._awaited is None:
            raise NoOutcomeError("outcomes are not read: make the producer with outcomes=True")
        deadline = deadline_after(timeout)
        source = self.result(timeout)
        while self._awaited.outcome is None:
            if (left := deadline - time.monotonic()) <= 0:
                raise UnansweredError(_no_outcome(source, timeout, self._awaited.trouble))
            self._poll(0)  # reading outcomes can depend on acknowledgements that nobody else takes
            self._awaited.wait(min(left, SLICE_S))
        return self._awaited.outcome

    def answered(self, error: KafkaError | None, message: Message) -> None:
        """Take librdkafka's delivery report."""
        if error is None:
            self.source = source(
                _known(message.topic()), _known(message.partition()), _known(message.offset())
            )
            if self._awaited is not None:
                self._awaited.acknowledged(self.source)
        else:
            if self._awaited is not None:
                self._awaited.failed()
            self.error = SendError(
                f"the request was not acknowledged: {error.str()}; {advice_on(error)}", error
            )
            self._on_failure(self)
        if self._callback is not None:
            self._callback(self)


def advice_on(error: KafkaError) -> str:
    """What to do about a request that failed with `error`."""
    if error.code() == KafkaError._MSG_TIMED_OUT:
        return "see to the brokers; it may be in the buffer all the same, so repeat it only if it has an id"
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return "make it smaller, or raise max.message.bytes of the buffer topic"
    if error.fatal():
        return "the producer cannot go on: make a new one"
    return "see to the brokers, then repeat it"


def _no_outcome(source: str, timeout: float | None, trouble: str | None) -> str:
    why = "" if trouble is None else f"; the outcomes topic cannot be read at the moment: {trouble}"
    return (
        f"no outcome of {source} within {timeout} s: ask again, or see `delayline cluster status` for a lane "
        f"without a leader; a schedule need not have one{why}"
    )


def deadline_after(timeout: float | None) -> float:
    """A point on the monotonic clock; None: never."""
    return float("inf") if timeout is None else time.monotonic() + timeout


def _known(value: _T | None) -> _T:
    assert value is not None  # the report of an acknowledged message has topic, partition and offset
    return value
