"""Why a pipeline cannot go on. The message is one line: what is wrong, where, what to do."""

from __future__ import annotations

from confluent_kafka import KafkaError


class PipelineError(Exception):
    """Its kinds are what a caller can do something about."""


class WrongInput(PipelineError):
    """A setting or a file is not what it has to be."""


class NewerRecord(PipelineError):
    """A newer version has written what is to be read."""


class MissingInKafka(PipelineError):
    """What is asked about does not exist."""


class NotAllowed(PipelineError):
    """Kafka does not let this user see what is asked about."""


class Conflict(PipelineError):
    """What was asked contradicts what is there, or comes too late."""


class KafkaSilent(PipelineError):
    """Kafka does not tell in time."""


class SendingEnded(PipelineError):
    """What a task was to send is not all there, and some of it may be: look, before it is sent again."""


class KafkaFailed(PipelineError):
    """Kafka refuses, or does not answer."""

    def __init__(self, error: KafkaError, bootstrap_servers: str) -> None:
        super().__init__(f"Kafka at {bootstrap_servers}: {error}")
        self.kafka_error = error
        self.bootstrap_servers = bootstrap_servers
