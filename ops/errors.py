"""What can go wrong for an operator, each with the exit code that a script can tell it by.

    OperatorError              1
    ├── ConfigError            2   a setting, option or argument is unknown, missing or wrong
    ├── NotFoundError          3   no such topic, cluster, message, checkpoint
    ├── NotAuthorisedError     4   Kafka or ZooKeeper refuses who asks
    ├── ConflictError          5   it contradicts what is there, or comes too late
    └── UnavailableError       6   Kafka, ZooKeeper or Spark does not answer

The message is one line: what is wrong, where, what to do.
"""

from __future__ import annotations

from typing import ClassVar

from confluent_kafka import KafkaError, KafkaException

import election.errors
import pipeline.errors
from delayline import (
    BufferTopicError,
    ConfigurationError,
    DelaylineError,
    InvalidRequestError,
    NoOutcomeError,
    OutcomesTopicError,
    QueueFullError,
    SendError,
    UnansweredError,
)
from election.errors import ElectionError
from node.core.ports import Unanswered
from node.http.errors import HttpPortTaken
from node.kafka.errors import words
from node.kafka.reader import TopicForbidden
from pipeline.errors import KafkaFailed, PipelineError


class OperatorError(Exception):
    """A command could not do what it was asked to; `exit_code` is the process's."""

    exit_code: ClassVar[int] = 1


class ConfigError(OperatorError):
    """A setting is unknown, missing or wrong; the message says where it was written and what to write."""

    exit_code = 2


class NotFoundError(OperatorError):
    """The thing asked about does not exist."""

    exit_code = 3


class NotAuthorisedError(OperatorError):
    """Kafka or ZooKeeper knows who asks, or does not, and refuses."""

    exit_code = 4


class ConflictError(OperatorError):
    """What was asked contradicts what is there, or comes too late."""

    exit_code = 5


class UnavailableError(OperatorError):
    """Kafka, ZooKeeper or Spark does not answer in time."""

    exit_code = 6


# By name: several of them are "private" attributes of KafkaError.
_UNAUTHORISED = frozenset({"_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED"})
_MISSING = frozenset({"_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_OR_PART"})
_REFUSED_BY_CLIENT = frozenset({"_INVALID_ARG", "_CONFLICT"})


def from_kafka(error: KafkaError, bootstrap_servers: str) -> OperatorError:
    """What an error of the Kafka client means for the operator."""
    text = words(error)
    name = error.name()
    if name in _UNAUTHORISED or name.endswith("_AUTHORIZATION_FAILED"):
        return NotAuthorisedError(
            f"Kafka at {bootstrap_servers} refuses: {text}; check security.protocol and sasl.* below kafka:,"
            " and what this user may do"
        )
    if name in _MISSING:
        return NotFoundError(f"Kafka at {bootstrap_servers}: {text}")
    if name in _REFUSED_BY_CLIENT:
        return ConfigError(f"kafka: {text}")
    if name.startswith("_") or error.retriable():  # underscore: the client's own, so no broker has answered
        return UnavailableError(
            f"Kafka at {bootstrap_servers} does not answer: {text}; check bootstrap_servers, that the brokers"
            " are up, and security.protocol below kafka:"
        )
    return OperatorError(f"Kafka at {bootstrap_servers}: {text}")


_OF_ELECTION: dict[type[ElectionError], type[OperatorError]] = {
    election.errors.Unavailable: UnavailableError,
    election.errors.Forbidden: NotAuthorisedError,
    election.errors.ZnodeMissing: NotFoundError,
    election.errors.ZnodeExists: ConflictError,
    election.errors.ZnodeChanged: ConflictError,
    election.errors.SettingsDiffer: ConflictError,
    election.errors.RequestWaits: ConflictError,
    election.errors.ChrootMissing: NotFoundError,
    election.errors.PortTaken: ConflictError,
}


_OF_PIPELINE: dict[type[PipelineError], type[OperatorError]] = {
    pipeline.errors.WrongInput: ConfigError,
    pipeline.errors.NewerRecord: ConflictError,
    pipeline.errors.Conflict: ConflictError,
    pipeline.errors.MissingInKafka: NotFoundError,
    pipeline.errors.NotAllowed: NotAuthorisedError,
    pipeline.errors.KafkaSilent: UnavailableError,
}


_OF_NODE: tuple[tuple[type[Exception], type[OperatorError]], ...] = (
    (TopicForbidden, NotAuthorisedError),
    (Unanswered, UnavailableError),
    (HttpPortTaken, ConflictError),
)
"""The first that it is an instance of counts."""


def translated(error: Exception, bootstrap_servers: str = "") -> OperatorError | None:
    """The operator's error for an exception of the packages below; None for any other exception."""
    if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
        return from_kafka(error.args[0], bootstrap_servers)
    if isinstance(error, ElectionError):
        return _OF_ELECTION.get(type(error), OperatorError)(str(error))
    if isinstance(error, PipelineError):
        return _of_pipeline(error)
    if isinstance(error, DelaylineError):
        return _of_client(error)(str(error))
    kind = next((kind for of_node, kind in _OF_NODE if isinstance(error, of_node)), None)
    return None if kind is None else kind(str(error))


def _of_pipeline(error: PipelineError) -> OperatorError:
    if isinstance(error, KafkaFailed):
        return from_kafka(error.kafka_error, error.bootstrap_servers)
    return _OF_PIPELINE.get(type(error), OperatorError)(str(error))


def _of_client(error: DelaylineError) -> type[OperatorError]:
    if isinstance(error, InvalidRequestError | ConfigurationError):
        return ConfigError
    if isinstance(error, UnansweredError | QueueFullError):
        return UnavailableError
    if isinstance(error, SendError):
        return type(from_kafka(error.kafka_error, ""))
    if isinstance(error, NoOutcomeError) and isinstance(error.__cause__, KafkaException):
        return type(from_kafka(error.__cause__.args[0], ""))
    if isinstance(error, BufferTopicError | OutcomesTopicError):
        # Raised from the client's exception if no broker answered, of its own if the topic is not there.
        return UnavailableError if isinstance(error.__cause__, KafkaException) else NotFoundError
    return OperatorError
