"""What brokers are asked until they know: each kind of doubt ends, and an answer is taken as it is."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from node.kafka import topics
from node.kafka.topics import Answers, ask


class Brokers:
    """They answer what stands here, one after the other, and the last for ever."""

    def __init__(self, *answers: int | None) -> None:
        self._answers = list(answers)
        self.asked = 0
        self.renewed = 0

    def list_topics(self, topic: str, timeout: float) -> None:
        assert (topic, timeout > 0) == ("topic", True)
        self.renewed += 1

    def question(self, timeout_s: float) -> Answers:
        assert timeout_s > 0
        code = self._answers[min(self.asked, len(self._answers) - 1)]
        self.asked += 1
        answer: Future[Any] = Future()
        if code is None:
            answer.set_result("known")
        else:
            answer.set_exception(KafkaException(KafkaError(code)))
        return {"topic": answer}


@pytest.mark.parametrize(
    "doubt", [KafkaError._TIMED_OUT, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE]
)
def test_what_is_in_doubt_is_asked_again_with_what_brokers_say_by_then(doubt: int) -> None:
    brokers: Any = Brokers(doubt, doubt, None)
    (answers,) = ask(brokers, "topic", brokers.question)
    assert (answers["topic"].result(), brokers.asked, brokers.renewed) == ("known", 3, 2)


def test_another_error_is_an_answer() -> None:
    brokers: Any = Brokers(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    (answers,) = ask(brokers, "topic", brokers.question)
    assert answers["topic"].exception() is not None
    assert brokers.asked == 1


def test_what_stays_in_doubt_has_its_error_once_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock_s = iter(range(9))
    clock = SimpleNamespace(monotonic=lambda: next(clock_s), sleep=lambda _: None)
    monkeypatch.setattr(topics, "time", clock)
    brokers: Any = Brokers(KafkaError.NOT_LEADER_FOR_PARTITION)
    (answers,) = ask(brokers, "topic", brokers.question, within_s=2.5)
    error = answers["topic"].exception()
    assert error is not None
    assert (error.args[0].code(), brokers.asked) == (KafkaError.NOT_LEADER_FOR_PARTITION, 3)
