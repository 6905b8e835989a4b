"""What the attack sends: the same for the same seed, and within what brokers take."""

from __future__ import annotations

import pytest

from delayline.settings import BUFFER_MAX_MESSAGE_BYTES
from tests.attack.batches import KINDS, Attacks
from tests.attack.expected import Rule


def drawn(seed: int, count: int, *only: str) -> list[bytes]:
    attacks = Attacks(seed, "c", only)
    return [attacks.draw().batch.encode() for _ in range(count)]


def test_a_seed_is_a_whole_attack() -> None:
    assert drawn(7, 100) == drawn(7, 100)
    assert drawn(7, 20) != drawn(8, 20)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_fits_the_buffer_and_says_what_must_come_of_it(kind: str) -> None:
    attacks = Attacks(2, "c", (kind,))
    for _ in range(8):
        attack = attacks.draw()
        assert attack.kind == kind
        assert len(attack.batch.encode()) <= BUFFER_MAX_MESSAGE_BYTES
        assert kind == "refused" or len(attack.expected) in (1, attack.batch.count)


def test_sound_messages_are_among_the_hostile_ones() -> None:
    attacks = Attacks(3, "c")
    rules = {expected.rule for _ in range(200) for expected in attacks.draw().expected}
    assert rules == set(Rule)
