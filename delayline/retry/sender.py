"""How the answer to a failure gets to the brokers, however large its message is."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from delayline.errors import BufferTopicError, InvalidRequestError, RetryTopicsError, SendError
from delayline.producer import DelayProducer
from delayline.receipt import Receipt
from delayline.rejects import RejectCode
from delayline.requests import BufferRecord
from delayline.retry.answer import FailedAttempt, LetterRecord, answer, letters
from delayline.retry.attempt import Attempt
from delayline.retry.config import sending
from delayline.retry.ladder import Ladder, RetryLater
from delayline.retry.topics import RetryTopics

_log = logging.getLogger(__name__)

_MOST_BYTES: Final = 1_000_000_000  # librdkafka's largest message.max.bytes


class Sender:
    """Sends answers to the service; those that its buffer is too small for, straight to the dead letters.

    Args:
        config: the consumer's configuration.
        cluster: the name of the delay service.

    Raises:
        ConfigurationError: librdkafka does not take what the configuration says of sending.
    """

    def __init__(
        self, config: Mapping[str, object], cluster: str, ladder: Ladder, topics: RetryTopics
    ) -> None:
        self._requests = DelayProducer(sending(config), cluster=cluster)
        self._letters = _LetterProducer(sending(config))
        self._ladder = ladder
        self._topics = topics

    def open(self) -> None:
        """Connect, so that no brokers are missed first when a message has failed; RetryTopicsError."""
        try:
            self._requests.find_buffer()
        except BufferTopicError as error:
            raise RetryTopicsError(str(error)) from error

    def send(self, attempt: Attempt, outcome: FailedAttempt | RetryLater) -> None:
        """Returns when the answer is acknowledged.

        Raises:
            SendError: it was not.
            RetryTopicsError: the topic of the dead letters is too small for any.
        """
        now_ms = time.time_ns() // 1_000_000
        for is_short in (False, True):
            request = answer(attempt, outcome, self._ladder, self._topics, now_ms, is_short=is_short)
            assert request is not None, "an outcome has an answer"
            if self._takes(request):
                return
        _log.warning("%s is too large for the buffer: it becomes a dead letter", attempt.first_source)
        for letter in letters(attempt, outcome, self._topics, now_ms):
            if self._letters.takes(letter):
                return
        raise RetryTopicsError(
            f"topic {self._topics.dead_letters(attempt.topic)} takes not even a letter without key, value and"
            " headers: raise its max.message.bytes"
        )

    def close(self) -> None:
        """Let go of the brokers; nothing is on its way, since `send` waits."""
        self._requests.close()
        self._letters.close()

    def _takes(self, request: BufferRecord) -> bool:
        try:
            return _is_acknowledged(self._requests.send(request))
        except InvalidRequestError as error:
            if error.code == RejectCode.TOO_LARGE:
                return False
            raise


class _LetterProducer:
    """Connects with its first letter: few consumers have one."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = {
            "logger": _log,
            "compression.codec": "zstd",  # it may have been compressed when its own topic took it
            **config,
            "message.max.bytes": _MOST_BYTES,  # the topic's limit is the one that counts
            "enable.idempotence": True,
            "partitioner": "murmur2_random",  # the service's
            "allow.auto.create.topics": False,
        }
        self._producer: Producer | None = None

    def takes(self, letter: LetterRecord) -> bool:
        """Whether its topic takes one so large; returns when it is acknowledged, SendError if it is not."""
        if self._producer is None:
            self._producer = Producer(self._config)
        receipt = Receipt(self._producer.poll, _tell_nobody, None)
        headers: Any = letter.headers
        try:
            self._producer.produce(
                letter.topic, letter.value, letter.key, headers=headers, on_delivery=receipt.answered
            )
        except KafkaException as error:
            if _is_too_large(error.args[0]):
                return False
            raise SendError(f"the dead letter was not sent: {error.args[0].str()}", error.args[0]) from error
        return _is_acknowledged(receipt)

    def close(self) -> None:
        self._producer = None  # librdkafka ends with the last reference


def _tell_nobody(_: Receipt) -> None:
    """Whoever waits for the receipt is told."""


def _is_acknowledged(receipt: Receipt) -> bool:
    """False: it is too large for the brokers."""
    try:
        receipt.result()
    except SendError as error:
        if _is_too_large(error.kafka_error):
            return False
        raise
    return True


def _is_too_large(error: KafkaError) -> bool:
    return error.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)
