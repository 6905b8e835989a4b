"""Stands for node/kafka/own_transactions.py where there are no brokers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from delayline.names import PartitionId


class Settled:
    """No transaction of the lane was left open, but for what was `aborted` or `committed` again, of which
    id.
    """

    forbidden: str | None = None
    aborted: Final[list[tuple[int, set[PartitionId]]]] = []
    committed: Final[list[tuple[int, set[PartitionId]]]] = []

    def __init__(self, *_: Any) -> None:
        """Whatever lane it is."""

    def warm_up(self) -> None:
        """There is nobody to connect to."""

    def settle(self, is_to_step_down: Callable[[], bool], why: Callable[[], str]) -> None:
        """All is decided."""

    def abort(self, turn: int, places: set[PartitionId]) -> str | None:
        """It takes note of it."""
        if self.forbidden is None:
            self.aborted.append((turn, set(places)))
        return self.forbidden

    def commit(self, turn: int, places: set[PartitionId]) -> str | None:
        """It takes note of it."""
        self.committed.append((turn, set(places)))
        return None

    def close(self) -> None:
        """Nothing is held."""
