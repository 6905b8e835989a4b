"""The clock of rule 1, and when it is proven, on a clock that a test sets."""

from __future__ import annotations

from typing import Final

import msgspec
import pytest

from node.core.leader_clock import LeaderClock
from node.core.ports import Doubtful
from store.checkpoint import Frontier, nothing
from store.overrun import MOST_OVERRUNS, Overrun
from tests.unit.core_ports import FakeClock

SKEW_MS: Final = 500
HOUR_MS: Final = 3_600_000
NOW_MS: Final = 10 * HOUR_MS


class Time(FakeClock):
    """With the newest records of two partitions."""

    def __init__(self) -> None:
        super().__init__(NOW_MS)
        self.newest: tuple[int, ...] = ()

    def newest_ms(self, most_ms: int) -> int:
        return max((one for one in self.newest if one <= most_ms), default=0)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def clock(time: Time) -> LeaderClock:
    """No commit has shown anything yet."""
    return LeaderClock(time, time, SKEW_MS)


@pytest.fixture
def proven(clock: LeaderClock) -> LeaderClock:
    return prove(clock)


def prove(clock: LeaderClock, offset_ms: int = 0) -> LeaderClock:
    """A checkpoint is sent and committed."""
    clock.note_shown()
    clock.note_committed(offset_ms)
    return clock


def is_proven(clock: LeaderClock) -> bool:
    """Whether what is selected now may be committed."""
    try:
        clock.require_proof(clock.read().lead_ms)
    except Doubtful:
        return False
    return True


def at(due_ms: int, delivered_up_to_ms: int = 0) -> Frontier:
    return msgspec.structs.replace(
        nothing([0]), position=(due_ms, 0, 0), delivered_up_to_ms=delivered_up_to_ms
    )


@pytest.mark.parametrize(
    ("newest_ms", "now_ms"),
    [
        pytest.param((NOW_MS - 1,), NOW_MS, id="behind"),
        pytest.param((NOW_MS + SKEW_MS,), NOW_MS + SKEW_MS, id="ahead by the skew allowed"),
        pytest.param((NOW_MS + SKEW_MS + 1,), NOW_MS, id="further ahead"),
        pytest.param((NOW_MS + HOUR_MS, NOW_MS + 1), NOW_MS + 1, id="one further ahead, one not"),
    ],
)
def test_the_brokers_clock_counts_where_it_is_ahead_by_no_more_than_the_skew(
    time: Time, clock: LeaderClock, newest_ms: tuple[int, ...], now_ms: int
) -> None:
    time.newest = newest_ms
    assert clock.read().now_ms == now_ms


def test_a_clock_that_no_commit_has_shown_is_not_proven(clock: LeaderClock) -> None:
    assert not is_proven(clock)


@pytest.mark.parametrize("offset_ms", [-SKEW_MS, 0, SKEW_MS])
def test_a_commit_proves_a_clock_that_is_off_by_no_more_than_the_skew(
    clock: LeaderClock, offset_ms: int
) -> None:
    assert is_proven(prove(clock, offset_ms))


@pytest.mark.parametrize("offset_ms", [-SKEW_MS - 1, SKEW_MS + 1])
def test_a_commit_that_shows_a_wrong_clock_takes_the_proof_away(proven: LeaderClock, offset_ms: int) -> None:
    assert not is_proven(prove(proven, offset_ms))


def test_a_recovery_takes_the_proof_away(proven: LeaderClock) -> None:
    proven.forget_proof()
    assert not is_proven(proven)


def test_what_is_not_proven_is_said_to_be_off_by_so_much(clock: LeaderClock) -> None:
    prove(clock, -2_000)
    with pytest.raises(Doubtful, match=r"the clock is \+2000 ms off the brokers'"):
        clock.require_proof(0)


def test_time_that_passes_needs_no_new_proof(time: Time, proven: LeaderClock) -> None:
    time.pass_by(HOUR_MS)
    assert (is_proven(proven), proven.has_jumped(proven.read().lead_ms)) == (True, False)


