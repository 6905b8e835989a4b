"""What an export has asked for and what came of it: the topic `<cluster>.export`.

It is written in batches. `Batch`, and an `Asked` for each of its messages with the message whole, stand in
one transaction with their cancels; what came of all of them, `Settled`, stands in the next one. So whoever
reads the topic knows all: which batch is open, and each message that was taken out. The file of an export is
a function of this topic alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec
from confluent_kafka import Producer

from delayline.names import ClusterNames
from delayline.signing import Keyring
from node.config import ConnectionConfig
from ops.pending.formats import decode_entry
from ops.pending.line import MessageLine
from ops.pending.signed_topic import SignedTopic

FORMAT: Final = 1
TAKEN: Final = "cancelled"
"""The outcome of a cancel whose message is in the export."""
GIVEN_UP: Final = "given-up"
"""In place of an outcome: an operator has said that it cannot be told any more."""


class Batch(msgspec.Struct, frozen=True, kw_only=True, tag_field="what", tag="batch"):
    """Some messages are asked for. `outcomes_from`, `buffer_from`: what is decided of them stands behind
    these offsets.
    """

    format: int = FORMAT
    number: int
    messages: int
    outcomes_from: dict[int, int]
    buffer_from: dict[int, int]


class Asked(msgspec.Struct, frozen=True, kw_only=True, tag_field="what", tag="asked"):
    """One of them: the source of the cancel, and the message as its row had it. `row` and `parent`: see
    `Found`.
    """

    format: int = FORMAT
    batch: int
    index: int
    cancel: str
    row: tuple[int, int]
    parent: int | None
    message: MessageLine


class Instead(msgspec.Struct, frozen=True, kw_only=True, tag_field="what", tag="instead"):
    """What one of them had become by the time of its cancel, where that is another."""

    format: int = FORMAT
    batch: int
    index: int
    message: MessageLine


class Settled(msgspec.Struct, frozen=True, kw_only=True, tag_field="what", tag="settled"):
    """The outcomes of a batch's cancels, in order."""

    format: int = FORMAT
    batch: int
    outcomes: list[str]


class Into(msgspec.Struct, frozen=True, kw_only=True, tag_field="what", tag="into"):
    """Where all that is taken out is moved: a cluster, and the id of its buffer. The first one counts."""

    format: int = FORMAT
    cluster: str
    buffer_id: str


class Forgotten(msgspec.Struct, frozen=True, kw_only=True, tag_field="what", tag="forgotten"):
    """The topic is going to be deleted: nothing follows."""

    format: int = FORMAT


Entry: TypeAlias = Batch | Asked | Instead | Settled | Into | Forgotten

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Entry).decode


@dataclass(slots=True)
class OpenBatch:
    """A batch whose messages are in the journal."""

    batch: Batch
    asked: list[Asked] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    instead: dict[int, MessageLine] = field(default_factory=dict)


@dataclass(slots=True)
class JournalState:
    """How far an export is: the last batch that was settled, and the one that is open. `into`: where it is
    moved, if a move has begun it; `forgotten`: an operator has no more need of it.
    """

    number: int = 0
    open: OpenBatch | None = None
    into: Into | None = None
    forgotten: bool = False
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def taken(self) -> int:
        """The messages in the export."""
        return self.counts.get(TAKEN, 0)


class Journal:
    """Reads and writes the topic."""

    def __init__(self, config: ConnectionConfig, ring: Keyring) -> None:
        self.log = SignedTopic(config, ClusterNames(config.cluster).export, ring)

    def write(self, producer: Producer, entry: Entry) -> None:
        """Sends one entry, in the transaction that is open."""
        self.log.produce(producer, self.log.run, _encode(entry))

    def state(self) -> JournalState:
        """Reads all of it."""
        state = JournalState()
        for _ in self.lines(state):
            pass
        return state

    def lines(self, state: JournalState, export: str = "") -> Iterator[MessageLine]:
        """The messages that were taken out, in order, each at its place; `state` is how far it is by then.

        An entry that does not follow those before it is a copy, and is passed over.
        """
        for offset, value in self.log.records():
            entry: Entry = decode_entry(value, _decode, FORMAT, f"{self.log.topic}, offset {offset}")
            match entry:
                case Batch():
                    if state.open is None and entry.number == state.number + 1:
                        state.open = OpenBatch(entry)
                case Asked():
                    _ask(state.open, entry, offset)
                case Instead():
                    if state.open is not None and entry.batch == state.open.batch.number:
                        state.open.instead[entry.index] = entry.message
                case Into():
                    state.into = state.into or entry
                case Settled():
                    yield from _settle(state, entry, export)
                case Forgotten():
                    state.forgotten = True


def _ask(opened: OpenBatch | None, entry: Asked, offset: int) -> None:
    if opened is None or entry.batch != opened.batch.number or entry.index != len(opened.asked):
        return
    opened.asked.append(entry)
    opened.places.append(offset)


def _settle(state: JournalState, entry: Settled, export: str) -> Iterator[MessageLine]:
    opened = state.open
    if opened is None or entry.batch != opened.batch.number or len(entry.outcomes) != len(opened.asked):
        return
    state.number, state.open = entry.batch, None
    for index, outcome in enumerate(entry.outcomes):
        state.counts[outcome] = state.counts.get(outcome, 0) + 1
        if outcome == TAKEN:
            message = opened.instead.get(index, opened.asked[index].message)
            yield msgspec.structs.replace(message, export=export, place=opened.places[index])
