"""The versions of a cluster's settings: which one holds where, what may be changed, and what a dedup window
that has changed still knows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from delayline.settings import ClusterSettings, NewerSettings
from delayline.settings_versions import (
    MOST_BYTES,
    Begin,
    SettingsVersions,
)
from delayline.times import DAY_MS, HOUR_MS

LONG_AGO_MS = 100 * DAY_MS
FIRST = ClusterSettings(partitions=2, dedup_window_ms=HOUR_MS, retention_ms=7 * DAY_MS)
ONE = SettingsVersions.of(FIRST)


def changed(
    before: SettingsVersions, begins: dict[int, int], newest_ms: int = 0, **what: object
) -> SettingsVersions:
    marks = {partition: Begin(offset, newest_ms) for partition, offset in begins.items()}
    return before.changed(replace(before.settings, **what), marks, "somebody", "a reason", 5)  # type: ignore[arg-type]


TWO = changed(ONE, {0: 10, 1: 20}, max_delay_ms=DAY_MS)
THREE = changed(TWO, {0: 30, 1: 20 + 1}, max_delay_ms=2 * DAY_MS)


@pytest.mark.parametrize(
    ("partition", "offset", "number", "end"),
    [
        (0, 0, 1, 10), (0, 9, 1, 10), (0, 10, 2, 30), (0, 29, 2, 30), (0, 30, 3, 2**63), (0, 99, 3, 2**63),
        (1, 19, 1, 20), (1, 20, 2, 21), (1, 21, 3, 2**63), (7, 5, 1, 2**63),
    ],
)  # fmt: skip
def test_a_record_is_read_by_the_last_version_that_begins_before_it(
    partition: int, offset: int, number: int, end: int
) -> None:
    span = THREE.span(partition, offset)
    assert (span.version.number, span.end) == (number, end)


LOST_END = changed(
    changed(ONE, {0: 1_000}, LONG_AGO_MS, dedup_window_ms=1), {0: 50}, LONG_AGO_MS, dedup_window_ms=DAY_MS
)
"""The log ended at 50 again, and then settings were changed."""


def test_where_the_log_has_lost_its_end_the_last_version_counts_from_its_own_mark_on() -> None:
    spans = [LOST_END.span(0, offset) for offset in (49, 50, 1_000)]
    assert [(span.version.number, span.end) for span in spans] == [(1, 50), (3, 2**63), (3, 2**63)]


def test_a_partition_that_came_later_is_read_by_the_first_until_a_change_marks_it() -> None:
    later = changed(THREE, {0: 50, 1: 50, 2: 4})
    assert (THREE.unmarked([0, 1, 2]), later.unmarked([0, 1, 2])) == ([2], [])
    assert [later.span(2, offset).version.number for offset in (3, 4)] == [1, 4]


def test_a_mark_counts_at_its_own_offset_alone() -> None:
    assert [TWO.is_mark(2, 0, offset) for offset in (9, 10, 11)] == [False, True, False]
    assert not any(TWO.is_mark(number, 0, 10) for number in (0, 1, 3))
    assert not TWO.is_mark(2, 7, 10)


def test_versions_read_back_as_they_were_written() -> None:
    assert SettingsVersions.from_json(THREE.to_json()) == THREE
    assert SettingsVersions.from_json(ONE.to_json()) == ONE


def test_a_change_costs_what_it_changes_however_long_the_lists_are() -> None:
    targets = tuple(f"orders.{number:04}" for number in range(1_000))
    versions = changed(ONE, {0: 1, 1: 1}, targets=targets)
    once_bytes = versions.size_bytes
    for number in range(2, 102):
        versions = changed(versions, {0: number, 1: number}, max_delay_ms=number * DAY_MS)
    assert versions.size_bytes - once_bytes < 100 * 250
    versions = changed(versions, {0: 200, 1: 200}, targets=())
    assert SettingsVersions.from_json(versions.to_json()) == versions


def test_what_a_new_meaning_has_more_of_is_written() -> None:
    old = SettingsVersions.of(ClusterSettings(meaning=1))
    new = changed(old, {0: 1}, meaning=2)
    assert SettingsVersions.from_json(new.to_json()) == new


def test_settings_that_were_never_changed_are_written_as_before() -> None:
    assert ONE.to_json() == FIRST.to_json()


def test_the_longest_delay_and_window_of_all_are_known_to_each_and_read_back() -> None:
    shorter = changed(THREE, {0: 60, 1: 60}, max_delay_ms=DAY_MS, dedup_window_ms=1)
    for versions in (shorter, SettingsVersions.from_json(shorter.to_json())):
        assert versions.settings.longest_delay_ms == FIRST.max_delay_ms
        assert versions.longest_dedup_window_ms == HOUR_MS


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"format_version": 4}', "upgrade it"),
        ('{"format_version": 3, "versions": []}', "not in order"),
        ('{"format_version": 3}', "cannot be read"),
        ('{"format_version": 3, "versions": [1]}', "cannot be read"),
        (THREE.to_json().replace('"number": 2', '"number": 3'), "not in order"),
        (THREE.to_json().replace("[30, 0]", "[30, -1]"), "whole number"),
        (THREE.to_json().replace("[30, 0]", "[30]"), "cannot be read"),
        (THREE.to_json().replace('"meaning": 2', '"meaning": 3', 1), "upgrade it"),
    ],
)
def test_what_is_no_versions_is_refused_in_one_line(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as caught:
        SettingsVersions.from_json(text)
    assert "\n" not in str(caught.value)


def test_what_only_a_newer_version_reads_is_not_taken_for_damaged() -> None:
    with pytest.raises(NewerSettings):
        SettingsVersions.from_json('{"format_version": 4}')


@pytest.mark.parametrize(
    ("what", "complaint"),
    [
        ({"cluster": "other"}, "cluster cannot be changed"),
        ({"partitions": 3}, "partitions cannot be changed"),
        ({"lanes": 2}, "lanes cannot be changed"),
        ({"retention_ms": None}, "whether what waits is written again"),
    ],
)
def test_what_cannot_change_is_named(what: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        changed(ONE, {0: 1, 1: 1}, **what)


def test_settings_of_the_first_meaning_do_not_change_but_for_that() -> None:
    old = SettingsVersions.of(ClusterSettings(meaning=1))
    with pytest.raises(ValueError, match="change the meaning, too"):
        changed(old, {0: 1}, max_delay_ms=DAY_MS)
    assert changed(old, {0: 1}, meaning=2).settings.meaning == 2
    with pytest.raises(ValueError, match="cannot become less"):
        changed(changed(old, {0: 1}, meaning=2), {0: 2}, meaning=1)


def test_versions_do_not_outgrow_a_znode() -> None:
    many = dict.fromkeys(range(MOST_BYTES // 20), 1)
    once = changed(ONE, many)
    assert MOST_BYTES // 2 < len(once.to_json()) <= MOST_BYTES
    with pytest.raises(ValueError, match="at most"):
        changed(once, many)


def test_of_two_states_the_later_one_counts_and_none_of_two_that_went_apart() -> None:
    assert TWO.united(THREE) == THREE.united(TWO) == THREE
    other = changed(ONE, {0: 11, 1: 20}, max_delay_ms=DAY_MS)
    for one in (TWO, THREE):
        with pytest.raises(ValueError, match="they differ"):
            one.united(other)


def test_in_another_buffer_the_latest_settings_are_the_first_and_no_longer_delay_has_been_there() -> None:
    anew = THREE.anew()
    assert anew == SettingsVersions.of(THREE.settings)
    assert (THREE.settings.longest_delay_ms, anew.settings.longest_delay_ms) == (
        FIRST.max_delay_ms,
        2 * DAY_MS,
    )


def test_settings_have_one_digest_however_they_were_read_and_each_state_of_them_another() -> None:
    assert SettingsVersions.from_json(THREE.to_json()).digest == THREE.digest
    assert THREE.until(2).digest == TWO.digest
    assert len({ONE.digest, TWO.digest, THREE.digest}) == 3


# -- the dedup window


def test_a_window_that_has_not_changed_is_what_it_was() -> None:
    assert THREE.known_from_ms(0, 40, LONG_AGO_MS) == LONG_AGO_MS - HOUR_MS


def test_a_shorter_window_counts_at_once() -> None:
    shorter = changed(ONE, {0: 10}, LONG_AGO_MS, dedup_window_ms=1)
    assert shorter.known_from_ms(0, 9, LONG_AGO_MS) == LONG_AGO_MS - HOUR_MS
    assert shorter.known_from_ms(0, 10, LONG_AGO_MS) == LONG_AGO_MS - 1


@pytest.mark.parametrize(
    ("newest_ms", "known_from_ms"),
    [
        (LONG_AGO_MS - 1, LONG_AGO_MS - 1 - HOUR_MS),
        (LONG_AGO_MS, LONG_AGO_MS - HOUR_MS),
        (LONG_AGO_MS + 1, LONG_AGO_MS - HOUR_MS),
        (LONG_AGO_MS + 9 * HOUR_MS, LONG_AGO_MS - HOUR_MS),
        (LONG_AGO_MS + 9 * HOUR_MS + 1, LONG_AGO_MS - HOUR_MS + 1),
    ],
)
def test_a_longer_window_brings_nothing_back_that_the_shorter_one_had_let_go(
    newest_ms: int, known_from_ms: int
) -> None:
    longer = changed(ONE, {0: 10}, LONG_AGO_MS, dedup_window_ms=10 * HOUR_MS)
    assert longer.known_from_ms(0, 10, newest_ms) == known_from_ms


def test_a_version_that_begins_behind_a_later_one_has_let_nothing_go() -> None:
    known = [LOST_END.known_from_ms(0, offset, LONG_AGO_MS) for offset in (999, 1_000)]
    assert known[0] == known[1]


def test_what_a_window_between_two_longer_ones_has_let_go_stays_so() -> None:
    """What is known is what no version before had let go by its last time."""
    shorter = changed(ONE, {0: 10}, LONG_AGO_MS, dedup_window_ms=1)
    longer = changed(shorter, {0: 20}, LONG_AGO_MS + DAY_MS, dedup_window_ms=DAY_MS)
    assert longer.known_from_ms(0, 20, LONG_AGO_MS + DAY_MS + HOUR_MS) == LONG_AGO_MS + DAY_MS - 1
