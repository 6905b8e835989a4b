"""A producer of requests: confluent-kafka's, set up so that nothing is lost, doubled or misplaced."""

from __future__ import annotations

import logging
import time
import weakref
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka import KafkaError, KafkaException, Producer

from delayline import requests
from delayline.errors import (
    BufferTopicError,
    ClosedError,
    ConfigurationError,
    InvalidRequestError,
    QueueFullError,
    SendError,
    UnansweredError,
)
from delayline.names import ClusterNames, parse_source
from delayline.outcome_reader import OutcomeReader
from delayline.receipt import SLICE_S, OnDelivery, Receipt, advice_on, deadline_after
from delayline.recurrence import Recurrence
from delayline.rejects import RejectCode
from delayline.requests import BufferRecord, Data, Duration, Time, UserHeaders

_log = logging.getLogger(__name__)

# What the wire format and exactly-once depend on. Configuration may repeat these values, not change them.
FIXED: Final[dict[str, object]] = {
    "enable.idempotence": True,  # a retry must not put a request into the buffer twice
    "acks": "all",  # acknowledged means: on every replica in sync
    "partitioner": "murmur2_random",  # a key that is the id lands in the partition of the id
    "allow.auto.create.topics": False,  # a buffer topic made by accident has the wrong settings
}
_REFUSED: Final = {
    "transactional.id": "requests are not transactional: an open transaction holds up the service",
    "request.required.acks": "use none: acks is all",
}

_ANY_PARTITION: Final = -1  # librdkafka's word for: ask the partitioner

# Failures kept for `flush` to raise: bounded, for an application that neither flushes nor looks.
_FAILURES_KEPT: Final = 1_000


