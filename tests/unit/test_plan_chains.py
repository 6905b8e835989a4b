"""What is planned for a recurring message: what follows it, and what ends it."""

from __future__ import annotations

import msgspec
import pytest

from delayline.outcome_kinds import OutcomeKind
from delayline.recurrence import Recurrence
from delayline.rejects import RejectCode
from delayline.wire import H_ERROR
from node.core.plan import Plan, carried_by
from node.core.poison import Poison, Poisoned
from node.core.ports import Outgoing
from store.checkpoint import nothing
from store.moves import Resolution
from store.rows import IndexEntry, RescheduleRow, ScheduledRow, encode
from store.selection import Selection
from tests.unit.planning import NAMES, Limited, read_again, stamp

KEY = (1_000, 0, 7)
NOW_MS = 2_000
EVERY_MINUTE = Recurrence(None, 60_000, 1_000, None, None, None, "all")
DAILY = Recurrence("0 9 * * *", 0, 1_000, None, None, None, "all")
ROW = ScheduledRow(
    b"a", b"v", [("own", b"h")], "a", "orders", -1, None, 900, None, None, None, 1, 4, EVERY_MINUTE
)


def planned(selection: Selection, poison: Poison | None = None) -> dict[str, Outgoing]:
    """The records that go out, by topic."""
    targets = Limited(**{"orders": 10_000, NAMES.dead_letter: 10_000})
    plan = Plan(NAMES, 0, 1, NOW_MS, targets, poison or {}, 3, stamp())
    plan.add(carried_by(selection))
    return {record.topic: record for record in plan.records}


def of(row: ScheduledRow) -> Selection:
    return Selection([], [(KEY, encode(row))], [], {}, nothing([0]))


def test_an_occurrence_is_delivered_and_followed_by_the_next_one() -> None:
    records = planned(of(ROW))
    assert set(records) == {"orders", NAMES.buffer}
    following = read_again(records[NAMES.buffer], NOW_MS)
    assert (following.occurrence, following.due_ms, following.parent) == (5, 60_900, 7)


@pytest.mark.parametrize(
    "row",
    [ROW, msgspec.structs.replace(ROW, occurrence=None, recurrence=DAILY)],
    ids=["an occurrence", "the first to be found"],
)
def test_what_the_brokers_refuse_for_what_it_is_ends_the_chain(row: ScheduledRow) -> None:
    records = planned(of(row), {KEY: Poisoned(RejectCode.UNDELIVERABLE, "refused")})
    assert set(records) == {NAMES.dead_letter, NAMES.outcomes}
    assert (H_ERROR, b"undeliverable") in records[NAMES.dead_letter].headers


@pytest.mark.parametrize(("expire_at_ms", "goes"), [(5_000, "orders"), (1_999, NAMES.dead_letter)])
def test_an_expiry_that_a_reschedule_has_given_is_that_of_one_delivery(expire_at_ms: int, goes: str) -> None:
    records = planned(of(msgspec.structs.replace(ROW, expire_at_ms=expire_at_ms)))
    assert goes in records
    assert read_again(records[NAMES.buffer], NOW_MS).expire_at_ms is None


def test_a_reschedule_begins_the_count_of_parks_anew() -> None:
    parked = msgspec.structs.replace(ROW, attempt=3, root="delay.buffer/0/2", parent=5)
    move = RescheduleRow(b"a", None, [], "a", 90_000, None)
    resolution = Resolution(
        OutcomeKind.RESCHEDULED, IndexEntry(1_000, 6, 5, None), encode(parked), KEY[2], None
    )
    records = planned(Selection([], [(KEY, encode(move))], [], {KEY: resolution}, nothing([0])))
    moved = read_again(records[NAMES.buffer], NOW_MS)
    assert (moved.attempt, moved.occurrence, moved.due_ms) == (1, 4, 90_000)
