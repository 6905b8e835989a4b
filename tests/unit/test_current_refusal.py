"""Of several reasons why a node cannot lead, which one counts; and when it begins anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from node import refusal
from node.current_refusal import CurrentRefusal
from node.refusal import Refusal, RefusalCode

DAMAGED = Refusal(RefusalCode.STORE_DAMAGED, "it is damaged", "Rebuild it.")
CHANGED = Refusal(RefusalCode.SETTINGS_CHANGED, "they are others", "Restore them.")
FULL = Refusal(refusal.DISK_FULL, "it is full", "Make room.")
GAP = Refusal(refusal.RETENTION_GAP, "some is gone", "Accept it.")
NO_BUFFER = Refusal(RefusalCode.BUFFER_MISSING, "it is not there", "See.")


@pytest.fixture
def current_refusal() -> CurrentRefusal:
    return CurrentRefusal()


@pytest.mark.parametrize(
    ("first", "then", "counts"),
    [(DAMAGED, CHANGED, DAMAGED), (FULL, CHANGED, CHANGED), (DAMAGED, FULL, DAMAGED)],
)
def test_the_first_reason_counts_unless_it_may_end_by_itself(
    current_refusal: CurrentRefusal, first: Refusal, then: Refusal, counts: Refusal
) -> None:
    current_refusal.refuse(first)
    current_refusal.refuse(then)
    assert current_refusal.why() == counts


def test_what_lasts_is_said_before_what_passes(current_refusal: CurrentRefusal) -> None:
    current_refusal.note(NO_BUFFER)
    said = [current_refusal.why()]
    current_refusal.lack(GAP)
    said.append(current_refusal.why())
    current_refusal.refuse(FULL)
    assert [*said, current_refusal.why()] == [NO_BUFFER, GAP, FULL]


def test_a_reason_ends_the_round(current_refusal: CurrentRefusal) -> None:
    current_refusal.refuse(FULL)
    assert current_refusal.halt.is_set()


@pytest.mark.parametrize(("why", "lasting"), [(DAMAGED, [DAMAGED]), (FULL, [])])
def test_only_what_an_operator_has_to_restart_it_for_keeps_the_node_up(
    current_refusal: CurrentRefusal, why: Refusal, lasting: list[Refusal]
) -> None:
    current_refusal.refuse(why)
    assert [current_refusal.own] * current_refusal.lasts == lasting


def test_once_the_parts_are_made_what_was_wrong_before_is_no_more(current_refusal: CurrentRefusal) -> None:
    current_refusal.refuse(FULL)
    current_refusal.begin_anew()
    current_refusal.parts_made(current_refusal.own)
    assert (current_refusal.why(), current_refusal.halt.is_set()) == (None, False)


def test_what_has_come_up_while_they_were_made_stays(current_refusal: CurrentRefusal) -> None:
    before = current_refusal.own
    current_refusal.refuse(FULL)
    current_refusal.parts_made(before)
    assert current_refusal.why() == FULL


def test_a_disk_that_is_not_there_has_no_room_if_it_was_full(
    current_refusal: CurrentRefusal, tmp_path: Path
) -> None:
    lacked = [current_refusal.lacks_room(tmp_path / "none")]
    current_refusal.refuse(FULL)
    assert [*lacked, current_refusal.lacks_room(tmp_path / "none")] == [False, True]
