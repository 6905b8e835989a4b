"""Sessions of ZooKeeper for tests of what is built on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from election.errors import Unavailable
from election.session import Session
from tests.integration.election_lane import PATIENCE_S

AnySession = TypeVar("AnySession", bound=Session)
T = TypeVar("T")


class AnswerLost(Session):
    """A session that loses the answers to the next `lost` creations and writes: they are carried out."""

    lost = 0

    def create(self, path: str, data: bytes, **options: Any) -> str:
        return self._lose(super().create(path, data, **options))

    def write(self, path: str, data: bytes, version: int, **options: Any) -> Any:
        return self._lose(super().write(path, data, version, **options))

    def _lose(self, answer: T) -> T:
        if self.lost:
            self.lost -= 1
            raise Unavailable("the answer was lost")
        return answer


@contextmanager
def started(it: AnySession) -> Iterator[AnySession]:
    """It is connected, and stops at the end."""
    it.start()
    it.wait_connected(PATIENCE_S)
    yield it
    it.stop()
