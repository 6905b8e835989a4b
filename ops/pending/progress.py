"""How far imports into a cluster are: the topic `<cluster>.import`, by export.

The place of the last line stands in the transaction that sends it, and, where it does not end there, what
is left of it. A line is imported once, whichever file it is in, and however often that is given: its place in
its export is the same in all of them. What was passed since the cluster would refuse it stands there, too.
"""

from __future__ import annotations

from collections.abc import Iterator
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


class Passed(msgspec.Struct, frozen=True, array_like=True):
    """A line that was refused, at its place in its export; `rest`: what of it, if the rest of it was sent."""

    place: int
    rest: Rest | None = None


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """All lines of an export up to a place are imported, but for the `rest` of the one at that place, and for
    what was `passed`, with this entry and with those before it. `run`: who has written it.
    """

    format: int = FORMAT
    export: str
    place: int
    rest: Rest | None = None
    messages: int
    at_ms: int
    run: str
    passed: tuple[Passed, ...] = ()

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

    def write(self, producer: Producer, entry: Imported) -> None:
        """Sends it, in the transaction that is open."""
        self.log.produce(producer, entry.export.encode(), _encode(entry))

    def read(self) -> dict[str, Imported]:
        """How far each export is. An older word, which may be a copy, takes nothing back."""
        found: dict[str, Imported] = {}
        for entry in self._entries():
            known = found.get(entry.export)
            if known is None or known.is_before(entry):
                found[entry.export] = entry
        return found

    def passed(self, export: str) -> Iterator[Passed]:
        """What was refused of an export, by rising places."""
        reached = -1
        for entry in self._entries():
            if entry.export != export:
                continue
            for one in entry.passed:
                if one.place > reached:  # else it is a copy
                    reached = one.place
                    yield one

    def _entries(self) -> Iterator[Imported]:
        for offset, value in self.log.records():
            yield decode_entry(value, _decode, FORMAT, f"{self.log.topic}, offset {offset}")
