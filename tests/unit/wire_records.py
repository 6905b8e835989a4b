"""Records of a buffer topic, for tests of the wire format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from delayline.names import ClusterNames
from delayline.settings import ClusterSettings
from delayline.wire import Header, Request, parse

TIMESTAMP_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
NAMES = ClusterNames()
SETTINGS = ClusterSettings(partitions=1)


class BufferedRecord(NamedTuple):
    headers: Sequence[Header] | None
    partition: int = 0
    offset: int = 100
    timestamp_ms: int = TIMESTAMP_MS
    key: bytes | None = b"key"
    value: bytes | None = b"value"


def parse_headers(*headers: Header, settings: ClusterSettings = SETTINGS) -> Request:
    """What a request with these headers asks for, in a buffer of one partition."""
    return parse(BufferedRecord(headers), settings, NAMES)