@pytest.mark.parametrize(("by_ms", "jumped"), [(SKEW_MS, False), (SKEW_MS + 1, True), (-HOUR_MS, False)])
def test_a_clock_that_is_set_ahead_by_more_than_the_skew_has_jumped(
    time: Time, proven: LeaderClock, *, by_ms: int, jumped: bool
) -> None:
    time.now += by_ms
    assert (proven.has_jumped(proven.read().lead_ms), is_proven(proven)) == (jumped, not jumped)


def test_a_clock_that_is_set_ahead_little_by_little_has_jumped(time: Time, proven: LeaderClock) -> None:
    for _ in range(2):
        time.now += SKEW_MS
    assert proven.has_jumped(proven.read().lead_ms)


def test_what_was_selected_before_the_clock_was_set_ahead_may_be_committed(
    time: Time, proven: LeaderClock
) -> None:
    reading = proven.read()
    time.now += HOUR_MS
    proven.require_proof(reading.lead_ms)


@pytest.mark.parametrize("set_by_ms", [HOUR_MS, -HOUR_MS])
def test_a_checkpoint_that_was_sent_before_the_clock_was_set_proves_the_earlier_time_only(
    time: Time, clock: LeaderClock, set_by_ms: int
) -> None:
    """Set ahead since, it is not proven; set back since, it was not proven as it was."""
    ahead = max(clock.read().lead_ms, clock.read().lead_ms + set_by_ms)
    clock.note_shown()
    time.now += set_by_ms
    clock.note_committed(0)
    with pytest.raises(Doubtful):
        clock.require_proof(ahead)


def test_the_next_commit_proves_a_clock_that_was_set_ahead(time: Time, proven: LeaderClock) -> None:
    time.now += HOUR_MS
    assert is_proven(prove(proven))


@pytest.mark.parametrize(("due_ms", "wanted"), [(NOW_MS, None), (NOW_MS + 1, NOW_MS + 1)])
def test_nothing_is_selected_before_the_positions_due_time(
    clock: LeaderClock, due_ms: int, wanted: int | None
) -> None:
    assert clock.not_before_ms(clock.read().now_ms, at(due_ms)) == wanted


def test_before_anything_was_delivered_nothing_is_waited_for(proven: LeaderClock) -> None:
    tip, reading = nothing([0]), proven.read()
    assert (proven.not_before_ms(reading.now_ms, tip), proven.must_rewind(reading, tip)) == (None, False)


@pytest.mark.parametrize(
    ("tip", "rewinds"),
    [
        pytest.param(at(NOW_MS + SKEW_MS), False, id="the position is ahead by the skew"),
        pytest.param(at(NOW_MS + SKEW_MS + 1), True, id="the position is further ahead"),
        pytest.param(at(NOW_MS, NOW_MS + SKEW_MS + 1), True, id="delivered-up-to is further ahead"),
    ],
)
def test_what_is_ahead_by_more_than_the_skew_is_rewound(
    proven: LeaderClock, tip: Frontier, *, rewinds: bool
) -> None:
    assert proven.must_rewind(proven.read(), tip) == rewinds


def test_nothing_is_rewound_by_a_clock_that_is_not_proven(clock: LeaderClock) -> None:
    assert not clock.must_rewind(clock.read(), at(NOW_MS + HOUR_MS))


@pytest.mark.parametrize("set_by_ms", [-SKEW_MS - 1, SKEW_MS + 1])
def test_nor_by_one_that_was_set_since(time: Time, proven: LeaderClock, set_by_ms: int) -> None:
    time.now += set_by_ms
    assert not proven.must_rewind(proven.read(), at(NOW_MS + 2 * HOUR_MS))


def test_nor_where_there_are_as_many_overruns_as_there_may_be(proven: LeaderClock) -> None:
    ahead = at(NOW_MS + HOUR_MS)
    overruns = tuple(Overrun((NOW_MS, 0, number), {}, 0) for number in range(MOST_OVERRUNS))
    tips = [msgspec.structs.replace(ahead, overruns=some) for some in (overruns[1:], overruns)]
    assert [proven.must_rewind(proven.read(), tip) for tip in tips] == [True, False]
