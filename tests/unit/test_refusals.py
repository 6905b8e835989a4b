"""Of several reasons why a node cannot lead, which one counts; and when it begins anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from node import refusal
from node.refusal import Refusal, RefusalCode
from node.refusals import Refusals

DAMAGED = Refusal(RefusalCode.STORE_DAMAGED, "it is damaged", "Rebuild it.")
CHANGED = Refusal(RefusalCode.SETTINGS_CHANGED, "they are others", "Restore them.")
FULL = Refusal(refusal.DISK_FULL, "it is full", "Make room.")
GAP = Refusal(refusal.RETENTION_GAP, "some is gone", "Accept it.")
NO_BUFFER = Refusal(RefusalCode.BUFFER_MISSING, "it is not there", "See.")


@pytest.fixture
def refusals() -> Refusals:
    return Refusals()


@pytest.mark.parametrize(
    ("first", "then", "counts"),
    [(DAMAGED, CHANGED, DAMAGED), (FULL, CHANGED, CHANGED), (DAMAGED, FULL, DAMAGED)],
)
def test_the_first_reason_counts_unless_it_may_end_by_itself(
    refusals: Refusals, first: Refusal, then: Refusal, counts: Refusal
) -> None:
    refusals.refuse(first)
    refusals.refuse(then)
    assert refusals.why() == counts


def test_what_lasts_is_said_before_what_passes(refusals: Refusals) -> None:
    refusals.note(NO_BUFFER)
    said = [refusals.why()]
    refusals.lack(GAP)
    said.append(refusals.why())
    refusals.refuse(FULL)
    assert [*said, refusals.why()] == [NO_BUFFER, GAP, FULL]


def test_a_reason_ends_the_round(refusals: Refusals) -> None:
    refusals.refuse(FULL)
    assert refusals.halt.is_set()


@pytest.mark.parametrize(("why", "lasting"), [(DAMAGED, [DAMAGED]), (FULL, [])])
def test_only_what_an_operator_has_to_restart_it_for_keeps_the_node_up(
    refusals: Refusals, why: Refusal, lasting: list[Refusal]
) -> None:
    refusals.refuse(why)
    assert [refusals.own] * refusals.lasts == lasting


def test_once_the_parts_are_made_what_was_wrong_before_is_no_more(refusals: Refusals) -> None:
    refusals.refuse(FULL)
    refusals.begin_anew()
    refusals.parts_made(refusals.own)
    assert (refusals.why(), refusals.halt.is_set()) == (None, False)


def test_what_has_come_up_while_they_were_made_stays(refusals: Refusals) -> None:
    before = refusals.own
    refusals.refuse(FULL)
    refusals.parts_made(before)
    assert refusals.why() == FULL


def test_a_disk_that_is_not_there_has_no_room_if_it_was_full(refusals: Refusals, tmp_path: Path) -> None:
    lacked = [refusals.lacks_room(tmp_path / "none")]
    refusals.refuse(FULL)
    assert [*lacked, refusals.lacks_room(tmp_path / "none")] == [False, True]
