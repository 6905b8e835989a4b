"""How the outbox waits for `init_transactions`, on clients that answer as they are told."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from delayline.names import ClusterNames
from node.core.ports import Doubtful
from node.kafka import outbox
from node.refusal import Refusing
from tests.support.clients import Client
from tests.support.keys import KEYRING, FixedKeys
from tests.support.settled import Settled
from tests.support.targets import Table

TIMED_OUT = KafkaError._TIMED_OUT
CONCURRENT = KafkaError.CONCURRENT_TRANSACTIONS
LOADING = KafkaError.COORDINATOR_LOAD_IN_PROGRESS


class Scripted(Client):
    """A producer whose calls of `init_transactions` end with these errors, then succeed."""

    def __init__(self, id_: str, errors: list[int]) -> None:
        super().__init__(id_)
        self.errors = errors
        self.tries = 0
        self.initialised_s = 0.0

    def init_transactions(self, timeout: float) -> None:
        self.tries += 1
        if self.errors:
            raise KafkaException(KafkaError(self.errors.pop(0)))
        self.initialised_s = time.perf_counter()


Opened = Callable[..., dict[str, list[Scripted]]]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    """Opens an outbox on clients with these scripts; returns those that were made, by id."""

    def run(
        *, a: Sequence[list[int]] = (), b: Sequence[list[int]] = (), is_to_step_down: bool = False
    ) -> Any:
        scripts = {"a": deque(a), "b": deque(b)}
        made: dict[str, list[Scripted]] = {"a": [], "b": []}

        def make(config: dict[str, Any]) -> Scripted:
            suffix = config["transactional.id"][-1]
            made[suffix].append(Scripted(suffix, scripts[suffix].popleft() if scripts[suffix] else []))
            return made[suffix][-1]

        monkeypatch.setattr(outbox, "OwnTransactions", Settled)
        monkeypatch.setattr(outbox, "Producer", make)
        box = outbox.KafkaOutbox(
            {},
            ClusterNames("delay"),
            0,
            10_000,
            Table(),
            lambda: None,
            lambda: is_to_step_down,
            FixedKeys(KEYRING),
        )
        try:
            box.open()
        finally:
            box.close()
        return made

    return run


def test_an_answer_that_is_late_is_waited_for_on_the_same_producer(opened: Opened) -> None:
    made = opened(a=[[TIMED_OUT, LOADING, TIMED_OUT]])
    assert [client.tries for client in made["a"]] == [4]


def test_a_transaction_that_is_being_aborted_is_asked_about_by_another_producer(opened: Opened) -> None:
    made = opened(a=[[TIMED_OUT, CONCURRENT], [CONCURRENT]])
    assert [client.tries for client in made["a"]] == [2, 1, 1]


def test_b_is_initialised_after_a(opened: Opened) -> None:
    made = opened(a=[[TIMED_OUT] * 3])
    assert made["b"][-1].initialised_s > made["a"][-1].initialised_s


def test_one_who_is_to_step_down_does_not_wait(opened: Opened) -> None:
    with pytest.raises(Doubtful):
        opened(a=[[TIMED_OUT] * 100], is_to_step_down=True)


@pytest.mark.parametrize("suffix", ["a", "b"])
def test_what_no_time_heals_is_raised_at_once(opened: Opened, suffix: str) -> None:
    with pytest.raises(Doubtful, match=f"id {suffix} cannot be initialised"):
        opened(**{suffix: [[KafkaError.INVALID_TRANSACTION_TIMEOUT]]})


@pytest.mark.parametrize("suffix", ["a", "b"])
def test_ids_that_the_node_may_not_use_are_a_refusal(opened: Opened, suffix: str) -> None:
    with pytest.raises(Refusing, match="transactional-id-forbidden"):
        opened(**{suffix: [[KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]]})
