"""When a message is tried again: the ladder of delays, and a handler's own wish."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

from delayline import requests
from delayline.requests import Duration


@dataclass(frozen=True, slots=True)
class RetryLater:
    """Try again after a delay, or after the cluster's delay of a level; neither: as the ladder says.

    InvalidRequestError for what the service would reject.
    """

    after: Duration | None = None
    level: int | None = None

    def __post_init__(self) -> None:
        requests.schedule("any", None, after=self.after, level=self.level)

    @property
    def is_timed(self) -> bool:
        """Whether it says when."""
        return self.after is not None or self.level is not None


def retry_later(*, after: Duration | None = None, level: int | None = None) -> RetryLater:
    """A wish to have the message again, for a handler to return.

    It counts as an attempt, as a failure does, so that no message goes round for ever. Without a time, the
    ladder says when.

    Args:
        after: a timedelta, milliseconds, or text such as "1h30m".
        level: the number of a delay in the cluster's table.

    Raises:
        InvalidRequestError: both are given, or one is no delay.
    """
    return RetryLater(after, level)


@dataclass(frozen=True, slots=True)
class Ladder:
    """The delay after the first failure, the second, ...; after the last one a message is a dead letter."""

    rungs: tuple[RetryLater, ...]

    @classmethod
    def of_levels(cls, levels: Iterable[int]) -> Self:
        """By numbers of the cluster's level table."""
        return cls(tuple(RetryLater(level=level) for level in levels))

    @classmethod
    def of_delays(cls, *delays: Duration) -> Self:
        """By delays: timedeltas, milliseconds, or text such as "90s"."""
        return cls(tuple(RetryLater(after=delay) for delay in delays))

    def next(self, attempt: int, asked: RetryLater | None = None) -> RetryLater | None:
        """When to try again after this attempt (1 is the first); None: never.

        `asked` is the handler's own wish; it goes before the rung, but does not make the ladder longer.
        """
        if attempt > len(self.rungs):
            return None
        return asked if asked is not None and asked.is_timed else self.rungs[attempt - 1]


ROCKETMQ: Final = Ladder.of_levels(range(3, 19))
"""RocketMQ's: 16 times, after failure n by level 2 + n, which is 10 s to 2 h in the default table."""
