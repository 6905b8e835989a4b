"""A consumer whose failures come back on a ladder of delays, and end as dead letters (docs/retry.md)."""

from __future__ import annotations

from delayline.retry.attempt import Attempt, Failure
from delayline.retry.consumer import RetryingConsumer
from delayline.retry.ladder import ROCKETMQ, Ladder, RetryLater, retry_later
from delayline.retry.topics import create_topics
from delayline.retry.worker import Handler

__all__ = [
    "ROCKETMQ",
    "Attempt",
    "Failure",
    "Handler",
    "Ladder",
    "RetryLater",
    "RetryingConsumer",
    "create_topics",
    "retry_later",
]
