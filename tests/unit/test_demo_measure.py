"""What the demo's receipts say: gaps, pauses, lateness."""

from __future__ import annotations

from ops.demo.measure import (
    ReceivedLateness,
    ReceivedMessage,
    Stretch,
    due_near,
    gap_ms,
    lateness_of,
    lateness_within,
    longest_pause_ms,
)

STEADY = [float(ms) for ms in range(0, 1_000, 10)]
BROKEN = [ms for ms in STEADY if not 300 < ms < 450]  # 300, then 450


def test_the_gap_is_the_longest_pause_that_touches_the_episode() -> None:
    assert gap_ms(BROKEN, 310, 400) == 150


def test_a_pause_that_ends_as_the_episode_begins_is_part_of_it_no_more_than_one_long_before() -> None:
    assert gap_ms(BROKEN, 600, 700) == 10


def test_a_gap_counts_from_the_last_receipt_before_the_blow() -> None:
    assert gap_ms(BROKEN, 440, 460) == 150


def test_a_gap_without_a_receipt_after_it_lasts_until_the_end_of_the_episode() -> None:
    assert gap_ms([0.0, 10.0], 5, 2_000) == 1_990


def test_a_gap_without_a_receipt_before_it_begins_with_the_blow() -> None:
    assert gap_ms([700.0], 500, 800) == 200


def test_no_receipt_at_all_is_a_gap_as_long_as_the_episode() -> None:
    assert gap_ms([], 500, 800) == 300


def test_the_longest_pause_of_a_stretch_is_cut_at_its_ends() -> None:
    assert longest_pause_ms(BROKEN, Stretch(0, 350)) == 50


def test_a_stretch_without_receipts_is_one_pause() -> None:
    assert longest_pause_ms([], Stretch(100, 350)) == 250


def test_lateness_is_by_nearest_rank() -> None:
    assert lateness_of(range(100)) == ReceivedLateness(100, 50, 99, 99)


def test_what_is_not_received_has_no_lateness() -> None:
    assert lateness_of([]) == ReceivedLateness()


def test_lateness_counts_what_was_due_and_came_within_a_stretch() -> None:
    received = [
        ReceivedMessage(1_005, 1_000, "after"),
        ReceivedMessage(2_050, 1_990, "after"),  # came after the stretch
        ReceivedMessage(1_001, 900, "after"),  # was due before it
        ReceivedMessage(1_100, 1_000, "at-once"),  # cannot be on time
    ]
    found = lateness_within(received, [Stretch(950, 2_000)], frozenset({"after"}))
    assert found == ReceivedLateness(1, 5, 5, 5)


def test_messages_due_a_second_before_and_after_the_blow_are_near_it() -> None:
    assert due_near([999, 1_000, 2_000, 3_000, 3_001], 2_000) == 3
