"""What the buffer has seen since some letters were written: requests sent again, and ids used again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from delayline.names import ClusterNames, source
from delayline.wire import H_ID, H_PARENT, H_SOURCE
from node.config import KafkaConfig
from node.kafka.fetch.records import LogRecord
from ops.clients.kafka import KafkaAdmin
from ops.clients.records import records_from
from ops.dead_letter.letter import Letter

# A letter's time is its leader's clock, a request's time the broker's.
_CLOCKS_DIFFER_MS: Final = 60_000


@dataclass(slots=True)
class Since:
    """`retried`: the letters that were sent again, as `topic/partition/offset`. `used`: of an id, when it was
    used last by a request that is not the service's, and by which.
    """

    retried: set[str] = field(default_factory=set)
    used: dict[bytes, tuple[int, str]] = field(default_factory=dict)

    def has_later(self, letter: Letter, raw_id: bytes) -> bool:
        """Whether the id was used after the letter was written."""
        at_ms, request = self.used.get(raw_id, (-1, ""))
        return at_ms >= letter.at_ms and request != letter.source

    def note(self, record: LogRecord, buffer: str, letters: str, ids: frozenset[bytes]) -> None:
        """Takes a request of the buffer in; `letters` is what the sources of letters begin with."""
        headers = dict(reversed(record.headers))  # the first of a name counts
        origin = (headers.get(H_SOURCE) or b"").decode("utf-8", "replace")
        if origin.startswith(letters):
            self.retried.add(origin)
        raw_id = headers.get(H_ID)
        if raw_id in ids and H_PARENT not in headers:
            self.used[raw_id] = record.timestamp_ms, source(buffer, record.partition, record.offset)


def look_since(config: KafkaConfig, from_ms: int, ids: Iterable[bytes]) -> Since:
    """Reads the buffer from a time to its end; it costs what reading that much costs."""
    names = ClusterNames(config.cluster)
    begins = KafkaAdmin(config).begins(names.buffer, max(0, from_ms - _CLOCKS_DIFFER_MS))
    since, wanted = Since(), frozenset(ids)
    for record in records_from(config, names.buffer, begins):
        since.note(record, names.buffer, f"{names.dead_letter}/", wanted)
    return since
