"""What can go wrong for a producer of requests and for a retrying consumer, and what to do about it.

DelaylineError
├── ConfigurationError (ValueError)    the producer cannot be made like this
├── InvalidRequestError (ValueError)   the service would reject it; nothing was sent
├── NotSentError                       nothing was sent: safe to try again
│   ├── BufferTopicError               no broker answers, or the buffer topic is not there
│   ├── OutcomesTopicError             the same of the outcomes topic
│   ├── QueueFullError                 the client's queue stayed full
│   └── ClosedError                    the producer was closed
├── SendError                          the brokers did not acknowledge it, and it was given up
├── UnansweredError (TimeoutError)     it is still on its way, or nothing was decided yet
├── NoOutcomeError                     nobody reads what becomes of it
├── RetryTopicsError                   a retrying consumer's topics are missing, or cannot be made
└── ConsumeError                       a retrying consumer cannot read on
"""

from __future__ import annotations

from confluent_kafka import KafkaError

from delayline.rejects import RejectCode


class DelaylineError(Exception):
    """The root of all errors of this package."""


class ConfigurationError(DelaylineError, ValueError):
    """The configuration contradicts what a producer of requests needs, or librdkafka does not take it."""


class InvalidRequestError(DelaylineError, ValueError):
    """The service would send this request to the dead-letter topic, so it is not sent.

    `code` is the reject code that it would have there (docs/wire-format.md).
    """

    def __init__(self, code: RejectCode, detail: str) -> None:
        super().__init__(detail)
        self.code = code


class NotSentError(DelaylineError):
    """The request did not leave this process: it is safe to try again."""


class BufferTopicError(NotSentError):
    """The buffer topic cannot be reached: no broker answers, or there is no such topic."""


class OutcomesTopicError(NotSentError):
    """The outcomes topic cannot be reached: no broker answers, or there is no such topic."""


class QueueFullError(NotSentError):
    """The client's queue stayed full for `max_block_s`: the brokers take less than is scheduled."""


class ClosedError(NotSentError):
    """The producer was closed before."""


class SendError(DelaylineError):
    """The request was not acknowledged, and librdkafka has given up on it.

    After a timeout it may be in the buffer all the same. To repeat it is safe with an id (a schedule with the
    same id replaces the pending one); without, the message may arrive twice. `kafka_error` is librdkafka's.
    """

    def __init__(self, message: str, kafka_error: KafkaError) -> None:
        super().__init__(message)
        self.kafka_error = kafka_error


class UnansweredError(DelaylineError, TimeoutError):
    """Neither the brokers nor the service have answered yet. The request stands: wait again."""


class NoOutcomeError(DelaylineError):
    """What becomes of the request cannot be learned: outcomes are not read, or no longer."""


class RetryTopicsError(DelaylineError):
    """A topic that a retrying consumer needs is missing or cannot be made, or no broker answers."""


class ConsumeError(DelaylineError):
    """A retrying consumer cannot read on. What was in hand comes again. `kafka_error` is librdkafka's."""

    def __init__(self, message: str, kafka_error: KafkaError) -> None:
        super().__init__(message)
        self.kafka_error = kafka_error
