"""What a lane knows of the operators' word while it is being read."""

from __future__ import annotations

from typing import Any

import msgspec

from election.operators import Author, PauseState, encode
from election.session import Session
from election.znodes import Znodes
from node.zookeeper.operator_watch import OperatorWatch
from store.operations import OperatorRequest, SkipRequest

SKIP = SkipRequest(1, 1_800_000_000_000)


class Ensemble(Session):
    """Has the three znodes of a lane: what is paused, asked for, and the wanted switchover."""

    def __init__(self, *znodes: bytes | None) -> None:
        self.znodes = list(znodes)

    def read_all(self, *_: Any, **__: Any) -> list[bytes | None]:
        return self.znodes


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
