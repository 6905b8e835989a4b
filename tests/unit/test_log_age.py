"""When retention comes near what is needed: long before it is there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import msgspec
import pytest
from structlog.testing import capture_logs

from delayline.settings import ClusterSettings
from delayline.settings_versions import SettingsVersions
from delayline.times import DAY_MS, HOUR_MS
from node.kafka.checkpoints import KafkaLog
from node.kafka.log_age import KafkaLogAge, most_window_ms, near_ms
from node.kafka.topics import TopicMissing
from node.worker import Roster
from store.checkpoint import Checkpoint, Vector
from store.told import Look, Told
from tests.support.checkpoints import sample_checkpoint
from tests.support.waiting import eventually

WEEK_MS = 7 * DAY_MS
END = 1_000


class HourlyLog:
    """Of each partition END records, one an hour, the last one now; `leaderless` ones do not answer."""

    def __init__(self) -> None:
        self.leaderless: set[int] = set()
        self.looked = 0
        self.known: Told | None = None  # to who has looked last

    def led_high_watermarks(self) -> Vector:
        return {partition: END for partition in range(2) if partition not in self.leaderless}

    def first_since(self, at_ms: int, ends: Vector) -> Vector:
        hours = -(-(time.time_ns() // 1_000_000 - at_ms) // HOUR_MS)
        return {partition: max(0, end - hours) for partition, end in ends.items()}

    def outcomes(self, told: Told | None) -> Look:
        self.looked += 1
        self.known = told
        if self.looked == 1:
            raise TopicMissing("there are no outcomes")
        return Look("topic", 0, self.looked, 1, None, 1_000)


@contextmanager
def running(age: KafkaLogAge) -> Iterator[KafkaLogAge]:
    age.start(Roster())
    try:
        yield age
    finally:
        age.stop()
        age.join()


def made(log: HourlyLog, retention_ms: int, last: Checkpoint, replay_window_ms: int = DAY_MS) -> KafkaLogAge:
    return KafkaLogAge(cast("KafkaLog", log), settings(retention_ms), replay_window_ms, [0, 1], lambda: last)


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
    near = END - near_ms(WEEK_MS, DAY_MS + HOUR_MS) // HOUR_MS
    age = made(HourlyLog(), WEEK_MS, checkpoint({0: near - 2, 1: near + 2}))
    assert age.near() is None, "nobody has asked yet"
    with running(age):
        eventually(lambda: age.near() is not None, "the brokers have told")
        found = age.near() or []
    assert [(one.partition, one.carried) for one in found] == [(0, near - 2)]


def test_where_one_partition_has_no_leader_the_others_grow_old_and_what_was_near_stays_so() -> None:
    log, last = HourlyLog(), checkpoint({0: 0, 1: 0})
    age = made(log, WEEK_MS, last)
    log.leaderless = {0}
    with running(age):
        eventually(lambda: age.near() is not None, "one has told")
        assert [one.partition for one in age.near() or []] == [1]
        assert (age.old() or {})[0] == 0 < (age.old() or {})[1]
    log.leaderless = {1}
    again = made(log, 1_000, last)
    with running(again):
        eventually(lambda: (again.old() or {})[0], "one has told")
        log.leaderless = {0}
        eventually(lambda: (again.old() or {})[1], "the other one has")
        assert [one.partition for one in again.near() or []] == [0, 1]


def test_a_look_at_the_outcomes_is_taken_again_where_they_were_missing() -> None:
    age = made(HourlyLog(), 100, checkpoint({}))
    with running(age):
        eventually(age.outcomes, "it has found some")
    look = age.outcomes()
    assert look is not None
    assert look.topic_id == "topic"


def test_a_look_asks_for_what_the_last_checkpoint_knows() -> None:
    log, told = HourlyLog(), Told("topic", 0, 1, 1, 500, 0)
    last = msgspec.structs.replace(checkpoint({}), told=told)
    age = made(log, 100, last)
    with running(age):
        eventually(age.outcomes, "it has looked")
    assert log.known == told


def test_a_replay_window_that_is_too_long_for_the_retention_is_said_once() -> None:
    with capture_logs() as lines, running(made(HourlyLog(), 100, checkpoint({}), replay_window_ms=50)) as age:
        eventually(lambda: (look := age.outcomes()) is not None and look.end > 3, "it goes on")
    found = [line["detail"] for line in lines if line["event"] == "replay-window-too-long"]
    assert found == ["replay_window_s is 0.05; the cluster keeps its log for 100ms: at most 0.04"]


def test_the_longest_replay_window_is_not_complained_of() -> None:
    assert most_window_ms(100) == 40
    with capture_logs() as lines, running(made(HourlyLog(), 100, checkpoint({}), replay_window_ms=40)) as age:
        eventually(lambda: (look := age.outcomes()) is not None and look.end > 3, "it goes on")
    assert not [line for line in lines if line["event"] == "replay-window-too-long"]


def test_a_cluster_that_carries_nothing_has_no_retention_to_fear() -> None:
    age = KafkaLogAge(cast("KafkaLog", HourlyLog()), settings(None), DAY_MS, [0], lambda: checkpoint({0: 0}))
    assert (age.near(), age.old()) == (None, None)
