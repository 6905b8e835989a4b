"""What is refused is remembered, or found by shorter selections."""

from __future__ import annotations

import pytest

from delayline.rejects import RejectCode
from node.core.poison import Isolation, Poisoned
from node.core.ports import RecordRefused
from store.checkpoint import nothing
from store.keys import RowKey
from store.selection import Selection

A, B, C, D = KEYS = [(1_000, 0, offset) for offset in range(4)]
UNKNOWN_ROW = RecordRefused("a record of the batch is invalid", {})


@pytest.fixture
def isolation() -> Isolation:
    return Isolation(8)


def of(*keys: RowKey) -> Selection:
    return Selection([], [(key, b"") for key in keys], [], {}, nothing([0]))


def test_a_row_that_is_known_to_be_refused_is_remembered_with_why(isolation: Isolation) -> None:
    assert isolation.isolate(RecordRefused("refused", {B: (RejectCode.TOO_LARGE, "it is")}), of(*KEYS))
    assert (isolation.rows, isolation.most) == ({B: Poisoned(RejectCode.TOO_LARGE, "it is")}, 8)


def test_a_row_that_is_not_known_is_found_by_halving(isolation: Isolation) -> None:
    sent, tried = of(*KEYS), [4]
    while not isolation.rows:
        assert isolation.isolate(UNKNOWN_ROW, sent)
        sent = of(*KEYS[: isolation.most])
        tried.append(isolation.most)
    assert (tried, isolation.rows) == (
        [4, 2, 1, 1],
        {A: Poisoned(RejectCode.UNDELIVERABLE, str(UNKNOWN_ROW))},
    )


def test_where_the_dead_letter_is_refused_too_nothing_of_the_request_is_sent(isolation: Isolation) -> None:
    for _ in range(2):
        assert isolation.isolate(UNKNOWN_ROW, of(A))
    assert isolation.rows[A].letter_too


def test_where_the_barest_letter_is_refused_nothing_new_comes_of_it(isolation: Isolation) -> None:
    assert [isolation.isolate(UNKNOWN_ROW, of(A)) for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize("sent", [None, of()], ids=["nothing", "no row"])
def test_what_is_refused_where_no_row_was_sent_is_no_rows_own(
    isolation: Isolation, sent: Selection | None
) -> None:
    assert (isolation.isolate(UNKNOWN_ROW, sent), isolation.rows) == (False, {})


def test_what_was_too_large_to_be_written_back_has_not_been_refused_by_the_brokers(
    isolation: Isolation,
) -> None:
    isolation.give_up({A: Poisoned(RejectCode.TOO_LARGE, "", is_of_what_follows=True)}, of(*KEYS))
    isolation.isolate(UNKNOWN_ROW, of(A))
    assert isolation.rows[A] == Poisoned(RejectCode.UNDELIVERABLE, str(UNKNOWN_ROW))


def test_half_as_much_is_selected_after_a_plan_that_is_given_up(isolation: Isolation) -> None:
    isolation.give_up({A: Poisoned(RejectCode.TOO_LARGE, "", is_of_what_follows=True)}, of(*KEYS))
    assert isolation.most == 2


@pytest.mark.parametrize("sent", [of(), of(A)])
def test_one_row_is_selected_at_least(isolation: Isolation, sent: Selection) -> None:
    isolation.shorten(sent)
    assert isolation.most == 1


def test_each_commit_lets_twice_as_much_be_selected_up_to_all(isolation: Isolation) -> None:
    isolation.shorten(of(*KEYS))
    found = []
    for _ in range(3):
        isolation.note_committed(of())
        found.append(isolation.most)
    assert found == [4, 8, 8]


def test_what_is_committed_is_poison_no_more(isolation: Isolation) -> None:
    isolation.isolate(
        RecordRefused("refused", {A: (RejectCode.TOO_LARGE, ""), D: (RejectCode.TOO_LARGE, "")}), of(*KEYS)
    )
    isolation.note_committed(of(A, B))
    assert set(isolation.rows) == {D}
