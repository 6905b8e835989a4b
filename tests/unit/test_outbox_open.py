"""How the outbox waits for `init_transactions`, on clients that answer as they are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from delayline.names import ClusterNames
from node import outbox
from node.ports import Doubtful
from node.targets import BATCH_BYTES, KafkaTargets

TIMED_OUT = KafkaError._TIMED_OUT
CONCURRENT = KafkaError.CONCURRENT_TRANSACTIONS
LOADING = KafkaError.COORDINATOR_LOAD_IN_PROGRESS


class Client:
    """A producer whose calls of `init_transactions` end with these errors, then succeed."""

    def __init__(self, errors: list[int]) -> None:
        self.errors = errors
        self.tries_s: list[float] = []

    def list_topics(self, _: str, timeout: float) -> None:
        """It is connected."""

    def init_transactions(self, timeout: float) -> None:
        self.tries_s.append(timeout)
        if self.errors:
            raise KafkaException(KafkaError(self.errors.pop(0)))


class Targets:
    """Nothing is known of any."""

    def batch_bytes(self) -> int:
        return BATCH_BYTES


Opened = Callable[..., list[Client]]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    """Opens an outbox on clients with these scripts; returns those that were made, id a's first."""

    def run(*scripts: list[int], resigning: bool = False) -> list[Client]:
        made: list[Client] = []

        def make(_: dict[str, Any]) -> Client:
            made.append(Client(scripts[len(made)] if len(made) < len(scripts) else []))
            return made[-1]

        monkeypatch.setattr(outbox, "Producer", make)
        targets = cast("KafkaTargets", Targets())
        box = outbox.KafkaOutbox(
            {}, ClusterNames("delay"), 0, 10_000, targets, lambda: None, lambda: resigning
        )
        try:
            box.open()
        finally:
            box.close()
        return made

    return run


def test_an_answer_that_is_late_is_waited_for_on_the_same_producer(opened: Opened) -> None:
    a, _ = opened([TIMED_OUT, LOADING, TIMED_OUT])
    assert a.tries_s == [outbox.FIRST_TRY_S * factor for factor in (1, 2, 4, 8)]


def test_a_transaction_that_is_being_aborted_is_asked_about_by_another_producer(opened: Opened) -> None:
    first, second, third, _ = opened([TIMED_OUT, CONCURRENT], [CONCURRENT])
    assert [len(client.tries_s) for client in (first, second, third)] == [2, 1, 1]


def test_one_who_is_to_resign_does_not_wait(opened: Opened) -> None:
    with pytest.raises(Doubtful):
        opened([TIMED_OUT] * 100, resigning=True)


def test_what_no_time_heals_is_raised_at_once(opened: Opened) -> None:
    with pytest.raises(Doubtful, match="id a cannot be initialised"):
        opened([KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED])
