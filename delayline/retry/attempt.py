"""One message as the handler gets it, and how its history travels: in headers of the retried record.

On a record of a retry topic the last header of each of these names is this module's; whatever comes before
is the user's own, even if it has the same name.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from delayline.headers import PREFIX, Header
from delayline.names import parse_source
from delayline.times import MAX_MS

H_ATTEMPT: Final = "retry-attempt"
H_FIRST_SOURCE: Final = "retry-first-source"
H_FIRST_TIMESTAMP: Final = "retry-first-timestamp"
H_HISTORY: Final = "retry-history"
# On a dead letter.
H_ERROR_TYPE: Final = "retry-error-type"
H_ERROR_TEXT: Final = "retry-error-text"
H_LEFT_OUT: Final = "retry-left-out"

_OWN: Final = (
    H_ATTEMPT,
    H_FIRST_SOURCE,
    H_FIRST_TIMESTAMP,
    H_HISTORY,
    H_ERROR_TYPE,
    H_ERROR_TEXT,
    H_LEFT_OUT,
)

# A record has room for its history however long the ladder is: the newest failures, shortened.
HISTORY_KEPT: Final = 20
HISTORY_TEXT_CHARACTERS: Final = 200
_SOURCE_CHARACTERS: Final = 300  # more than any has, unless somebody else wrote it
_MOST_ATTEMPTS: Final = 1_000_000


class Failure(NamedTuple):
    """How one attempt ended."""

    attempt: int
    at_ms: int  # epoch milliseconds, by the consumer's clock
    source: str  # the record in hand, topic/partition/offset
    error: str  # the exception's type; retry-later, process-died or header-key
    text: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """A message in the handler's hands."""

    topic: str
    """The topic that it was first read from, on a retry too."""
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    """The message's own, in order. Headers that begin with `delay-` are the service's and not among them."""
    timestamp_ms: int
    """Of the record in hand: on a retry, when it was delivered."""
    source: str
    """The record in hand, `topic/partition/offset`."""
    first_source: str
    """The record that it was first read from; the same on every attempt."""
    first_timestamp_ms: int
    """Of that record: a topic that is deleted and made again has the same sources once more."""
    number: int = 1
    """1 for the first attempt."""
    history: tuple[Failure, ...] = ()
    """The attempts that failed, oldest first; the newest 20 of them."""


class RetryHeaders(NamedTuple):
    """What the headers of a record tell."""

    own: tuple[Header, ...]
    number: int
    first_source: str
    first_timestamp_ms: int
    history: tuple[Failure, ...]


def read_first(headers: Sequence[Header], source: str, timestamp_ms: int) -> RetryHeaders:
    """Of a record of the user's own topic: whatever `retry-` headers it has are the user's."""
    return RetryHeaders(_without_service(headers), 1, source, timestamp_ms, ())


def read_retried(headers: Sequence[Header], source: str, timestamp_ms: int) -> RetryHeaders:
    """Of a record of a retry topic. What is missing or makes no sense is taken as on a first attempt."""
    own, found = list(_without_service(headers)), {}
    for index in range(len(own) - 1, -1, -1):
        name, value = own[index]
        if name in _OWN and name not in found:
            found[name] = value or b""
            del own[index]
    return RetryHeaders(
        tuple(own),
        _number(found.get(H_ATTEMPT, b"")),
        _first_source(found.get(H_FIRST_SOURCE, b""), source),
        _first_timestamp_ms(found.get(H_FIRST_TIMESTAMP, b""), timestamp_ms),
        _history(found.get(H_HISTORY, b"")),
    )


def headers_of(attempt: Attempt, number: int, history: Sequence[Failure]) -> list[Header]:
    """The headers of the record that carries this attempt on, as attempt `number`."""
    entries = [_shortened(failure)._asdict() for failure in history[-HISTORY_KEPT:]]
    return [
        *attempt.headers,
        (H_ATTEMPT, b"%d" % number),
        (H_FIRST_SOURCE, attempt.first_source.encode()),
        (H_FIRST_TIMESTAMP, b"%d" % attempt.first_timestamp_ms),
        (H_HISTORY, json.dumps(entries).encode()),
    ]


def _shortened(failure: Failure) -> Failure:
    return failure._replace(
        source=failure.source[:_SOURCE_CHARACTERS],
        error=failure.error[:HISTORY_TEXT_CHARACTERS],
        text=failure.text[:HISTORY_TEXT_CHARACTERS],
    )


def _without_service(headers: Sequence[Header]) -> tuple[Header, ...]:
    return tuple(header for header in headers if not header[0].startswith(PREFIX))


def _number(raw: bytes) -> int:
    return min(int(raw), _MOST_ATTEMPTS) if raw.isdigit() and len(raw) < 10 and int(raw) else 1


def _first_source(raw: bytes, otherwise: str) -> str:
    try:
        text = raw.decode("ascii")
        parse_source(text)
    except ValueError:
        return otherwise
    return text


def _first_timestamp_ms(raw: bytes, otherwise: int) -> int:
    return int(raw) if raw.isdigit() and len(raw) < 16 else otherwise


def _history(raw: bytes) -> tuple[Failure, ...]:
    try:
        return tuple(_failure(entry) for entry in json.loads(raw))
    except (ValueError, TypeError, KeyError, RecursionError):
        return ()


def _failure(entry: dict[str, Any]) -> Failure:
    """ValueError, TypeError or KeyError if it is none that `headers_of` writes."""
    failure = Failure(**{name: entry[name] for name in Failure._fields})
    for value, kind in zip(failure, (int, int, str, str, str), strict=True):
        if type(value) is not kind:
            raise TypeError(value)
    if not (0 < failure.attempt <= _MOST_ATTEMPTS and 0 <= failure.at_ms <= MAX_MS):
        raise ValueError(failure)
    return failure
