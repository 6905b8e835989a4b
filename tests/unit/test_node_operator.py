"""What a lane knows of the operators' word while it is being read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec
import pytest

from election.errors import Unavailable
from election.operators import Author, PauseState, Switchover, encode
from election.session import Session
from election.znodes import Znodes
from node.worker import Roster
from node.zookeeper.operator_watch import OperatorWatch
from store.operations import OperatorRequest, SkipRequest
from tests.support.waiting import eventually

SKIP = SkipRequest(1, 1_800_000_000_000)


class Ensemble(Session):
    """Has the three znodes of a lane: what is paused, asked for, and the wanted switchover."""

    def __init__(self, *znodes: bytes | None) -> None:
        self.znodes = list(znodes)

    def read_all(self, *_: Any, **__: Any) -> list[bytes | None]:
        return self.znodes

    def subscribe(self, *_: Any) -> None:
        """It has one state."""

    def unsubscribe(self, *_: Any) -> None:
        """Nobody was told of any."""


class Looked(OperatorWatch):
    """Notes what another thread could see whenever something of it changes."""

    seen: list[tuple[bool, OperatorRequest | None]] | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if self.seen is not None:
            self.seen.append((self.pauses().everything, self.asked()))


def test_what_was_asked_for_while_all_stood_still_is_known_before_it_goes_on() -> None:
    paused = PauseState(paused=Author("somebody", "to skip", 1))
    ensemble = Ensemble(encode(paused), None, None)
    watch = Looked(ensemble, Znodes("delay"), 0, lambda: None, lambda _: False, lambda _: None)
    watch.refresh()
    ensemble.znodes = [encode(PauseState()), msgspec.json.encode(SKIP), None]
    watch.seen = []
    watch.refresh()
    assert {asked for everything, asked in watch.seen if not everything} == {SKIP}


@pytest.mark.parametrize(
    "data", [b'{"paused_targets": {"\xff": 1}}', b'{"a":' * 100_000], ids=["no UTF-8", "deep"]
)
def test_bytes_that_cannot_be_read_stop_deliveries_and_no_thread(data: bytes) -> None:
    ensemble, heard = Ensemble(data, data, data), Heard(counts=False)
    with watching(ensemble, heard) as watch:
        eventually(lambda: heard.words == [("rest", None)], "it has read them")
        assert (watch.pauses().everything, watch.asked()) == (True, None)
        ensemble.znodes = [None, msgspec.json.encode(SKIP), None]
        watch.refresh()
        assert (watch.pauses().everything, watch.asked()) == (False, SKIP)


class Heard:
    """What a watch has said, in order: of a switchover, and that there is none of account."""

    def __init__(self, *, counts: bool) -> None:
        """`counts`: whether a switchover is of account."""
        self.words: list[tuple[str, Switchover | None]] = []
        self._counts = counts

    def heed(self, wanted: Switchover) -> bool:
        self.words.append(("heed", wanted))
        return self._counts

    def rest(self, wanted: Switchover | None) -> None:
        self.words.append(("rest", wanted))


@contextmanager
def watching(ensemble: Ensemble, heard: Heard) -> Iterator[OperatorWatch]:
    watch = OperatorWatch(ensemble, Znodes("delay"), 0, lambda: None, heard.heed, heard.rest)
    watch.start(Roster())
    yield watch
    watch.stop()
    watch.join()


WANTED = Switchover(1, None, Author("somebody", "to see it", 1))


def test_where_no_switchover_is_of_account_it_is_told_what_stands_there() -> None:
    for znode, counts, words in (
        (None, False, [("rest", None)]),
        (encode(WANTED), False, [("heed", WANTED), ("rest", WANTED)]),
        (encode(WANTED), True, [("heed", WANTED), ("heed", WANTED)]),
    ):
        heard = Heard(counts=counts)
        with watching(Ensemble(None, None, znode), heard):
            eventually(partial(_begins, heard.words, words), "it says so")


def _begins(words: list[Any], expected: list[Any]) -> bool:
    return words[: len(expected)] == expected


def test_where_zookeeper_has_not_answered_it_is_not_told() -> None:
    class Away(Ensemble):
        looks = 0

        def read_all(self, *_: Any, **__: Any) -> list[bytes | None]:
            self.looks += 1
            raise Unavailable("it is away")

    away, heard = Away(), Heard(counts=False)
    with watching(away, heard):
        eventually(lambda: away.looks == 2, "it has looked again")
    assert heard.words == []
