"""From how an attempt ended to what is sent for it: a pure function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple, Self, TypeAlias

from delayline import requests
from delayline.headers import Header
from delayline.requests import BufferRecord
from delayline.retry.attempt import (
    H_ERROR_TEXT,
    H_ERROR_TYPE,
    H_LEFT_OUT,
    Attempt,
    Failure,
    headers_of,
)
from delayline.retry.ladder import Ladder, RetryLater
from delayline.retry.topics import RetryTopics

ERROR_TEXT_CHARACTERS: Final = 1_000


class FailedAttempt(NamedTuple):
    """An attempt that failed; a `final` one goes to the dead letters whatever the ladder says."""

    error: str
    text: str
    final: bool = False

    @classmethod
    def by(cls, error: BaseException) -> Self:
        """By what the handler raised."""
        kind = type(error)
        name = (
            kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        )
        return cls(name, _text(error))


AttemptResult: TypeAlias = FailedAttempt | RetryLater | None
"""None: the handler is done with it."""


class LetterRecord(NamedTuple):
    """A dead letter as it is in its topic."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[Header]


def answer(
    attempt: Attempt,
    outcome: AttemptResult,
    ladder: Ladder,
    topics: RetryTopics,
    now_ms: int,
    *,
    is_short: bool = False,
) -> BufferRecord | None:
    """The request to the service: deliver it again later, or to the dead letters; None: nothing to do.

    It has an id, of the group and the first record: should this process die before the offset is committed,
    the same message's next answer takes the place of this one as long as it waits. A short one has the first
    and the last failure of its history.
    """
    if outcome is None:
        return None
    asked, failed = (None, outcome) if isinstance(outcome, FailedAttempt) else (outcome, _ASKED)
    history = _history(attempt, failed, now_ms, is_short=is_short)
    when = None if failed.final else ladder.next(attempt.number, asked)
    identity = f"{topics.group}/{attempt.first_source}@{attempt.first_timestamp_ms}"
    if when is not None:
        return requests.schedule(
            topics.retry(attempt.topic),
            attempt.value,
            key=attempt.key,
            headers=headers_of(attempt, attempt.number + 1, history),
            after=when.after,
            level=when.level,
            id=identity,
        )
    return requests.schedule(
        topics.dead_letters(attempt.topic),
        attempt.value,
        key=attempt.key,
        headers=_letter_headers(attempt, failed, history),
        id=identity,
    )


def letters(
    attempt: Attempt, outcome: FailedAttempt | RetryLater, topics: RetryTopics, now_ms: int
) -> list[LetterRecord]:
    """The dead letters of a message that the buffer is too small for, the one that says most first."""
    failed = outcome if isinstance(outcome, FailedAttempt) else _ASKED
    history = _history(attempt, failed, now_ms, is_short=True)
    topic, headers = topics.dead_letters(attempt.topic), _letter_headers(attempt, failed, history)
    bare = _letter_headers(replace(attempt, headers=()), failed, history)
    return [
        LetterRecord(topic, attempt.key, attempt.value, [*headers, (H_LEFT_OUT, b"nothing")]),
        LetterRecord(topic, attempt.key, None, [*headers, (H_LEFT_OUT, b"value")]),
        LetterRecord(topic, None, None, [*bare, (H_LEFT_OUT, b"key, value, headers")]),
    ]


_ASKED: Final = FailedAttempt("retry-later", "the handler asked for it")


def _history(attempt: Attempt, failed: FailedAttempt, now_ms: int, *, is_short: bool) -> tuple[Failure, ...]:
    failure = Failure(attempt.number, now_ms, attempt.source, failed.error, failed.text)
    history = (*attempt.history, failure)
    return (history[0], failure) if is_short and attempt.history else history


def _letter_headers(attempt: Attempt, failed: FailedAttempt, history: Sequence[Failure]) -> list[Header]:
    return [
        *headers_of(attempt, attempt.number, history),
        (H_ERROR_TYPE, failed.error.encode("utf-8", "backslashreplace")),
        (H_ERROR_TEXT, failed.text[:ERROR_TEXT_CHARACTERS].encode("utf-8", "backslashreplace")),
    ]


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "an exception whose text cannot be had"
