"""The attack's ledger finds each thing that can be wrong, and nothing where all is well."""

from __future__ import annotations

from typing import Any

import pytest

from tests.attack.expected import Expected, Fate, Kind, Rule, content_of, place_of
from tests.attack.ledger import Ledger, Sent

PATIENCE_MS, PROBE_PATIENCE_MS = 1_000, 100
CONTENT, PLACE = content_of(b"v", [(b"h", None)]), place_of(b"topic", b"k")
SOUND = Expected(Rule.DELIVERED, CONTENT, PLACE)
BAD = Expected(Rule.LETTER)
ANY = Expected(Rule.ONE)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger("b", PATIENCE_MS, PROBE_PATIENCE_MS)


def sent(*expected: Expected, base: int = 10, count: int | None = None, **fields: Any) -> Sent:
    return Sent("what was sent", 0, base, count or len(expected), expected, at_ms=5_000, **fields)


def fate(kind: Kind, offset: int, **fields: Any) -> Fate:
    return Fate(kind, 0, offset, "said", **fields)


def delivered(offset: int, **fields: Any) -> Fate:
    how = {"content": CONTENT, "place": PLACE, "at_ms": 5_050, "scheduled_for_ms": 5_000, **fields}
    return fate(Kind.DELIVERED, offset, **how)


def flaws(ledger: Ledger) -> list[str]:
    ledger.look()
    return ledger.flaws


def test_what_comes_as_it_should_is_no_flaw(ledger: Ledger) -> None:
    ledger.note(sent(SOUND, BAD, ANY, ANY, ANY))
    for came in (
        delivered(10),
        fate(Kind.LETTER, 11),
        fate(Kind.LETTER, 12),
        fate(Kind.ANSWERED, 13),
        fate(Kind.REMOVED, 14),
    ):
        ledger.come(came)
    assert (ledger.outstanding, flaws(ledger)) == (0, [])


def test_a_fate_may_be_read_before_the_acknowledgement(ledger: Ledger) -> None:
    ledger.come(delivered(10))
    ledger.note(sent(SOUND))
    assert (ledger.outstanding, flaws(ledger)) == (0, [])


@pytest.mark.parametrize(
    ("expected", "came", "words"),
    [
        (SOUND, delivered(10, content=b"other"), "altered"),
        (SOUND, delivered(10, place=b"other"), "another place"),
        (SOUND, delivered(10, at_ms=4_999), "early"),
        (SOUND, fate(Kind.LETTER, 10), "was to be delivered"),
        (BAD, delivered(10), "was to be dead-lettered"),
        (ANY, delivered(11), "nobody was told is there"),
        (ANY, delivered(9), "never acknowledged"),
    ],
)
def test_what_comes_otherwise_is_a_flaw(ledger: Ledger, expected: Expected, came: Fate, words: str) -> None:
    ledger.note(sent(expected))
    ledger.come(came)
    assert any(words in flaw for flaw in flaws(ledger))


@pytest.mark.parametrize("second", [Kind.DELIVERED, Kind.LETTER])
@pytest.mark.parametrize("beside", [(), (ANY,)])
def test_what_comes_twice_is_a_flaw(ledger: Ledger, second: Kind, beside: tuple[Expected, ...]) -> None:
    ledger.note(sent(ANY, *beside))
    ledger.come(fate(Kind.DELIVERED, 10))
    ledger.come(fate(second, 10))
    assert len(ledger.flaws) == 1


def test_what_does_not_come_in_time_is_a_flaw(ledger: Ledger) -> None:
    ledger.note(sent(ANY._replace(delay_ms=500), SOUND))
    ledger.come(delivered(11))
    ledger.look(5_000 + 500 + PATIENCE_MS)
    assert ledger.flaws == []
    ledger.look(5_001 + 500 + PATIENCE_MS)
    assert ledger.flaws == ["b/0/10: nothing came of 1 of 2; what was sent"]


def test_a_probe_that_is_late_is_a_flaw_and_one_that_comes_is_timed(ledger: Ledger) -> None:
    ledger.note(sent(SOUND, probe=True))
    ledger.note(sent(SOUND, base=11, probe=True))
    ledger.come(delivered(10))
    ledger.look(5_001 + PROBE_PATIENCE_MS)
    assert ledger.latencies_ms == [50]
    assert len(ledger.flaws) == 1


@pytest.mark.parametrize("kind", [Kind.DELIVERED, Kind.LETTER, Kind.ANSWERED])
def test_whatever_comes_of_what_is_nothing_is_a_flaw(ledger: Ledger, kind: Kind) -> None:
    ledger.come(fate(kind, 10))
    ledger.note(sent(count=2))
    assert (ledger.outstanding, ledger.acknowledged, len(flaws(ledger))) == (0, 2, 1)
    ledger.come(fate(kind, 11))
    assert len(ledger.flaws) == 2


def test_where_nothing_is_to_come_nothing_is_waited_for(ledger: Ledger) -> None:
    ledger.note(sent(count=2))
    assert (ledger.outstanding, ledger.acknowledged, flaws(ledger)) == (0, 2, [])


def test_one_letter_stands_for_a_whole_batch_where_it_may(ledger: Ledger) -> None:
    for base, whole in ((10, True), (20, False)):
        ledger.note(sent(ANY, base=base, count=5, whole=whole))
        ledger.come(fate(Kind.LETTER, base + 2))
    assert ledger.outstanding == 4
    assert flaws(ledger) == ["b/0/20: nothing came of 4 of 5; what was sent"]


@pytest.mark.parametrize("kinds", [(Kind.LETTER, Kind.LETTER), (Kind.DELIVERED,)])
def test_half_of_a_batch_is_a_flaw(ledger: Ledger, kinds: tuple[Kind, ...]) -> None:
    ledger.note(sent(ANY, count=5, whole=True))
    for offset, kind in enumerate(kinds, 10):
        ledger.come(fate(kind, offset))
    assert len(flaws(ledger)) == 1


def test_a_recurring_message_comes_once_for_each_occurrence(ledger: Ledger) -> None:
    ledger.note(sent(SOUND, times=2))
    ledger.come(delivered(10, occurrence=1))
    assert ledger.outstanding == 1
    ledger.come(delivered(10, occurrence=2))
    assert (ledger.outstanding, ledger.flaws) == (0, [])
    ledger.come(delivered(10, occurrence=2))
    assert len(ledger.flaws) == 1


def test_the_first_batch_without_a_fate_is_named(ledger: Ledger) -> None:
    ledger.note(sent(SOUND))
    ledger.note(sent(SOUND, base=11))
    ledger.come(delivered(11))
    assert ledger.oldest() == ["b/0/10: what was sent"]
