"""Reads the outcomes topic for one producer, on a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from delayline.errors import ClosedError, ConfigurationError, OutcomesTopicError
from delayline.outcomes import Outcomes, PendingOutcome
from delayline.receipt import SLICE_S

_log = logging.getLogger(__name__)

_BATCH_MESSAGES: Final = 1_000
_CLOSE_S: Final = 5.0
AGAIN_S: Final = 10.0

_FIXED: Final[dict[str, object]] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",  # anything else may skip outcomes in silence
    "allow.auto.create.topics": False,
    "queued.max.messages.kbytes": 16_384,  # bounds memory while reading pauses
}
# A producer's callbacks are not to be called from the reader's thread, and a consumer knows none of some.
_PRODUCERS_OWN: Final = (
    "on_delivery",
    "dr_cb",
    "error_cb",
    "throttle_cb",
    "stats_cb",
    "statistics.interval.ms",
)
_LOGS_ERRORS: Final = 3  # as syslog; warnings would be of the producer's properties, which a consumer ignores

_PLACE_LOST: Final = (
    KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError._AUTO_OFFSET_RESET,  # what auto.offset.reset=error turns it into
)
_FINAL: Final = (KafkaError.TOPIC_AUTHORIZATION_FAILED, *_PLACE_LOST)


class OutcomeReader:
    """Reads what is decided of requests made after `expect`; it begins at the first such call.

    Should it lose its place, since the topic was made anew or deleted what it had not read, nobody learns
    what became of the requests until then; it begins again at a later call.

    Args:
        config: the librdkafka configuration of the producer.
        topic: the outcomes topic.
        max_block_s: how long an `expect` that begins may wait for each answer of a broker.
    """

    def __init__(self, config: Mapping[str, Any], topic: str, max_block_s: float) -> None:
        self._config = _consumer_config(config)
        self._topic = topic
        self._max_block_s = max_block_s
        self._outcomes = Outcomes()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._place_lost = False
        self._again_at_s = 0.0
        self._stopping = False

    def expect(self) -> PendingOutcome:
        """Where the outcome of a request will be that is sent after this call.

        Raises:
            OutcomesTopicError: the topic cannot be reached.
            ClosedError: it was stopped before.
        """
        with self._starting:
            if self._thread is None:
                self._start()
            elif self._place_lost and time.monotonic() >= self._again_at_s:
                self._start_again()
        return self._outcomes.expect()

    def _start_again(self) -> None:
        """What cannot be read holds no request up: a little later it is tried again."""
        try:
            self._start()
        except OutcomesTopicError as error:
            _log.warning("outcomes cannot be read at the moment: %s", error)
            self._again_at_s = time.monotonic() + AGAIN_S

    def stop(self) -> None:
        """Ask the thread to end; takes no lock, so that a finalizer may call it wherever it runs."""
        self._stopping = True

    def close(self) -> None:
        """End the thread; whoever still waits for an outcome gets NoOutcomeError."""
        self.stop()
        with self._starting:
            thread = self._thread
        if thread is not None:
            thread.join(_CLOSE_S)

    def _start(self) -> None:
        if self._stopping:
            raise ClosedError("the producer is closed: make a new one")
        consumer = self._consumer()
        try:
            # Before the request is sent, whose outcome can then only come after these offsets.
            consumer.assign(self._ends(consumer))
        except BaseException:
            consumer.close()
            raise
        self._outcomes, self._place_lost = Outcomes(), False
        self._thread = threading.Thread(
            target=self._run,
            args=(consumer, self._outcomes),
            name=f"outcomes of {self._topic}",
            daemon=True,
        )
        self._thread.start()

    def _consumer(self) -> Consumer:
        try:
            return Consumer(self._config)
        except (KafkaException, TypeError, ValueError) as error:
            raise ConfigurationError(f"librdkafka does not read outcomes so: {error}") from error

    def _ends(self, consumer: Consumer) -> list[TopicPartition]:
        try:
            topic = consumer.list_topics(self._topic, self._max_block_s).topics[self._topic]
            if topic.error is not None:
                raise OutcomesTopicError(
                    f"topic {self._topic}: {topic.error.str()}; make it with `delayline topics create`, "
                    "or use the producer without outcomes"
                )
            ends = [TopicPartition(self._topic, partition) for partition in topic.partitions]
            for end in ends:
                _, end.offset = consumer.get_watermark_offsets(end, timeout=self._max_block_s)
        except KafkaException as error:
            raise OutcomesTopicError(
                f"topic {self._topic}: not reached within {self._max_block_s} s: "
                f"see to the brokers ({error.args[0].str()})"
            ) from error
        return ends

    def _run(self, consumer: Consumer, outcomes: Outcomes) -> None:
        try:
            while not self._stopping:
                self._read(consumer, outcomes)
            outcomes.end("outcomes are no longer read: the producer was closed or dropped; ask before that")
        except Exception as error:
            text, code = str(error), None
            if isinstance(error, KafkaException):
                text, code = error.args[0].str(), error.args[0].code()
            _log.warning("topic %s is no longer read: %s", self._topic, text)
            self._place_lost = code in _PLACE_LOST
            then = "those of later requests are read" if self._place_lost else "make a new producer"
            outcomes.end(f"topic {self._topic} is no longer read: {text}; {then}", error)
        finally:
            consumer.close()

    def _read(self, consumer: Consumer, outcomes: Outcomes) -> None:
        if not outcomes.wait_for_room(SLICE_S):
            return
        first = consumer.poll(SLICE_S)
        if first is None:
            return
        # consume() alone would wait its whole timeout for a batch that does not fill.
        polled = [first, *consumer.consume(_BATCH_MESSAGES - 1, 0)]
        outcomes.take([_record(message) for message in polled if message.error() is None])
        for message in polled:
            _heed(message, outcomes)


def _heed(message: Message, outcomes: Outcomes) -> None:
    error = message.error()
    if error is None:
        outcomes.trouble = None
    elif error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
        return  # the client asks for its group all the same; it reads without
    elif error.code() in _FINAL:
        raise KafkaException(error)
    elif outcomes.trouble != error.str():  # the client tries again by itself
        outcomes.trouble = error.str()
        _log.warning("outcomes cannot be read at the moment: %s", error.str())


def _consumer_config(config: Mapping[str, Any]) -> dict[str, Any]:
    shared = {name: value for name, value in config.items() if name not in _PRODUCERS_OWN}
    quiet = {"log_level": min(int(config.get("log_level", _LOGS_ERRORS)), _LOGS_ERRORS)}
    # The client asks for a group; it is never joined.
    return {"group.id": "delayline-outcomes"} | shared | quiet | _FIXED


def _record(message: Message) -> tuple[bytes, bytes]:
    return message.key() or b"", message.value() or b""
