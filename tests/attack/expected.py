"""What must come of a record that the broker has acknowledged."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from hashlib import blake2b
from typing import NamedTuple

from delayline.headers import PREFIX

_OWN_PREFIX = PREFIX.encode()


class Rule(StrEnum):
    """Each is *exactly once*, and nothing else."""

    DELIVERED = "delivered"
    LETTER = "dead-lettered"
    ONE = "delivered, dead-lettered, answered or removed"


class Expected(NamedTuple):
    """`content`: of value and own headers, if it is delivered; `place`: of topic and key; None: not looked
    at. `delay_ms`: how long after its acknowledgement it is due.
    """

    rule: Rule
    content: bytes | None = None
    place: bytes | None = None
    delay_ms: int = 0


class Kind(StrEnum):
    """What can come of a request."""

    DELIVERED = "delivered"
    LETTER = "letter"
    REMOVED = "removed"  # a message, by a cancel or a replace
    ANSWERED = "answered"  # a cancel, a reschedule or a duplicate


class Fate(NamedTuple):
    """One thing that came of one request, read from the topics. `occurrence`: 0 if it is none."""

    kind: Kind
    partition: int
    offset: int
    words: str  # a code or an outcome
    occurrence: int = 0
    content: bytes | None = None
    place: bytes | None = None
    at_ms: int = 0
    scheduled_for_ms: int = 0


def content_of(value: bytes | None, headers: Iterable[tuple[bytes, bytes | None]]) -> bytes:
    """A digest of what must arrive unaltered."""
    own = [header for header in headers if not header[0].startswith(_OWN_PREFIX)]
    return _digest((value, own))


def place_of(topic: bytes, key: bytes | None) -> bytes:
    """A digest of where it must arrive, and under which key."""
    return _digest((topic, key))


def _digest(what: object) -> bytes:
    return blake2b(repr(what).encode(), digest_size=8).digest()
