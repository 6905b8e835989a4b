"""The settings of a cluster: written once, read by all, refused in one clear line."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from delayline.settings import SETTINGS, ClusterSettings, NewerSettings
from delayline.settings_versions import SettingsVersions
from node.refusal import restore_command
from ops.cli.topics import chosen_settings, create

CARRYING = ClusterSettings(retention_ms=604_800_000)


@pytest.mark.parametrize("retention_ms", [None, 86_400_000])
def test_settings_read_back_as_they_were_written(retention_ms: int | None) -> None:
    settings = ClusterSettings(
        "orders",
        partitions=12,
        lanes=3,
        levels_ms=(1, 2_000),
        max_delay_ms=2_000,
        targets=("a", "b.*"),
        retention_ms=retention_ms,
    )
    assert ClusterSettings.from_json(settings.to_json()) == settings


WRITTEN_BY_0_1_0 = (
    '{"cluster": "orders", "dedup_window_ms": 3600000, "format_version": 1, "lanes": 1, "levels_ms": [1000], '
    '"max_delay_ms": 31622400000, "partitions": 4, "targets": ["a"]}'
)


def test_a_cluster_of_the_first_meaning_is_written_as_version_0_1_0_has_written_it() -> None:
    settings = ClusterSettings("orders", levels_ms=(1_000,), targets=("a",), meaning=1)
    assert settings.to_json() == WRITTEN_BY_0_1_0
    assert ClusterSettings.from_json(WRITTEN_BY_0_1_0) == settings


def test_one_that_carries_has_a_format_that_version_0_1_0_takes_for_a_newer_one() -> None:
    written = json.loads(CARRYING.to_json())
    assert (written["format_version"], written["retention_ms"]) == (2, 604_800_000)


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"format_version": 1}, "unknown key max_request_bytes, meaning, retention_ms"),
        ({"retention_ms": 0}, "retention_ms is 0: it must be 1 to"),
        ({"retention_ms": 1_000 * 366 * 86_400_000 + 1}, "retention_ms is 31622400000001"),
        ({"retention_ms": 1.5}, "retention_ms has 1.5"),
    ],
)
def test_a_wrong_retention_is_named(changed: dict[str, object], complaint: str) -> None:
    raw = json.loads(CARRYING.to_json()) | changed
    with pytest.raises(ValueError, match=complaint):
        ClusterSettings.from_json(json.dumps(raw))


def test_the_longest_delay_may_be_longer_than_the_retention_and_shorter() -> None:
    for max_delay_ms in (7_200_000, 1_000 * 366 * 86_400_000):
        assert ClusterSettings(max_delay_ms=max_delay_ms, retention_ms=86_400_000).retention_ms == 86_400_000


def test_the_default_levels_are_those_of_rocketmq() -> None:
    seconds = [level // 1_000 for level in ClusterSettings().levels_ms]
    assert seconds == [
        1,
        5,
        10,
        30,
        60,
        120,
        180,
        240,
        300,
        360,
        420,
        480,
        540,
        600,
        1_200,
        1_800,
        3_600,
        7_200,
    ]


def test_the_default_longest_delay_is_366_days() -> None:
    assert ClusterSettings().max_delay_ms == 366 * 24 * 3_600 * 1_000


def test_lanes_split_the_partitions() -> None:
    settings = ClusterSettings(partitions=5, lanes=2)
    assert [settings.partitions_of(lane) for lane in range(2)] == [[0, 2, 4], [1, 3]]


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"cluster": "not a topic"}, "cannot name a topic"),
        ({"partitions": 0}, "partitions is 0"),
        ({"partitions": 2**31}, "partitions is 2147483648"),
        ({"partitions": True}, "partitions has True"),
        ({"partitions": "4"}, "partitions has '4'"),
        ({"lanes": 0}, "lanes is 0"),
        ({"lanes": 5}, "lanes is 5"),
        ({"levels_ms": []}, "levels_ms is empty"),
        ({"levels_ms": [-1]}, "levels_ms must each be"),
        ({"levels_ms": [1.5]}, "levels_ms has 1.5"),
        ({"levels_ms": "1s"}, "levels_ms must be a list"),
        ({"max_delay_ms": 0}, "max_delay_ms is 0"),
        ({"max_delay_ms": 2**63}, "max_delay_ms is 9223372036854775808"),
        ({"max_delay_ms": 7_199_999}, "levels_ms must each be"),
        ({"targets": [""]}, "empty pattern"),
        ({"targets": [1]}, "targets has 1"),
        ({"format_version": 3}, "upgrade"),
        ({"format_version": 1}, "unknown key max_request_bytes, meaning, retention_ms"),
        ({"meaning": 3}, "meaning is 3, this version knows up to 2: upgrade it"),
        ({"meaning": 0}, "meaning is 0: it must be 1 to 2"),
        ({"format_version": 0}, "format_version is 0: it must be 1 or more"),
        ({"format_version": True}, "format_version has True"),
        ({"colour": "red"}, "unknown key colour"),
    ],
)
def test_wrong_settings_are_named(changed: dict[str, object], complaint: str) -> None:
    raw = json.loads(ClusterSettings().to_json()) | changed
    with pytest.raises(ValueError, match=complaint):
        ClusterSettings.from_json(json.dumps(raw))


def test_settings_of_a_newer_format_are_not_taken_for_damaged_ones() -> None:
    with pytest.raises(NewerSettings, match="upgrade it"):
        ClusterSettings.from_json(b'{"format_version": 4, "of": "another kind"}')


@pytest.mark.parametrize(
    "settings",
    [
        ClusterSettings(),
        ClusterSettings("orders", 12, 3, (0, 1, 86_400_001), 90_061_001, ("a", "it's *", "-x"), 0),
        ClusterSettings(retention_ms=604_800_001),
    ],
    ids=["defaults", "others", "carrying"],
)
def test_the_command_that_restores_settings_means_these_and_no_others(settings: ClusterSettings) -> None:
    words = shlex.split(restore_command(SettingsVersions.of(settings)))
    # As `delayline` calls it, for click remembers an option's names.
    with create.make_context("create", words[3:], help_option_names=["-h", "--help"]) as context:
        restores, options = context.params["restore"], dict(context.params)
    given: dict[str, Any] = chosen_settings(options)
    assert (words[:3], restores) == (["delayline", "topics", "create"], True)
    assert given.keys() >= {*SETTINGS} - {"cluster", "targets"}
    assert ClusterSettings(options["cluster"], **given) == settings


@pytest.mark.parametrize("missing", json.loads(CARRYING.to_json()))
def test_settings_that_lack_one_are_refused(missing: str) -> None:
    raw = json.loads(CARRYING.to_json())
    del raw[missing]
    with pytest.raises(ValueError, match=missing):
        ClusterSettings.from_json(json.dumps(raw))


@pytest.mark.parametrize("text", ["", "[]", "null", "{", b"\xff"])
def test_what_is_no_settings_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError, match="cluster settings"):
        ClusterSettings.from_json(text)
