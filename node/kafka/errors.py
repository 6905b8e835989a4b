"""What the Kafka client tells of its failures, in an operator's words."""

from __future__ import annotations

import re
from typing import Final

from confluent_kafka import KafkaError

# The client's own stop-watch and count behind a reason.
_STOP_WATCH: Final = re.compile(r"\s*\(after \d+ms in state .*\)$")
# What it says of a port that is open, and not a broker's.
_NOTHING: Final = ("Broker transport failure", "Timed out")
_TIMED_OUT: Final = ("_TRANSPORT", "_TIMED_OUT", "REQUEST_TIMED_OUT")


def words(error: KafkaError) -> str:
    """The reason alone, without the client's prefixes and stop-watch."""
    text = _STOP_WATCH.sub("", error.str().rpartition("Local: ")[2] or error.name())
    return "no broker answers there in time" if text.startswith(_NOTHING) else text


class LastComplaint:
    """A client's `error_cb`: keeps why it could not connect, since a call then only says that time is out."""

    def __init__(self) -> None:
        self._last: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        # "All brokers are down" says less than the refusal that came before it. Kept between two attempts:
        # the client tells of the same error only once in a while.
        if error.name() != "_ALL_BROKERS_DOWN":
            self._last = error

    def behind(self, told: KafkaError) -> KafkaError:
        """The reason behind a time-out, if the client has told it; else what was told."""
        return self._last if self._last is not None and told.name() in _TIMED_OUT else told
