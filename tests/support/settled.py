"""Stands for node/own_transactions.py where there are no brokers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Settled:
    """No transaction of the lane was left open."""

    def __init__(self, *_: Any) -> None:
        """Whatever lane it is."""

    def warm_up(self) -> None:
        """There is nobody to connect to."""

    def settle(self, resigning: Callable[[], bool], why: Callable[[], str]) -> None:
        """All is decided."""

    def close(self) -> None:
        """Nothing is held."""
