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
from delayline.outcome_kinds import OutcomeKind
from delayline.outcomes import Outcome
from delayline.producer import DelayProducer
from delayline.receipt import Receipt
from delayline.recurrence import Recurrence
from delayline.rejects import RejectCode
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
    "OutcomeKind",
    "OutcomesTopicError",
    "QueueFullError",
    "Receipt",
    "Recurrence",
    "RejectCode",
    "RetryTopicsError",
    "SendError",
    "UnansweredError",
    "cron",
    "every",
]
