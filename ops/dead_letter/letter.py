"""A dead letter as it stands in its topic: the request as it was, and what the service says of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from delayline.names import MAX_OFFSET, MAX_PARTITION
from delayline.wire import (
    H_ERROR,
    H_ERROR_DETAIL,
    H_ID,
    H_OP,
    H_SOURCE,
    H_TARGET_TOPIC,
    Header,
)
from node.kafka.fetch.records import LogRecord
from store.keys import RecordId

_PLACE: Final = re.compile(r"([0-9]{1,10})/([0-9]{1,19})", re.ASCII)
_SERVICES_OWN: Final = (H_SOURCE, H_ERROR, H_ERROR_DETAIL)


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter. `headers` are the request's own; `source` is where the user's request is.

    `code` is None, and `source` and `detail` are empty, for a record that the service has not written.
    """

    record_id: RecordId
    at_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    source: str
    code: str | None
    detail: str

    @property
    def id(self) -> str | None:
        """The request's id."""
        return self._text(H_ID)

    @property
    def target(self) -> str | None:
        """The topic that the request names."""
        return self._text(H_TARGET_TOPIC)

    def first(self, name: str) -> bytes | None:
        """The value of the request's first header of this name."""
        return next((value for key, value in self.headers if key == name), None)

    def has(self, name: str) -> bool:
        """Whether the request carries such a header."""
        return any(key == name for key, _ in self.headers)

    @property
    def is_schedule(self) -> bool:
        """Whether the request asks for a delivery, as far as can be seen."""
        return self.first(H_OP) in (None, b"schedule")

    def _text(self, name: str) -> str | None:
        value = self.first(name)
        return None if value is None else value.decode("utf-8", "backslashreplace")


def read_letter(record: LogRecord) -> Letter:
    """The letter that a record of the dead-letter topic is."""
    headers = record.headers
    own, said = headers[:-3], headers[-3:]
    source, code, detail = _said(said) if tuple(key for key, _ in said) == _SERVICES_OWN else ("", None, "")
    return Letter(
        (record.partition, record.offset),
        record.timestamp_ms,
        record.key,
        record.value,
        tuple(headers if code is None else own),
        source,
        code,
        detail,
    )


def _said(headers: Sequence[Header]) -> tuple[str, str, str]:
    source, code, detail = ((value or b"").decode("utf-8", "backslashreplace") for _, value in headers)
    return source, code, detail


def parse_place(text: str, topic: str) -> RecordId:
    """`partition/offset`, with the topic's name before it or without; ValueError says how it is written."""
    match = _PLACE.fullmatch(text.removeprefix(f"{topic}/"))
    if match is not None:
        partition, offset = int(match[1]), int(match[2])
        if partition <= MAX_PARTITION and offset <= MAX_OFFSET:
            return partition, offset
    raise ValueError(f"{text[:300]!r} is no place: write partition/offset, as in 0/17")


def render_place(record_id: RecordId) -> str:
    """What `parse_place` reads."""
    return f"{record_id[0]}/{record_id[1]}"
