"""Stands for confluent_kafka's producer where there are no brokers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException


class Acknowledged:
    """A record as the brokers have taken it."""

    def __init__(self, topic: str, partition: int) -> None:
        self._place = topic, partition

    def topic(self) -> str:
        return self._place[0]

    def partition(self) -> int:
        return self._place[1]

    def timestamp(self) -> tuple[int, int]:
        return 2, 1_000


class Client:
    """A producer that takes everything; its commit is in doubt if `in_doubt` says so, and if `hangs` does,
    nothing that it takes is acknowledged.
    """

    in_doubt = False
    hangs = False
    sent: Final[list[tuple[str, str, int]]] = []  # by which id, and where

    def __init__(self, id_: str) -> None:
        self._id = id_
        self._reports: list[Callable[[], None]] = []

    def list_topics(self, _: str, timeout: float) -> None:
        """It is connected."""

    def init_transactions(self, timeout: float) -> None:
        """It is the only one."""

    def begin_transaction(self) -> None:
        """It is open."""

    def produce(
        self, topic: str, value: bytes, key: bytes, partition: int, *by_place: Any, **named: Any
    ) -> None:
        Client.sent.append((self._id, topic, partition))
        report = named.get("on_delivery") or (by_place[0] if by_place else None)
        if report is not None:
            self._reports.append(lambda: report(None, Acknowledged(topic, partition)))

    def flush(self, timeout: float) -> int:
        while self._reports and not Client.hangs:
            self._reports.pop()()
        return len(self._reports)

    def commit_transaction(self, timeout: float) -> None:
        if Client.in_doubt:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
