"""What the broker has acknowledged, and what has come of it: only what is open is held."""

from __future__ import annotations

import threading
from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.attack.expected import Expected, Fate, Kind, Rule

_MOST_FLAWS: Final = 50
_NEVER: Final = float("inf")


@dataclass(slots=True)
class Sent:
    """One batch in the log, from offset `base` on.

    `expected`: of each record, or one for all; empty: nothing must come of it. `whole`: one dead letter may
    stand for all of them. `times`: how often its only record is delivered, each time another occurrence; 0:
    once, as any other.
    """

    what: str
    partition: int
    base: int
    count: int
    expected: Sequence[Expected]
    at_ms: int
    whole: bool = False
    times: int = 0
    probe: bool = False
    seen: set[int] = field(default_factory=set)  # offsets, or occurrences
    letters: int = 0

    @property
    def of_all(self) -> int:
        """How much must come of it."""
        return self.times or self.count

    @property
    def rejected_whole(self) -> bool:
        return self.whole and self.letters == 1 and len(self.seen) == 1

    @property
    def due_ms(self) -> int:
        """When the last of it is due."""
        return self.at_ms + max(one.delay_ms for one in self.expected)

    def of(self, offset: int) -> Expected:
        """What must come of one record."""
        return self.expected[min(offset - self.base, len(self.expected) - 1)]


class Ledger:
    """Compares the two, whichever comes first. For several threads.

    A fate that is read before its request's acknowledgement waits for it. A fate of what is done already, of
    what is nothing, or of what was never acknowledged, is a flaw.
    """

    def __init__(self, topic: str, patience_ms: int, probe_patience_ms: int) -> None:
        self.topic = topic
        self.flaws: list[str] = []
        self.fates: Counter[str] = Counter()
        self.codes: Counter[str] = Counter()
        self.acknowledged = 0
        self.latencies_ms: list[int] = []  # of probes
        self._patience_ms, self._probe_patience_ms = patience_ms, probe_patience_ms
        self._open: dict[int, dict[int, Sent]] = {}  # partition -> base
        self._bases: dict[int, list[int]] = {}
        self._ends: Counter[int] = Counter()  # partition -> behind the last acknowledged offset
        self._early: dict[int, list[Fate]] = {}
        self._lock = threading.Lock()

    # -- what happens

    def end(self, partition: int) -> int:
        """Behind the last offset that was noted."""
        return self._ends[partition]

    def note(self, sent: Sent) -> None:
        """A batch was acknowledged."""
        with self._lock:
            self.acknowledged += sent.count
            if sent.expected:
                self._open.setdefault(sent.partition, {})[sent.base] = sent
                insort(self._bases.setdefault(sent.partition, []), sent.base)
            self._pass(sent.partition, sent.base + sent.count)

    def come(self, fate: Fate) -> None:
        """Something came of a request."""
        with self._lock:
            self._come(fate)

    def look(self, now_ms: float = _NEVER) -> None:
        """Finds what has not come in time. At the end, when nothing more can come: without a time."""
        with self._lock:
            for opened in self._open.values():
                for sent in list(opened.values()):
                    patience_ms = self._probe_patience_ms if sent.probe else self._patience_ms
                    if sent.due_ms + patience_ms < now_ms:
                        self._give_up(sent)
            if now_ms == _NEVER:
                for fate in [fate for early in self._early.values() for fate in early]:
                    self._flaw(f"{self._named(fate)} came of what nobody was told is there")

    def flaw(self, words: str) -> None:
        """Something else was found."""
        with self._lock:
            self._flaw(words)

    # -- what is open

    @property
    def outstanding(self) -> int:
        """Records and occurrences of which nothing has come yet; not those that may be rejected whole."""
        with self._lock:
            return sum(
                sent.of_all - len(sent.seen)
                for opened in self._open.values()
                for sent in opened.values()
                if not sent.rejected_whole
            )

    def oldest(self) -> list[str]:
        """The first open batch of each partition: what stands in the way of the others, if something does."""
        with self._lock:
            firsts = [(bases[0], self._open[at][bases[0]]) for at, bases in self._bases.items() if bases]
        return [f"{self.topic}/{sent.partition}/{base}: {sent.what}" for base, sent in firsts]

    # -- inside the lock

    def _pass(self, partition: int, end: int) -> None:
        self._ends[partition] = max(end, self._ends[partition])
        early = self._early.pop(partition, [])
        for fate in early:
            self._come(fate)

    def _come(self, fate: Fate) -> None:
        if fate.offset >= self._ends[fate.partition]:
            self._early.setdefault(fate.partition, []).append(fate)
            return
        self.fates[fate.kind] += 1
        if fate.kind is Kind.LETTER:
            self.codes[fate.words] += 1
        sent = self._find(fate.partition, fate.offset)
        if sent is None:
            self._flaw(f"{self._named(fate)} came of what is done, is nothing, or was never acknowledged")
            return
        key = fate.occurrence if sent.times else fate.offset
        if key in sent.seen:
            self._flaw(f"{self._named(fate)} came once more; {sent.what}")
            return
        sent.seen.add(key)
        sent.letters += fate.kind is Kind.LETTER
        self._judge(fate, sent)
        if len(sent.seen) == sent.of_all:
            self._close(sent)

    def _judge(self, fate: Fate, sent: Sent) -> None:
        expected = sent.of(fate.offset)
        delivered = fate.kind is Kind.DELIVERED
        wrong = (expected.rule is Rule.DELIVERED and not delivered) or (
            expected.rule is Rule.LETTER and fate.kind is not Kind.LETTER
        )
        if wrong and not (sent.whole and fate.kind is Kind.LETTER):
            self._flaw(f"{self._named(fate)} came, where it was to be {expected.rule}; {sent.what}")
        elif delivered and expected.content not in (None, fate.content):
            self._flaw(f"{self._named(fate)} came altered; {sent.what}")
        elif delivered and expected.place not in (None, fate.place):
            self._flaw(f"{self._named(fate)} came to another place; {sent.what}")
        elif delivered and fate.at_ms < fate.scheduled_for_ms:
            self._flaw(f"{self._named(fate)} came early; {sent.what}")
        if sent.probe:
            self.latencies_ms.append(fate.at_ms - sent.at_ms)

    def _find(self, partition: int, offset: int) -> Sent | None:
        bases = self._bases.get(partition, [])
        place = bisect_right(bases, offset)
        if place == 0:
            return None
        sent = self._open[partition][bases[place - 1]]
        return sent if offset < sent.base + sent.count else None

    def _give_up(self, sent: Sent) -> None:
        if not sent.rejected_whole:
            missing = sent.of_all - len(sent.seen)
            place = f"{self.topic}/{sent.partition}/{sent.base}"
            self._flaw(f"{place}: nothing came of {missing} of {sent.of_all}; {sent.what}")
        self._close(sent)

    def _close(self, sent: Sent) -> None:
        del self._open[sent.partition][sent.base]
        self._bases[sent.partition].remove(sent.base)

    def _named(self, fate: Fate) -> str:
        occurrence = f", occurrence {fate.occurrence}" if fate.occurrence else ""
        return f"{self.topic}/{fate.partition}/{fate.offset}: {fate.kind} ({fate.words}){occurrence}"

    def _flaw(self, words: str) -> None:
        if len(self.flaws) < _MOST_FLAWS:
            self.flaws.append(words)