class DelayProducer:
    """Schedules, cancels and reschedules messages of one cluster. Any thread may call any method.

    Requests are sent in the background; each call returns a `Receipt` at once. Callbacks run in whichever
    thread is inside a method of the producer or of a receipt, and what they raise comes out there. As a
    context manager it closes, and so flushes, at the end.

    Args:
        config: bootstrap servers ("host:port,..."), or a librdkafka configuration with `bootstrap.servers`.
        cluster: the name of the delay service.
        max_block_s: how long a call may wait: for the first answer of a broker, or for room in the queue.
        outcomes: whether `Receipt.outcome` is to be asked what became of requests. The outcomes topic is then
            read from the first request on, by a thread of its own.
        partitions: of the buffer, as many as the cluster's settings say, by which an id's partition is told.
            Only needed where somebody has added some to the topic.

    Raises:
        ConfigurationError: a setting that requests depend on is changed, or librdkafka does not take one.
    """

    def __init__(
        self,
        config: str | Mapping[str, object],
        *,
        cluster: str = "delay",
        max_block_s: float = 30.0,
        outcomes: bool = False,
        partitions: int | None = None,
    ) -> None:
        self._partitions = partitions
        self._names = _names(cluster)
        self._topic = self._names.buffer
        self._max_block_s = max_block_s
        given = _given(config)
        self._producer: Producer | None = _producer(given)
        self._reader: OutcomeReader | None = None
        if outcomes:
            self._reader = OutcomeReader(given, self._names.outcomes, max_block_s)
            weakref.finalize(self, self._reader.stop)  # of a producer that is dropped without being closed
        self._buffer_found = False
        self._failures: deque[Receipt] = deque(maxlen=_FAILURES_KEPT)

    def schedule(  # noqa: PLR0913 - each argument is a header
        self,
        topic: str,
        value: Data,
        *,
        key: Data = None,
        headers: UserHeaders | None = None,
        deliver_at: Time | None = None,
        after: Duration | None = None,
        level: int | None = None,
        id: str | None = None,
        expire_at: Time | None = None,
        partition: int | None = None,
        repeat: Recurrence | None = None,
        if_exists: str = "replace",
        on_delivery: OnDelivery | None = None,
    ) -> Receipt:
        """Deliver `value` to `topic` later; arguments as `delayline.requests.schedule`.

        `on_delivery` is called with the receipt once the request is acknowledged (or has failed).

        Raises:
            InvalidRequestError: what the service would reject.
            NotSentError: no broker, no buffer topic, no room in the queue, or closed.
        """
        if self._names.is_forbidden_target(topic):
            raise InvalidRequestError(
                RejectCode.TARGET_FORBIDDEN,
                f"{topic} is the service's own or internal to Kafka: choose another topic",
            )
        request = requests.schedule(
            topic,
            value,
            key=key,
            headers=headers,
            deliver_at=deliver_at,
            after=after,
            level=level,
            id=id,
            expire_at=expire_at,
            partition=partition,
            repeat=repeat,
            if_exists=if_exists,
        )
        return self.send(request, on_delivery=on_delivery)

    def cancel(
        self,
        id: str | None = None,
        *,
        source: Receipt | str | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Receipt:
        """Do not deliver the pending message with this id, or the one that a request asked for, which its
        receipt or its source names; the receipt's outcome says if it was in time. A receipt without an answer
        is waited for.

        Raises:
            InvalidRequestError: what the service would reject.
            SendError: the request whose receipt that is was not sent.
            NotSentError: as `schedule`.
        """
        if source is None:
            return self.send(requests.cancel(id), on_delivery=on_delivery)
        named = source if isinstance(source, str) else source.result(self._max_block_s)
        request = requests.cancel(id, source=named)
        if parse_source(named)[0] != self._topic:
            raise InvalidRequestError(
                RejectCode.BAD_SOURCE, f"{named} is not in {self._topic}: use its own cluster's producer"
            )
        return self.send(request, on_delivery=on_delivery)

    def reschedule(
        self,
        id: str,
        *,
        deliver_at: Time | None = None,
        after: Duration | None = None,
        level: int | None = None,
        expire_at: Time | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Receipt:
        """Deliver the pending message with this id at another time; errors as `schedule`."""
        request = requests.reschedule(
            id, deliver_at=deliver_at, after=after, level=level, expire_at=expire_at
        )
        return self.send(request, on_delivery=on_delivery)

    def run_now(self, id: str, *, on_delivery: OnDelivery | None = None) -> Receipt:
        """Deliver the pending message with this id at once; errors as `schedule`."""
        return self.send(requests.run_now(id), on_delivery=on_delivery)

    def send(self, request: BufferRecord, *, on_delivery: OnDelivery | None = None) -> Receipt:
        """Send a request made by `delayline.requests`."""
        producer = self._open()
        self.find_buffer()
        awaited = None if self._reader is None else self._reader.expect()
        receipt = Receipt(producer.poll, self._failures.append, on_delivery, awaited)
        try:
            self._enqueue(producer, request, receipt)
        except BaseException:
            if awaited is not None:
                awaited.failed()
            raise
        producer.poll(0)
        return receipt

    def find_buffer(self) -> None:
        """Look the buffer topic up, once; without it the first request does.

        librdkafka would queue requests for a missing topic, and fail them later.

        Raises:
            NotSentError: no broker, no buffer topic, or closed.
        """
        producer = self._open()
        if self._buffer_found:
            return
        try:
            topic = producer.list_topics(self._topic, self._max_block_s).topics[self._topic]
        except KafkaException as error:
            raise BufferTopicError(
                f"no broker answered within {self._max_block_s} s: check bootstrap.servers "
                f"({error.args[0].str()})"
            ) from error
        if topic.error is not None:
            raise BufferTopicError(
                f"topic {self._topic}: {topic.error.str()}; check the cluster's name, "
                "or make it with `delayline topics create`"
            )
        self._buffer_found = True

    def poll(self, timeout: float = 0.0) -> None:
        """Run the callbacks that are ready, waiting up to `timeout` seconds; other calls run them too."""
        self._open().poll(timeout)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until every request is answered: `delivery.timeout.ms` (librdkafka's 5 minutes) at most.

        Raises:
            SendError: requests without a callback, whose receipts nobody has looked at, failed.
            UnansweredError: `timeout` seconds have passed; the requests are still on their way.
        """
        producer, deadline = self._open(), deadline_after(timeout)
        while left := len(producer):
            if (remaining := deadline - time.monotonic()) <= 0:
                raise UnansweredError(
                    f"{left} requests unanswered after {timeout} s: wait again, or see to the brokers"
                )
            producer.flush(min(remaining, SLICE_S))
        self._raise_failures()

    def close(self, timeout: float | None = None) -> None:
        """Flush (errors as there), then take no more requests and read no more outcomes.

        Closing twice is no error.
        """
        if self._producer is None:
            return
        try:
            self.flush(timeout)
        finally:
            # Not Producer.close(), which can block for ever: librdkafka ends with the last reference.
            self._producer = None
            if self._reader is not None:
                self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> Producer:
        if self._producer is None:
            raise ClosedError("the producer is closed: make a new one")
        return self._producer

    def _enqueue(self, producer: Producer, request: BufferRecord, receipt: Receipt) -> None:
        deadline = deadline_after(self._max_block_s)
        headers: Any = request.headers  # the client's type says str | bytes, invariantly
        count = self._partitions
        chosen = request.own_partition if count is None else request.partition(count)
        partition = _ANY_PARTITION if chosen is None else chosen
        while True:
            try:
                producer.produce(
                    self._topic,
                    partition=partition,
                    key=request.key,
                    value=request.value,
                    headers=headers,
                    on_delivery=receipt.answered,
                )
                return
            except BufferError:
                if time.monotonic() > deadline:
                    raise QueueFullError(
                        f"the queue stayed full for {self._max_block_s} s: see to the brokers, schedule more "
                        "slowly, or raise queue.buffering.max.messages and queue.buffering.max.kbytes"
                    ) from None
                producer.poll(SLICE_S)
            except KafkaException as error:
                raise _local_error(error.args[0]) from error

    def _raise_failures(self) -> None:
        errors = []
        while self._failures:
            receipt = self._failures.popleft()
            if receipt.error is not None and not receipt.told:
                errors.append(receipt.error)
        if errors:
            raise SendError(
                f"{len(errors)} of the requests failed; the first: {errors[0]}", errors[0].kafka_error
            )


def _names(cluster: str) -> ClusterNames:
    try:
        return ClusterNames(cluster)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None


def _given(config: str | Mapping[str, object]) -> dict[str, Any]:
    given: dict[str, Any] = {"bootstrap.servers": config} if isinstance(config, str) else dict(config)
    if not given.get("bootstrap.servers"):
        raise ConfigurationError("bootstrap.servers is missing: give the brokers as host:port,host:port")
    for name, value in FIXED.items():
        if name in given and str(given[name]).lower() not in _accepted(value):
            raise ConfigurationError(f"{name} is {given[name]!r}: leave it out, requests need {value!r}")
    for name, why in _REFUSED.items():
        if name in given:
            raise ConfigurationError(f"{name} cannot be set: {why}")
    given.setdefault("logger", _log)  # librdkafka's own lines, which would go to stderr
    return given


def _producer(given: dict[str, Any]) -> Producer:
    try:
        return Producer(given | FIXED)
    except (KafkaException, TypeError, ValueError) as error:
        text = error.args[0].str() if isinstance(error, KafkaException) else str(error)
        raise ConfigurationError(f"librdkafka does not take this configuration: {text}") from error


def _accepted(value: object) -> tuple[str, ...]:
    return ("all", "-1") if value == "all" else (str(value).lower(),)


def _local_error(error: KafkaError) -> InvalidRequestError | SendError:
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return InvalidRequestError(
            RejectCode.TOO_LARGE,
            "the message is larger than message.max.bytes: make it smaller, or raise that setting",
        )
    return SendError(f"the request was not sent: {error.str()}; {advice_on(error)}", error)
