from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayline.rejects import RejectCode
from delayline.wire import H_ERROR, H_ERROR_DETAIL, H_SOURCE, Header
from node.core.plan import Plan, carried_by
from node.core.poison import Poison, Poisoned
from node.core.ports import Outgoing, SelectionTargets
from node.core.sizes import batch_bytes as counted_bytes
from store.checkpoint import nothing
from store.rows import RejectRow, ScheduledRow, encode
from store.selection import Selection
from tests.integration.raw_produce import batch_bytes
from tests.unit.planning import NAMES, Leaderless, Limited, stamp

KEY = (1_000, 0, 7)
SERVICES = [H_SOURCE, H_ERROR, H_ERROR_DETAIL]


def sent(row: ScheduledRow | RejectRow, letter_limit_bytes: int, poison: Poison | None = None) -> Outgoing:
    """The record that goes out for a row."""
    targets = Limited(**{"orders": 10_000, NAMES.dead_letter: letter_limit_bytes})
    plan = Plan(NAMES, 0, 1, 2_000, targets, poison or {}, 0, stamp())
    plan.add(carried_by(Selection([], [(KEY, encode(row))], [], {}, nothing([0]))))
    (record,) = (one for one in plan.records if one.topic != NAMES.outcomes)
    return record


def scheduled(target: str, key: bytes = b"k", value: bytes = b"v", header: bytes = b"h") -> ScheduledRow:
    return ScheduledRow(key, value, [("own", header)], None, target, -1, None, 0, None, None, None, 1, None)


def names(record: Outgoing) -> list[str]:
    return [name for name, _ in record.headers]


def test_a_dead_letter_is_the_whole_request_if_it_fits() -> None:
    letter = sent(scheduled("missing"), 1_000)
    assert (letter.key, letter.value, names(letter)) == (b"k", b"v", ["own", *SERVICES])


@pytest.mark.parametrize(
    ("row", "left"),
    [
        (scheduled("missing", value=b"v" * 900), (b"k", None, ["own", *SERVICES])),
        (scheduled("missing", header=b"h" * 900), (b"k", None, SERVICES)),
        (scheduled("missing", key=b"k" * 900), (None, None, SERVICES)),
    ],
    ids=["value", "headers", "key"],
)
def test_a_dead_letter_goes_without_what_does_not_fit(row: ScheduledRow, left: object) -> None:
    letter = sent(row, 500)
    assert (letter.topic, letter.key, letter.value, names(letter)) == (NAMES.dead_letter, *left)  # type: ignore[misc]
    assert (H_SOURCE, b"delay.buffer/0/7") in letter.headers


@pytest.mark.parametrize("row", [scheduled("orders"), RejectRow(b"k", b"v", [], "bad-op", "it is none")])
def test_a_row_whose_dead_letter_was_refused_gets_one_with_nothing_of_the_request(
    row: ScheduledRow | RejectRow,
) -> None:
    poison = {KEY: Poisoned(RejectCode.UNDELIVERABLE, "refused", letter_too=True)}
    letter = sent(row, 10_000, poison)
    assert (letter.topic, letter.key, letter.value, names(letter)) == (
        NAMES.dead_letter,
        None,
        None,
        SERVICES,
    )


def test_a_refused_row_is_a_dead_letter_with_the_refusals_code() -> None:
    letter = sent(scheduled("orders"), 10_000, {KEY: Poisoned(RejectCode.UNDELIVERABLE, "refused")})
    assert (letter.topic, dict(letter.headers)[H_ERROR]) == (NAMES.dead_letter, b"undeliverable")


def test_a_message_that_cannot_go_keeps_its_reason_when_its_dead_letter_is_refused() -> None:
    """The letter was refused by a limit that was not known: nothing is wrong with the message for that."""
    letter = sent(scheduled("missing"), 1_000, {KEY: Poisoned(RejectCode.TOO_LARGE, "the letter was")})
    assert (H_ERROR, b"target-missing") in letter.headers


def test_a_plan_says_what_becomes_of_how_many_requests() -> None:
    targets = Limited(**{"orders": 10_000, NAMES.dead_letter: 10_000})
    plan = Plan(NAMES, 0, 1, 2_000, targets, {}, 0, stamp())
    rows = [
        *(scheduled("orders") for _ in range(3)),
        scheduled("nowhere"),
        msgspec.structs.replace(scheduled("orders"), expire_at_ms=1),
        RejectRow(b"k", b"v", [], "no-target", "it is not there"),
    ]
    due = [((1_000, 0, offset), encode(row)) for offset, row in enumerate(rows)]
    replayed = [((500, 0, 100), encode(scheduled("orders")))]
    plan.add(carried_by(Selection([], due, [], {}, nothing([0]), replayed=replayed)))
    assert plan.decided() == {
        ("schedule", "delivered", None): 3,
        ("schedule", "replayed", None): 1,
        ("schedule", "dead-lettered", "target-missing"): 1,
        ("schedule", "expired", "expired"): 1,
        ("schedule", "dead-lettered", "no-target"): 1,
    }
    assert sum(record.topic == "orders" for record in plan.records) == 4


def test_before_it_is_planned_a_selection_says_where_it_goes_and_when_the_last_of_that_fell_due() -> None:
    late = [((900, 0, 9), encode(scheduled("a"))), ((950, 0, 8), encode(RejectRow(None, b"", [], "", "")))]
    due = [((1_000, 0, 1), encode(scheduled("b"))), ((1_010, 0, 2), encode(scheduled("a")))]
    replayed = [((500, 0, 3), encode(scheduled("c")))]
    carried = carried_by(Selection(late, due, [], {}, nothing([0]), replayed=replayed))
    assert carried.targets == SelectionTargets({"a", "b"}, 1_010, {"c"}, 500)


def test_what_a_hold_lets_go_is_among_the_messages_whose_targets_are_asked_for() -> None:
    released = [((1_020, 0, 1), encode(scheduled("a")))]
    carried = carried_by(Selection([], [], [], {}, nothing([0]), released=released))
    assert carried.targets == SelectionTargets({"a"}, 1_020)


@pytest.mark.parametrize(
    ("targets", "carried"),
    [(Limited(**{NAMES.buffer: 10_000}), 1), (Leaderless(), 0), (Limited(**{NAMES.buffer: 10}), 0)],
    ids=["takes it", "no leader", "too small"],
)
def test_what_the_buffer_does_not_take_now_is_not_carried_now(targets: Limited, carried: int) -> None:
    """It waits where it is; what is carried behind it has the next serial, as if it had never been tried."""
    stamped = stamp()
    before = dict(stamped.counts)
    plan = Plan(NAMES, 0, 1, 2_000, targets, {}, 0, stamped)
    plan.add(
        carried_by(Selection([], [], [], {}, nothing([0]), carries=[(KEY, encode(scheduled("orders")))]))
    )
    assert [one.topic for one in plan.records] == [NAMES.buffer] * carried
    assert plan.written_back.counts[0] - before[0] == carried


@given(
    st.none() | st.binary(max_size=200),
    st.none() | st.integers(0, 20_000).map(bytes),
    st.lists(
        st.tuples(st.text(st.characters(codec="utf-8"), max_size=80), st.none() | st.binary(max_size=80)),
        max_size=80,
    ),
)
def test_the_size_of_a_record_is_counted_to_the_byte(
    key: bytes | None, value: bytes | None, headers: list[Header]
) -> None:
    record = Outgoing("orders", -1, key, value, headers, 2_000, None)
    raw = [(name.encode(), data) for name, data in headers]
    assert counted_bytes(record) == batch_bytes(key, value, raw)
