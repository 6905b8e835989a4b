"""Which exit code an exception of the packages below ends with."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

import delayline
from delayline.rejects import RejectCode
from election import errors as election_errors
from node.core.ports import Unanswered
from node.http.errors import HttpPortTaken
from node.kafka.reader import TopicForbidden
from ops.errors import translated


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        (KafkaError._INVALID_ARG, 2),
        (KafkaError._UNKNOWN_TOPIC, 3),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, 3),
        (KafkaError._AUTHENTICATION, 4),
        (KafkaError.SASL_AUTHENTICATION_FAILED, 4),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, 4),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, 4),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, 4),
        (KafkaError._TRANSPORT, 6),
        (KafkaError._TIMED_OUT, 6),
        (KafkaError._ALL_BROKERS_DOWN, 6),
        (KafkaError.INVALID_REPLICATION_FACTOR, 1),
        (KafkaError.POLICY_VIOLATION, 1),
    ],
)
def test_an_error_of_kafka_has_its_exit_code(code: int, exit_code: int) -> None:
    error = translated(KafkaException(KafkaError(code)), "kafka:9092")

    assert error is not None
    assert error.exit_code == exit_code


@pytest.mark.parametrize(
    ("kind", "exit_code"),
    [
        (election_errors.Unavailable, 6),
        (election_errors.Forbidden, 4),
        (election_errors.ZnodeMissing, 3),
        (election_errors.SettingsDiffer, 5),
        (election_errors.ElectionError, 1),
    ],
)
def test_an_error_of_zookeeper_has_its_exit_code(
    kind: type[election_errors.ElectionError], exit_code: int
) -> None:
    error = translated(kind("what is wrong"))

    assert error is not None
    assert (error.exit_code, str(error)) == (exit_code, "what is wrong")


def caused(error: delayline.DelaylineError, code: int) -> delayline.DelaylineError:
    error.__cause__ = KafkaException(KafkaError(code))
    return error


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (delayline.InvalidRequestError(RejectCode.BAD_ID, "too long"), 2),
        (delayline.ConfigurationError("bad"), 2),
        (delayline.QueueFullError("full"), 6),
        (delayline.UnansweredError("no answer"), 6),
        (delayline.SendError("refused", KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)), 4),
        (delayline.BufferTopicError("no buffer"), 3),
        (caused(delayline.BufferTopicError("no buffer"), KafkaError._TRANSPORT), 6),
        (delayline.OutcomesTopicError("no outcomes"), 3),
        (caused(delayline.OutcomesTopicError("no outcomes"), KafkaError._TRANSPORT), 6),
        (caused(delayline.NoOutcomeError("no outcome"), KafkaError.TOPIC_AUTHORIZATION_FAILED), 4),
        (delayline.NoOutcomeError("closed"), 1),
    ],
)
def test_an_error_of_the_client_has_its_exit_code(error: Exception, exit_code: int) -> None:
    known = translated(error)

    assert known is not None
    assert known.exit_code == exit_code


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [(TopicForbidden("not yours"), 4), (HttpPortTaken("taken"), 5), (Unanswered("no answer"), 6)],
)
def test_an_error_of_a_node_has_its_exit_code(error: Exception, exit_code: int) -> None:
    known = translated(error)

    assert known is not None
    assert (known.exit_code, str(known)) == (exit_code, str(error))


def test_any_other_exception_is_left_as_it_is() -> None:
    assert translated(ZeroDivisionError("x")) is None


def test_a_silent_kafka_is_named_by_its_address() -> None:
    error = translated(
        KafkaException(KafkaError(KafkaError._TRANSPORT, "Failed to get: Local: Broker away")), "k:1"
    )

    assert str(error).startswith("Kafka at k:1 does not answer: Broker away; check bootstrap_servers")
