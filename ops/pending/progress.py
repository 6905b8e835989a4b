"""How far imports into a cluster are: the topic `<cluster>.import`, by export.

The place of the last line stands in the transaction that sends it, and, where it does not end there, what
is left of it. A line is imported once, whichever file it is in, and however often that is given: its place in
its export is the same in all of them.
"""

from __future__ import annotations

from typing import Final

import msgspec
from confluent_kafka import Producer

from delayline.names import ClusterNames
from delayline.signing import Keyring
from node.config import ConnectionConfig
from ops.pending.again import Rest
from ops.pending.formats import decode_entry
from ops.pending.signed_topic import SignedTopic

FORMAT: Final = 1


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """All lines of an export up to a place are imported, but for the `rest` of the one at that place. `run`:
    who has written it.
    """

    format: int = FORMAT
    export: str
    place: int
    rest: Rest | None = None
    messages: int
    at_ms: int
    run: str

    def has(self, place: int) -> bool:
        """Whether all of the line at that place is imported."""
        return place < self.place or (place == self.place and self.rest is None)

    def rest_at(self, place: int) -> Rest | None:
        """What is left of the line at that place, where some of it is imported."""
        return self.rest if place == self.place else None

    def is_before(self, other: Imported) -> bool:
        """Whether the other one was written later: places rise, and times within a line."""
        if self.place != other.place:
            return self.place < other.place
        return self.rest is not None and (other.rest is None or self.rest.at_ms < other.rest.at_ms)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Imported).decode


class Progress:
    """Reads and writes the topic."""

    def __init__(self, config: ConnectionConfig, ring: Keyring) -> None:
        self.log = SignedTopic(config, ClusterNames(config.cluster).imports, ring)

    def write(
        self, producer: Producer, export: str, place: int, rest: Rest | None, messages: int, at_ms: int
    ) -> None:
        """Sends it, in the transaction that is open."""
        run = self.log.run.decode()
        entry = Imported(export=export, place=place, rest=rest, messages=messages, at_ms=at_ms, run=run)
        self.log.produce(producer, export.encode(), _encode(entry))

    def read(self) -> dict[str, Imported]:
        """How far each export is. An older word, which may be a copy, takes nothing back."""
        found: dict[str, Imported] = {}
        for offset, value in self.log.records():
            entry = decode_entry(value, _decode, FORMAT, f"{self.log.topic}, offset {offset}")
            known = found.get(entry.export)
            if known is None or known.is_before(entry):
                found[entry.export] = entry
        return found
