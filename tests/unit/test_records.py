"""What one transaction sends: in order, whatever is made when, and the same when it is asked for again."""

from __future__ import annotations

import msgspec

from delayline.rejects import RejectCode
from node.core.plan import Plan, carried_by
from node.core.poison import Poisoned
from store.checkpoint import nothing
from store.keys import RowKey
from store.rows import RejectRow, ScheduledRow, encode
from store.selection import Selection
from tests.unit.planning import NAMES, Limited, stamp

PLAIN = ScheduledRow(b"k", b"v", [("own", b"h")], None, "orders", -1, None, 900, None, None, None, 1, None)
TO_A_PARTITION = msgspec.structs.replace(PLAIN, target_partition=0)
EXPIRES = msgspec.structs.replace(PLAIN, expire_at_ms=5_000)
ELSEWHERE = msgspec.structs.replace(PLAIN, target_topic="invoices")
NOWHERE = msgspec.structs.replace(PLAIN, target_topic="missing")


def planned(*rows: ScheduledRow | RejectRow, poison: frozenset[int] = frozenset()) -> Plan:
    """Due in this order; `poison`: the offsets of those that were refused."""
    due = [((1_000, 0, offset), encode(row)) for offset, row in enumerate(rows)]
    targets = Limited(**{"orders": 10_000, "invoices": 10_000, NAMES.dead_letter: 10_000})
    refused: dict[RowKey, Poisoned] = {
        (1_000, 0, offset): Poisoned(RejectCode.UNDELIVERABLE, "refused") for offset in poison
    }
    plan = Plan(NAMES, 0, 1, 2_000, targets, refused, 0, stamp())
    plan.add(carried_by(Selection([], due, [], {}, nothing([0]))))
    return plan


def sent(plan: Plan) -> list[tuple[str, int]]:
    """The topic and the offset of each, without the outcomes."""
    return [(one.topic, one.row[2]) for one in plan.records if one.row is not None]


def test_what_is_made_when_it_is_sent_keeps_its_place_among_what_is_planned() -> None:
    plan = planned(PLAIN, TO_A_PARTITION, PLAIN, ELSEWHERE, EXPIRES, NOWHERE, PLAIN)
    orders = [("orders", offset) for offset in (0, 1, 2)]
    assert sent(plan) == [
        *orders, ("invoices", 3), ("orders", 4), (NAMES.dead_letter, 5), ("orders", 6)
    ]  # fmt: skip


def test_all_are_there_again_when_they_are_asked_for_again() -> None:
    plan = planned(PLAIN, NOWHERE, PLAIN)
    assert list(plan.records) == list(plan.records)
    assert len(plan.records) == len(list(plan.records))


def test_the_topics_of_all_are_known_before_any_is_made() -> None:
    plan = planned(PLAIN, ELSEWHERE, NOWHERE)
    assert plan.records.topics == {"orders", "invoices", NAMES.dead_letter, NAMES.outcomes}


def test_a_plain_row_and_one_that_was_planned_alone_make_the_same_record() -> None:
    """All of a plan that has poison is planned one by one."""
    at_once, one_by_one = planned(PLAIN), planned(PLAIN, NOWHERE, poison=frozenset({1}))
    assert next(iter(at_once.records)) == next(iter(one_by_one.records))
