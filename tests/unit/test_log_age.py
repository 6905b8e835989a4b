"""When retention comes near what is needed: long before it is there."""

from __future__ import annotations

import time
from typing import cast

import msgspec
import pytest

from delayline.settings import ClusterSettings
from delayline.settings_versions import SettingsVersions
from delayline.times import DAY_MS, HOUR_MS
from node.kafka.checkpoints import KafkaLog
from node.kafka.log_age import KafkaLogAge, near_ms
from node.worker import Roster
from store.checkpoint import Checkpoint, Vector
from tests.support.checkpoints import sample_checkpoint
from tests.support.waiting import eventually

WEEK_MS = 7 * DAY_MS
END = 1_000


class HourlyLog:
    """Of each partition END records, one an hour, the last one now."""

    def high_watermarks(self) -> Vector:
        return {0: END, 1: END}

    def first_since(self, at_ms: int, ends: Vector) -> Vector:
        hours = -(-(time.time_ns() // 1_000_000 - at_ms) // HOUR_MS)
        return {partition: max(0, end - hours) for partition, end in ends.items()}


def checkpoint(carried: Vector) -> Checkpoint:
    return msgspec.structs.replace(sample_checkpoint(lane=0, epoch=1), carried=carried)


def settings(retention_ms: int | None) -> SettingsVersions:
    return SettingsVersions.of(ClusterSettings(retention_ms=retention_ms))


@pytest.mark.parametrize(
    ("window_ms", "near"),
    [(0, WEEK_MS * 3 // 4), (DAY_MS, WEEK_MS * 3 // 4 + DAY_MS // 2), (WEEK_MS, WEEK_MS * 9 // 10)],
    ids=["no window", "a day", "a window that is too long"],
)
def test_near_is_behind_where_a_leader_lets_go_and_before_retention(window_ms: int, near: int) -> None:
    assert near_ms(WEEK_MS, window_ms) == near < WEEK_MS
    assert window_ms > WEEK_MS // 2 or near > WEEK_MS // 2 + window_ms


def test_a_partition_is_named_from_that_age_on_and_not_before() -> None:
    near = END - near_ms(WEEK_MS, DAY_MS) // HOUR_MS
    last = checkpoint({0: near - 2, 1: near + 2})
    age = KafkaLogAge(cast("KafkaLog", HourlyLog()), settings(WEEK_MS), DAY_MS, [0, 1], lambda: last)
    assert age.near() is None, "nobody has asked yet"
    age.start(Roster())
    try:
        eventually(lambda: age.near() is not None, "the brokers have told")
        found = age.near() or []
    finally:
        age.stop()
        age.join()
    assert [(one.partition, one.carried) for one in found] == [(0, near - 2)]


def test_a_cluster_that_carries_nothing_has_no_retention_to_fear() -> None:
    age = KafkaLogAge(cast("KafkaLog", HourlyLog()), settings(None), DAY_MS, [0], lambda: checkpoint({0: 0}))
    assert (age.near(), age.old()) == (None, None)
