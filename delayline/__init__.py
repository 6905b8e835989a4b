"""Schedule messages on Kafka: the client and the wire format of the delayline service."""

from __future__ import annotations

from delayline.errors import (
    BufferTopicError,
    ClosedError,
    ConfigurationError,
    ConsumeError,
    DelaylineError,
    InvalidRequestError,
    NoOutcomeError,
    NotSentError,
    OutcomesTopicError,
    QueueFullError,
    RetryTopicsError,
    SendError,
    UnansweredError,
)
from delayline.outcomes import Outcome
from delayline.producer import DelayProducer
from delayline.receipt import Receipt
from delayline.recurrence import Recurrence
from delayline.requests import cron, every

__all__ = [
    "BufferTopicError",
    "ClosedError",
    "ConfigurationError",
    "ConsumeError",
    "DelayProducer",
    "DelaylineError",
    "InvalidRequestError",
    "NoOutcomeError",
    "NotSentError",
    "Outcome",
    "OutcomesTopicError",
    "QueueFullError",
    "Receipt",
    "Recurrence",
    "RetryTopicsError",
    "SendError",
    "UnansweredError",
    "cron",
    "every",
]
