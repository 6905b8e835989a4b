"""What a node asks for again and again until there is an answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

import structlog
from confluent_kafka import KafkaException

from election.errors import ElectionError, Unavailable
from node.core.ports import Unanswered

log = structlog.get_logger("delayline.node")

RETRY_S: Final = 0.5
SAY_AGAIN_S: Final = 60.0

Answer = TypeVar("Answer")


class Waiting:
    """One thread asks; `cause` says to any thread what keeps it from going on, in words."""

    def __init__(self, halt: threading.Event) -> None:
        """`halt`: nothing is asked any more."""
        self.cause: str | None = None
        self._halt = halt

    def ask(self, question: Callable[[], Answer]) -> Answer | None:
        """The answer, or None if the round ends before there is one."""
        said_s: dict[str, float] = {}
        while not self._halt.is_set():
            try:
                answer = question()
                self.cause = None
                return answer
            except (Unavailable, Unanswered, ElectionError, KafkaException) as error:
                self.cause = str(error)
                now_s = time.monotonic()
                if now_s - said_s.get(str(error), -SAY_AGAIN_S) >= SAY_AGAIN_S:
                    said_s[str(error)] = now_s
                    log.warning("node-startup-delayed", detail=str(error))
                else:
                    log.debug("node-startup-retried", detail=str(error))
                self._halt.wait(RETRY_S)
        return None
