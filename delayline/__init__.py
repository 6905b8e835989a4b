"""Schedule messages on Kafka: the client and the wire format of the delayline service."""

from __future__ import annotations

from delayline.errors import (
    BufferTopicError,
    ClosedError,
    ConfigurationError,
    DelaylineError,
    InvalidRequestError,
    NotSentError,
    QueueFullError,
    SendError,
    UnansweredError,
)
from delayline.producer import DelayProducer
from delayline.receipt import Receipt

__all__ = [
    "BufferTopicError",
    "ClosedError",
    "ConfigurationError",
    "DelayProducer",
    "DelaylineError",
    "InvalidRequestError",
    "NotSentError",
    "QueueFullError",
    "Receipt",
    "SendError",
    "UnansweredError",
]
