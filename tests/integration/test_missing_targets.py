"""Users name as many targets as they like: what is not known of one holds nothing up, and costs little."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Collection
from typing import Any

import pytest

from delayline.wire import H_ATTEMPT, H_ERROR
from node.kafka.target_answers import TargetAnswers
from node.kafka.targets import FEW, KafkaTargets
from tests.support.cluster import Cluster
from tests.support.fates import check_exactly_once
from tests.support.fixtures import MakeCluster
from tests.support.requests import Sender, now_ms
from tests.support.waiting import eventually

MISSING = 5_000
SOUND = 200
EACH_MS = 10
ASKING = {"target-lookup", "target-watch"}


class Asked:
    """What the brokers are asked of topics, by which thread; it may have to wait for the answer."""

    def __init__(self, patches: pytest.MonkeyPatch) -> None:
        self.threads: set[str] = set()
        self.of: set[TargetAnswers] = set()
        self.most = 0  # names in one request
        self.requests = 0
        self.answered = threading.Event()
        self.answered.set()
        for name in ("looked_up", "described"):
            patches.setattr(TargetAnswers, name, self._asking(getattr(TargetAnswers, name)))
        patches.setattr(TargetAnswers, "names", self._listing(TargetAnswers.names))

    def _asking(self, ask: Callable[..., Any]) -> Callable[..., Any]:
        def asked(answers: TargetAnswers, topics: Collection[str]) -> Any:
            self._note(answers, len(topics))
            return ask(answers, topics)

        return asked

    def _listing(self, ask: Callable[..., Any]) -> Callable[..., Any]:
        def asked(answers: TargetAnswers) -> Any:
            self._note(answers, 0)
            return ask(answers)

        return asked

    def _note(self, answers: TargetAnswers, names: int) -> None:
        self.of.add(answers)
        self.threads.add(threading.current_thread().name)
        self.most = max(self.most, names)
        self.requests += 1
        self.answered.wait()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


@pytest.fixture
def cluster(asked: Asked, make_cluster: MakeCluster) -> Cluster:
    """A cluster with a leader, which nobody has asked for one of the two targets yet."""
    assert not asked.requests
    cluster = make_cluster(targets=("target", "new"))
    cluster.start_here("a")
    cluster.wait_epoch(1)
    return cluster


def test_thousands_of_missing_targets_cost_a_few_requests_and_hold_nothing_up(
    cluster: Cluster, asked: Asked
) -> None:
    at_ms = now_ms() + 1_000
    with Sender(cluster) as sender:
        for number in range(MISSING):
            sender.schedule(at_ms=at_ms + number % 1_000, target=f"missing-{number}")
            if number < SOUND:
                sender.schedule(at_ms=at_ms + number * EACH_MS)
        asked.requests = 0
        ledger = sender.flush()
        cluster.wait_delivered(SOUND)
    cluster.tail.wait(lambda: len(cluster.dead_letters) == MISSING, "each is a dead letter")
    requests = asked.requests
    fates = check_exactly_once(cluster, ledger)
    assert (fates.count("delivered"), fates.count("target-missing")) == (SOUND, MISSING)
    assert {got.text(H_ATTEMPT) for got in cluster.delivered} == {"1"}
    assert asked.threads <= ASKING
    assert asked.most <= FEW
    assert requests < MISSING / 10
    tables = [one for one in gc.get_objects() if isinstance(one, KafkaTargets) and one._answers in asked.of]
    assert tables
    for table in tables:
        eventually(lambda table=table: table.counts.wanted == 0, "nothing is left to be asked")  # type: ignore[misc]
        assert table.counts.known <= len(table._answers.names())
        assert len(table._asked_s) <= table.counts.known


def test_while_the_brokers_do_not_say_what_a_target_is_all_else_is_delivered(
    cluster: Cluster, asked: Asked
) -> None:
    with Sender(cluster) as sender:
        sender.schedule()
        sender.flush()
        cluster.wait_delivered(1)
        asked.answered.clear()
        try:
            nowhere, new = sender.schedule(target="nowhere"), sender.schedule(target="new")
            sender.flush()
            cluster.tail.wait(lambda: len(_parked(cluster)) >= 4, "each is parked, and parked again")
            for _ in range(20):
                sender.schedule()
            sender.flush()
            cluster.wait_delivered(21)
        finally:
            asked.answered.set()
        ledger = sender.flush()
    cluster.tail.wait(lambda: cluster.dead_letters, "the missing one is a dead letter")
    cluster.tail.wait(lambda: cluster.delivered_to("new"), "the new one takes its message")
    fates = check_exactly_once(cluster, ledger)
    assert fates.of[new.result()] == ["delivered"]
    assert [letter.text(H_ERROR) for letter in cluster.dead_letters] == ["target-missing"]
    assert cluster.dead_letters[0].text("delay-source") == nowhere.result()
    assert [got.text(H_ATTEMPT) for got in cluster.delivered_to("new")] == ["1"]


def _parked(cluster: Cluster) -> list[str]:
    return [one["message"] for one in cluster.outcomes if one["code"] == "target-unknown"]
