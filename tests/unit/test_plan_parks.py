"""What is planned for a message whose target has no leader, or whose time zone is unknown."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from delayline.recurrence import Recurrence
from delayline.rejects import RejectCode
from delayline.wire import H_ERROR, Schedule
from node.core.plan import Plan, carried_by
from node.core.poison import Poison, Poisoned
from node.core.ports import TARGET_UNAVAILABLE, TARGET_UNKNOWN, Outgoing, TargetSnapshot
from node.core.written_back import FIRST_PARK_MS, LONGEST_PARK_MS, park_ms
from store.checkpoint import nothing
from store.keys import RowKey
from store.rows import ScheduledRow, encode
from store.selection import Selection
from tests.unit.planning import NAMES, Leaderless, Limited, Unheard, read_again, stamp

KEY = (1_000, 0, 7)
NOW_MS = 2_000
OWN = "delay.buffer/0/7"
ROW = ScheduledRow(b"k", b"v", [("own", b"h")], "a", "orders", -1, None, 900, None, None, None, 1, None)
HOURLY = Recurrence(None, 3_600_000, 1_000, None, None, None, "all")

NOWHERE = Recurrence("0 9 * * *", 0, 1_000, "Europe/Nowhere", None, None, "all")
IN_NOWHERE = msgspec.structs.replace(ROW, occurrence=4, recurrence=NOWHERE)


def planned(
    row: ScheduledRow,
    max_parks: int = 3,
    poison: Poison | None = None,
    paused: frozenset[str] = frozenset(),
    skip_to: RowKey | None = None,
    targets: TargetSnapshot | None = None,
) -> dict[str, Outgoing]:
    """The records that go out for a row, by topic."""
    plan = Plan(NAMES, 0, 1, NOW_MS, targets or Leaderless(), poison or {}, max_parks, stamp())
    due = [(KEY, encode(row))]
    plan.add(carried_by(Selection([], due, [], {}, nothing([0]), skip_to, paused_targets=paused)))
    assert len({record.topic for record in plan.records}) == len(plan.records), "one to each topic"
    return {record.topic: record for record in plan.records}


def written_back(row: ScheduledRow) -> Schedule:
    """The request that is written back for a row."""
    return read_again(planned(row)[NAMES.buffer], NOW_MS)


def test_a_parked_message_comes_again_as_it_was_but_later() -> None:
    again = written_back(ROW)
    delay_ms = park_ms(KEY, 1)
    expected = Schedule(
        "a", 900, NOW_MS + delay_ms, "orders", b"k", -1, None, [("own", b"h")], 7, OWN, 2, None
    )
    assert again == expected._replace(serial=again.serial)


def test_a_parked_message_is_an_outcome() -> None:
    record = planned(ROW)[NAMES.outcomes]
    outcome = json.loads(record.value or b"")
    assert record.key == OWN.encode()
    assert (outcome["outcome"], outcome["code"], outcome["message"]) == ("parked", TARGET_UNAVAILABLE, OWN)


@pytest.mark.parametrize(("attempt", "goes"), [(3, NAMES.buffer), (4, NAMES.dead_letter)])
def test_a_message_is_parked_so_often_and_then_a_dead_letter(attempt: int, goes: str) -> None:
    records = planned(msgspec.structs.replace(ROW, attempt=attempt), max_parks=3)
    assert set(records) == {goes, NAMES.outcomes}
    assert (H_ERROR, TARGET_UNAVAILABLE.encode()) in records[goes].headers or goes == NAMES.buffer


def test_a_parked_occurrence_comes_again_with_what_follows_undecided() -> None:
    again = written_back(msgspec.structs.replace(ROW, occurrence=4, recurrence=HOURLY))
    assert (again.occurrence, again.scheduled_for_ms, again.recurrence) == (4, 900, HOURLY)


def test_an_occurrence_that_is_given_up_is_followed_by_the_next_one() -> None:
    last = msgspec.structs.replace(ROW, occurrence=4, recurrence=HOURLY, attempt=4)
    records = planned(last, max_parks=3)
    assert set(records) == {NAMES.dead_letter, NAMES.outcomes, NAMES.buffer}


def test_a_message_that_has_expired_is_not_parked() -> None:
    assert NAMES.buffer not in planned(msgspec.structs.replace(ROW, expire_at_ms=NOW_MS - 1))


def test_a_chain_whose_time_zone_is_unknown_here_is_parked_as_it_is() -> None:
    again = written_back(IN_NOWHERE)
    delay_ms = park_ms(KEY, 1)
    assert (again.due_ms, again.scheduled_for_ms) == (NOW_MS + delay_ms, 900)
    assert (again.occurrence, again.attempt, again.recurrence) == (4, 2, IN_NOWHERE.recurrence)
    records = planned(IN_NOWHERE)
    assert set(records) == {NAMES.buffer, NAMES.outcomes}
    outcome = json.loads(records[NAMES.outcomes].value or b"")
    assert (outcome["outcome"], outcome["code"]) == ("parked", "bad-time-zone")


@pytest.mark.parametrize("changes", [{"attempt": 4}, {"occurrence": None}], ids=["parked often", "the first"])
def test_a_time_zone_that_stays_or_always_was_unknown_makes_a_dead_letter(changes: dict[str, Any]) -> None:
    records = planned(msgspec.structs.replace(IN_NOWHERE, **changes), max_parks=3)
    assert set(records) == {NAMES.dead_letter, NAMES.outcomes}
    assert (H_ERROR, b"bad-time-zone") in records[NAMES.dead_letter].headers


@pytest.mark.parametrize("attempt", [1, 2, 9, 10, 1_000_000])
def test_the_time_of_a_park_doubles_up_to_the_longest_and_varies_by_half(attempt: int) -> None:
    full_ms = min(FIRST_PARK_MS * 2 ** min(attempt - 1, 64), LONGEST_PARK_MS)
    times_ms = {park_ms((0, 0, offset), attempt) for offset in range(500)}
    assert full_ms // 2 <= min(times_ms) < max(times_ms) <= full_ms
    assert len(times_ms) > 250, "they do not all come back at once"


@pytest.mark.parametrize(
    "how",
    [{}, {"paused": frozenset(("orders",))}, {"skip_to": KEY}],
    ids=["parked", "parked unattempted", "skipped"],
)
def test_what_the_brokers_refuse_as_it_is_written_back_is_a_dead_letter(how: dict[str, Any]) -> None:
    chain = msgspec.structs.replace(ROW, occurrence=4, recurrence=HOURLY)
    records = planned(chain, poison={KEY: Poisoned(RejectCode.TOO_LARGE, "refused")}, **how)
    assert set(records) == {NAMES.dead_letter, NAMES.outcomes}
    assert (H_ERROR, b"too-large") in records[NAMES.dead_letter].headers


def test_what_goes_to_a_paused_target_comes_again_as_it_was_and_as_its_first_attempt() -> None:
    records = planned(ROW, paused=frozenset(("orders",)))
    again = read_again(records[NAMES.buffer], NOW_MS)
    assert (again.attempt, again.scheduled_for_ms, again.id) == (1, 900, "a")
    assert again.due_ms > NOW_MS
    assert json.loads(records[NAMES.outcomes].value or b"")["code"] == "target-paused"


@pytest.mark.parametrize("recurrence", [None, HOURLY], ids=["one", "of a chain"])
def test_what_goes_to_a_target_that_nobody_has_looked_up_comes_again_soon_as_it_was(
    recurrence: Recurrence | None,
) -> None:
    """However often; and where nothing is parked, too: it is no failed attempt, and no dead letter."""
    for scheduled_for_ms in (0, 900):
        row = msgspec.structs.replace(
            ROW,
            scheduled_for_ms=scheduled_for_ms,
            recurrence=recurrence,
            occurrence=recurrence and 4,
            attempt=3,
        )
        records = planned(row, max_parks=0, targets=Unheard())
        assert set(records) == {NAMES.buffer, NAMES.outcomes}
        again = read_again(records[NAMES.buffer], NOW_MS)
        assert (again.attempt, again.scheduled_for_ms, again.occurrence) == (
            3,
            scheduled_for_ms,
            row.occurrence,
        )
        assert NOW_MS + FIRST_PARK_MS // 2 <= again.due_ms <= NOW_MS + FIRST_PARK_MS
        outcome = json.loads(records[NAMES.outcomes].value or b"")
        assert (outcome["outcome"], outcome["code"]) == ("parked", TARGET_UNKNOWN)


def test_a_message_that_was_refused_is_a_dead_letter_though_its_target_is_not_known() -> None:
    records = planned(ROW, poison={KEY: Poisoned(RejectCode.UNDELIVERABLE, "refused")}, targets=Unheard())
    assert (H_ERROR, b"undeliverable") in records[NAMES.dead_letter].headers


TOO_LARGE_TO_COME_BACK = Poisoned(RejectCode.TOO_LARGE, "the buffer takes less", is_of_what_follows=True)
LAST = Recurrence(None, 3_600_000, 1_000, None, None, 1, "all")


@pytest.mark.parametrize(
    "row",
    [ROW, msgspec.structs.replace(ROW, occurrence=1, recurrence=LAST)],
    ids=["one", "the last of a chain"],
)
def test_what_was_too_large_to_be_parked_is_delivered_where_it_need_not_be(row: ScheduledRow) -> None:
    records = planned(row, poison={KEY: TOO_LARGE_TO_COME_BACK}, targets=Limited(orders=10_000))
    assert set(records) == {"orders"}


@pytest.mark.parametrize(
    ("row", "targets", "paused"),
    [
        (ROW, Unheard(), frozenset()),
        (ROW, Leaderless(), frozenset()),
        (ROW, Limited(orders=10_000), frozenset(("orders",))),
        (msgspec.structs.replace(ROW, occurrence=4, recurrence=HOURLY), Limited(orders=10_000), frozenset()),
        (IN_NOWHERE, Limited(orders=10_000), frozenset()),
    ],
    ids=["not known yet", "unavailable", "paused", "a chain that goes on", "an unknown time zone"],
)
def test_what_was_too_large_to_be_written_back_is_a_dead_letter_where_it_has_to_be(
    row: ScheduledRow, targets: TargetSnapshot, paused: frozenset[str]
) -> None:
    records = planned(row, poison={KEY: TOO_LARGE_TO_COME_BACK}, targets=targets, paused=paused)
    assert set(records) == {NAMES.dead_letter, NAMES.outcomes}
    assert (H_ERROR, b"too-large") in records[NAMES.dead_letter].headers


def test_the_last_of_a_chain_is_skipped_though_it_was_too_large_to_be_parked() -> None:
    last = msgspec.structs.replace(ROW, occurrence=1, recurrence=LAST)
    records = planned(last, poison={KEY: TOO_LARGE_TO_COME_BACK}, skip_to=KEY)
    assert json.loads(records[NAMES.outcomes].value or b"")["outcome"] == "skipped"


def test_an_occurrence_whose_time_zone_is_unknown_here_cannot_be_skipped_and_is_parked() -> None:
    records = planned(IN_NOWHERE, skip_to=KEY)
    assert set(records) == {NAMES.buffer, NAMES.outcomes}
    assert json.loads(records[NAMES.outcomes].value or b"")["outcome"] == "parked"
