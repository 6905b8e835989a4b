"""Sending requests of dead letters again: first a look at what there is, then the requests themselves."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from delayline import DelayProducer, Receipt
from delayline.errors import DelaylineError
from delayline.names import ClusterNames, parse_source
from delayline.settings import ClusterSettings
from delayline.wire import H_ID
from node.config import KafkaConfig
from ops.clients.records import records_at
from ops.dead_letter.choice import Choice, Chooser, LetterFate
from ops.dead_letter.letter import Letter
from ops.dead_letter.search import NO_LETTER, LetterFilter, age_order, find, find_at
from ops.dead_letter.since import Since, look_since
from store.keys import RecordId

_PRODUCER: Final = {
    "message.max.bytes": 1_000_000_000,  # the brokers' limits decide: they took the request once
    "delivery.timeout.ms": 30_000,  # an operator waits
    "log_level": 0,
}
_BLOCK_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class LettersToRetry:
    """Which letters to send again: those of `record_ids`, or if it is empty the oldest `limit` wanted."""

    wanted: LetterFilter
    record_ids: frozenset[RecordId]
    limit: int | None
    keep_time: bool
    now_ms: int


class Group(NamedTuple):
    """Letters that have the same fate."""

    fate: LetterFate
    code: str
    target: str | None


@dataclass(slots=True)
class Tally:
    """How many letters have which fate; `expired` counts those to send whose `delay-expire-at` has passed."""

    groups: Counter[Group] = field(default_factory=Counter)
    expired: int = 0

    def note(self, letter: Letter, choice: Choice) -> None:
        """Counts a letter."""
        self.groups[Group(choice.fate, letter.code or NO_LETTER, letter.target)] += 1
        self.expired += choice.expired

    @property
    def to_send(self) -> int:
        """How many can be sent again."""
        return sum(count for group, count in self.groups.items() if group.fate == "send")


@dataclass(slots=True)
class SentLetters:
    """What was acknowledged, by the letter's record id; `error` is what ended the sending too early."""

    sources: dict[RecordId, str] = field(default_factory=dict)
    error: Exception | None = None

    def answered(self, record_id: RecordId, receipt: Receipt) -> None:
        """Takes the answer to one request."""
        if receipt.source is not None:
            self.sources[record_id] = receipt.source
        else:
            self.error = self.error or receipt.error


@dataclass(frozen=True, slots=True)
class LetterSurvey:
    """The letters that were found, and how to decide about each; what they hold is read once more."""

    config: KafkaConfig
    wanted: LetterFilter
    picked: frozenset[RecordId]
    chooser: Chooser

    def choices(self) -> Iterator[tuple[Letter, Choice]]:
        """Each letter with what becomes of it, partition by partition from the oldest one on."""
        if not self.picked:
            return
        named = self.chooser.named
        found = find_at(self.config, named) if named else find(self.config, self.wanted)
        for letter in found:
            if letter.record_id in self.picked:
                yield letter, self.chooser.choose(letter)

    def tally(self) -> Tally:
        """The counts of a dry run."""
        tally = Tally()
        for letter, choice in self.choices():
            tally.note(letter, choice)
        return tally


def survey(config: KafkaConfig, settings: ClusterSettings, asked: LettersToRetry) -> LetterSurvey:
    """Finds the letters, and what the buffer has seen since.

    Raises NotFoundError if a letter or a topic is missing, and what says that Kafka does not answer.
    """
    letters = _light(config, asked)
    since = Since()
    if letters:
        ids = {raw_id for letter in letters if (raw_id := letter.first(H_ID)) is not None}
        since = look_since(config, min(letter.at_ms for letter in letters), ids)
    chooser = Chooser(
        settings,
        asked.wanted,
        asked.record_ids,
        since,
        _null_values(config, letters),
        asked.now_ms,
        asked.keep_time,
    )
    return LetterSurvey(config, asked.wanted, frozenset(letter.record_id for letter in letters), chooser)


def _light(config: KafkaConfig, asked: LettersToRetry) -> list[Letter]:
    """The letters asked for, with a mark for a value: what they hold may be more than there is memory."""
    found = find_at(config, asked.record_ids) if asked.record_ids else find(config, asked.wanted)
    light = (replace(letter, value=None if letter.value is None else b"") for letter in found)
    return list(light) if asked.limit is None else heapq.nsmallest(asked.limit, light, key=age_order)


def _null_values(config: KafkaConfig, letters: Iterable[Letter]) -> frozenset[str]:
    """Sources of requests without a value: their letters have lost none."""
    buffer = ClusterNames(config.cluster).buffer
    sources: dict[RecordId, str] = {}
    for letter in letters:
        if letter.value is None and letter.is_schedule:
            with suppress(ValueError):  # of a record that is no letter
                topic, *record_id = parse_source(letter.source)
                sources |= {(record_id[0], record_id[1]): letter.source} if topic == buffer else {}
    found = records_at(config, buffer, sources) if sources else ()
    return frozenset(sources[one.partition, one.offset] for one in found if one.value is None)


def send(found: LetterSurvey) -> SentLetters:
    """Sends the requests, idempotently, until one fails; waits for every answer."""
    config, partitions = found.config, found.chooser.settings.partitions
    properties = _PRODUCER | config.client_config()
    return send_with(
        lambda: DelayProducer(
            properties, cluster=config.cluster, max_block_s=_BLOCK_S, partitions=partitions
        ),
        found.choices(),
    )


def send_with(make: Callable[[], DelayProducer], choices: Iterable[tuple[Letter, Choice]]) -> SentLetters:
    """`send` with another producer."""
    sent = SentLetters()
    try:
        with make() as producer:
            for letter, choice in choices:
                if sent.error is not None:
                    break
                if choice.request is not None:
                    _send_one(producer, letter.record_id, choice, sent)
    except DelaylineError as error:
        sent.error = sent.error or error
    return sent


def _send_one(producer: DelayProducer, record_id: RecordId, choice: Choice, sent: SentLetters) -> None:
    assert choice.request is not None, "what is not to be sent has no request"
    producer.send(choice.request, on_delivery=lambda receipt: sent.answered(record_id, receipt))
