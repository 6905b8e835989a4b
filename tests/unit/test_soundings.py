"""What others are asked for: known for a while, then not known; and nobody waits for Kafka at the end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from node.core.ports import Unanswered
from node.health import soundings
from node.health.soundings import Soundings
from node.kafka.fetch.transactions import TransactionOwner
from node.worker import Roster
from store.checkpoint import Reached, Vector
from store.kv import Damaged
from store.rocks import Figures
from tests.support.waiting import eventually

FIGURES = Figures(1, 2, 3, 4, 5, 0)


class World:
    """Kafka, the store, and how far the node has read."""

    def __init__(self) -> None:
        self.high: Vector = {0: 12, 1: 40}
        self.stable: Vector = {0: 10, 1: 40}
        self.read: Vector = {0: 3, 1: 40}
        self.silent = False
        self.by_clients = False
        self.closed = False
        self.asked = 0
        self.answers = threading.Event()
        self.answers.set()

    def high_watermarks(self) -> Vector:
        self.asked += 1
        self.answers.wait()
        if self.silent:
            raise Unanswered("no broker answers")
        return self.high

    def last_stable_offsets(self) -> Vector:
        return self.stable

    def owners(self, _: Vector) -> dict[int, TransactionOwner]:
        return {}

    def dated_by_clients(self) -> bool:
        if self.silent:
            raise Unanswered("no broker answers")
        return self.by_clients

    def reached(self) -> Reached:
        return Reached({}, self.read)

    def figures(self) -> Figures:
        if self.closed:
            raise Damaged("it is closed")
        return FIGURES


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def sounded(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Soundings]:
    monkeypatch.setattr(soundings, "PERIOD_S", 0.005)
    monkeypatch.setattr(soundings, "END_TIMEOUT_S", 0.05)
    sounded = Soundings(cast("Any", world), world.reached, world.figures, tmp_path)
    sounded.start(Roster())
    yield sounded
    world.answers.set()
    sounded.stop()
    sounded.join()


def known(sounded: Soundings) -> tuple[int | None, int | None]:
    return sounded.lag, sounded.unstable


def test_what_is_committed_and_not_read_is_the_lag_and_what_is_not_stable_is_held_back(
    sounded: Soundings,
) -> None:
    eventually(lambda: sounded.lag is not None, "it has asked")
    assert known(sounded) == (7, 2)
    assert sounded.figures == FIGURES
    assert (sounded.free_bytes or 0) > 0


def test_a_reader_that_is_past_a_marker_is_not_behind(world: World, sounded: Soundings) -> None:
    world.read = {0: 99, 1: 99}
    eventually(lambda: sounded.lag == 0, "it has read all")


def test_what_was_known_is_not_known_once_it_is_old(
    world: World, sounded: Soundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    eventually(lambda: sounded.lag is not None, "it has asked")
    world.silent = True
    asked = world.asked
    eventually(lambda: world.asked > asked + 2, "it has asked in vain")
    assert known(sounded) == (7, 2)
    monkeypatch.setattr(soundings, "KNOWN_FOR_S", 0.0)
    assert known(sounded) == (None, None)


def test_who_dates_the_records_is_asked_again_and_kept_while_nobody_answers(
    world: World, sounded: Soundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(soundings, "SETTINGS_EVERY_S", 0.0)
    sounded._settings_at_s = 0.0
    eventually(lambda: sounded.dated_by_clients is False, "it has asked")
    world.by_clients = True
    eventually(lambda: sounded.dated_by_clients is True, "it has asked again")
    world.silent = True
    asked = world.asked
    eventually(lambda: world.asked > asked + 2, "it has asked in vain")
    assert sounded.dated_by_clients is True


def test_a_store_that_is_closed_ends_no_thread(world: World, sounded: Soundings) -> None:
    world.closed = True
    asked = world.asked
    eventually(lambda: world.asked > asked + 2, "it goes on")
    eventually(lambda: sounded.lag == 7, "and knows the rest")


def test_the_end_does_not_wait_for_a_kafka_that_does_not_answer(world: World, sounded: Soundings) -> None:
    world.answers.clear()
    asked = world.asked
    eventually(lambda: world.asked > asked, "it waits for an answer")
    sounded.stop()
    sounded.join()
    assert not world.answers.is_set()
