"""A new cluster's settings, where the operator has left them open, and which retention is long enough."""

from __future__ import annotations

from dataclasses import replace

import pytest

from delayline.settings import ClusterSettings
from delayline.times import DAY_MS, HOUR_MS
from ops.topics.new_settings import expect_lasting, least_retention_ms, new_settings


def test_a_new_cluster_carries_what_waits_for_long_and_takes_delays_of_ten_years() -> None:
    settings = new_settings("orders", partitions=2)

    assert settings == ClusterSettings(
        "orders", partitions=2, max_delay_ms=3_653 * DAY_MS, retention_ms=7 * DAY_MS
    )


def test_one_that_carries_nothing_has_the_longest_delay_of_old() -> None:
    assert new_settings("orders", retention_ms=None) == ClusterSettings("orders")


def test_what_is_chosen_is_taken() -> None:
    settings = new_settings("orders", retention_ms=3 * DAY_MS, max_delay_ms=DAY_MS, dedup_window_ms=0)

    assert settings == ClusterSettings(
        "orders", retention_ms=3 * DAY_MS, max_delay_ms=DAY_MS, dedup_window_ms=0
    )


@pytest.mark.parametrize("dedup_window_ms", [0, HOUR_MS, 30 * DAY_MS])
def test_the_least_retention_is_twice_the_dedup_window_a_day_and_six_hours(dedup_window_ms: int) -> None:
    least_ms = least_retention_ms(dedup_window_ms)

    assert least_ms == 2 * (dedup_window_ms + 30 * HOUR_MS)
    new_settings("orders", retention_ms=least_ms, dedup_window_ms=dedup_window_ms)
    with pytest.raises(ValueError, match=r"it must be at least .*, twice the dedup window and 2d12h"):
        new_settings("orders", retention_ms=least_ms - 1, dedup_window_ms=dedup_window_ms)


def test_a_dedup_window_may_be_too_long_for_the_default() -> None:
    with pytest.raises(ValueError, match="retention is 7d: it must be at least 10d12h"):
        new_settings("orders", dedup_window_ms=4 * DAY_MS)


def test_the_retention_has_to_suit_the_longest_window_that_there_was() -> None:
    first = ClusterSettings(retention_ms=63 * DAY_MS, dedup_window_ms=30 * DAY_MS)
    shorter = replace(first, dedup_window_ms=HOUR_MS).after(first)
    later = replace(shorter, retention_ms=7 * DAY_MS).after(shorter)

    expect_lasting(shorter)
    with pytest.raises(ValueError, match="least 62d12h, twice the longest dedup window that there was, 30d"):
        expect_lasting(later)


def test_what_carries_nothing_may_have_any_dedup_window() -> None:
    settings = new_settings("orders", retention_ms=None, dedup_window_ms=300 * DAY_MS)

    assert settings.dedup_window_ms == 300 * DAY_MS
