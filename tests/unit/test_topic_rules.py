"""What is wrong with a topic, and the command that mends it, as a table."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from syrupy.assertion import SnapshotAssertion

from delayline.names import MAX_OFFSET, MAX_PARTITION, ClusterNames, source
from delayline.settings import OVERHEAD_BYTES, ClusterSettings
from delayline.settings_versions import Begin, SettingsVersions
from delayline.times import MAX_MS
from delayline.wire import delivery_headers
from ops.clients.topic import Topic, min_insync_replicas
from ops.clients.topic_findings import TopicFinding
from ops.topics.rules import (
    RETENTION_MARGIN_MS,
    check,
    check_availability,
    check_marks,
    check_target,
    wanted_topics,
)

SETTINGS = ClusterSettings(partitions=6, lanes=2)
NAMES = ClusterNames()
DAY_MS = 24 * 60 * 60 * 1000
RETENTION_MS = SETTINGS.max_delay_ms + SETTINGS.dedup_window_ms + RETENTION_MARGIN_MS
BROKERS = 3
BUFFER_BYTES = SETTINGS.max_request_bytes + OVERHEAD_BYTES


def as_wanted() -> dict[str, Topic]:
    """The topics as `topics create` makes them on three brokers."""
    return {
        topic.name: Topic(
            topic.name,
            topic.partitions,
            replication=3,
            settings={
                "min.insync.replicas": "2",
                "max.message.bytes": "1048588",
                **{setting.key: setting.value for setting in topic.settings},
            },
        )
        for topic in wanted_topics(SETTINGS)
    }


def findings(
    actual: dict[str, Topic], brokers: int = BROKERS, settings: ClusterSettings = SETTINGS
) -> list[TopicFinding]:
    return check(wanted_topics(settings), actual, bootstrap_servers="kafka:9092", brokers=brokers)


def with_setting(topic: str, key: str, value: str) -> dict[str, Topic]:
    topics = as_wanted()
    changed = replace(topics[topic], settings={**topics[topic].settings, key: value})
    return {**topics, topic: changed}


def test_topics_as_they_are_made_have_no_findings() -> None:
    assert findings(as_wanted()) == []


WRONG_SETTINGS = [
    (NAMES.buffer, "message.timestamp.type", "CreateTime", "LogAppendTime"),
    (NAMES.buffer, "cleanup.policy", "compact", "delete"),
    (NAMES.buffer, "cleanup.policy", "compact,delete", "delete"),
    (NAMES.buffer, "retention.ms", str(SETTINGS.max_delay_ms), str(RETENTION_MS)),
    (NAMES.buffer, "retention.bytes", "1000000000", "-1"),
    (NAMES.buffer, "unclean.leader.election.enable", "true", "false"),
    (NAMES.buffer, "min.insync.replicas", "1", "2"),
    (NAMES.buffer, "min.insync.replicas", "3", "2"),
    (NAMES.checkpoint, "cleanup.policy", "delete", "compact"),
    (NAMES.checkpoint, "cleanup.policy", "compact,delete", "compact"),
    (NAMES.checkpoint, "message.timestamp.type", "CreateTime", "LogAppendTime"),
    (NAMES.checkpoint, "min.compaction.lag.ms", "0", str(DAY_MS)),
    (NAMES.checkpoint, "min.insync.replicas", "1", "2"),
    (NAMES.outcomes, "cleanup.policy", "compact", "delete"),
    (NAMES.outcomes, "retention.ms", str(DAY_MS), str(7 * DAY_MS)),
    (NAMES.outcomes, "retention.bytes", "1000", "-1"),
    (NAMES.dead_letter, "cleanup.policy", "compact", "delete"),
    (NAMES.dead_letter, "max.message.bytes", "1000000", str(BUFFER_BYTES + OVERHEAD_BYTES)),
    (NAMES.buffer, "max.message.bytes", str(BUFFER_BYTES - 1), str(BUFFER_BYTES)),
    (NAMES.dead_letter, "unclean.leader.election.enable", "true", "false"),
    (NAMES.settings, "cleanup.policy", "compact", "delete"),
    (NAMES.settings, "retention.ms", str(7 * DAY_MS), "-1"),
    (NAMES.settings, "retention.bytes", "1000", "-1"),
]


@pytest.mark.parametrize(("topic", "key", "value", "mended"), WRONG_SETTINGS)
def test_a_wrong_setting_is_found_with_the_command_that_mends_it(
    topic: str, key: str, value: str, mended: str
) -> None:
    (found,) = findings(with_setting(topic, key, value))

    assert found.topic == topic
    assert found.problem.startswith(f"{key} is {value}, must be ")
    assert found.mend == (
        "kafka-configs.sh --bootstrap-server kafka:9092 --alter --entity-type topics"
        f" --entity-name {topic} --add-config {key}={mended}"
    )


@pytest.mark.parametrize(("topic", "key", "value", "mended"), WRONG_SETTINGS)
def test_the_command_mends_it(topic: str, key: str, value: str, mended: str) -> None:
    assert findings(with_setting(topic, key, mended)) == []


HARMLESS = [
    (NAMES.buffer, "retention.ms", "-1"),
    (NAMES.buffer, "retention.ms", str(2 * RETENTION_MS)),
    (NAMES.buffer, "max.message.bytes", "1044492"),
    (NAMES.checkpoint, "compression.type", "producer"),
    (NAMES.checkpoint, "min.compaction.lag.ms", str(2 * DAY_MS)),
    (NAMES.outcomes, "retention.ms", "-1"),
    (NAMES.dead_letter, "retention.ms", "-1"),
    (NAMES.dead_letter, "max.message.bytes", "2000000"),
]


@pytest.mark.parametrize(("topic", "key", "value"), HARMLESS)
def test_an_operators_own_choice_is_no_finding(topic: str, key: str, value: str) -> None:
    assert findings(with_setting(topic, key, value)) == []


@pytest.mark.parametrize("topic", [*sorted(NAMES.own_topics), NAMES.settings])
def test_a_missing_topic_is_found(topic: str) -> None:
    actual = as_wanted()
    del actual[topic]

    assert findings(actual) == [TopicFinding(topic, "is missing", "delayline topics create")]


@pytest.mark.parametrize(("topic", "wanted"), [(NAMES.buffer, 6), (NAMES.checkpoint, 2), (NAMES.outcomes, 2)])
def test_too_few_partitions_are_found(topic: str, wanted: int) -> None:
    actual = as_wanted()
    actual[topic] = replace(actual[topic], partitions=1)

    (found,) = findings(actual)

    assert found.problem == f"has 1 partitions, the cluster's settings say {wanted}"
    assert found.mend.endswith(f"--alter --topic {topic} --partitions {wanted}")


def test_too_many_partitions_cannot_be_taken_away() -> None:
    actual = as_wanted()
    actual[NAMES.buffer] = replace(actual[NAMES.buffer], partitions=7)

    (found,) = findings(actual)

    assert found.mend.endswith("Kafka takes no partitions away; or begin a cluster of another name")


@pytest.mark.parametrize("topic", [NAMES.checkpoint, NAMES.outcomes])
def test_partitions_that_no_lane_uses_do_no_harm(topic: str) -> None:
    actual = as_wanted()
    actual[topic] = replace(actual[topic], partitions=7)

    assert findings(actual) == []


def test_the_dead_letter_topic_may_have_any_number_of_partitions() -> None:
    actual = as_wanted()
    actual[NAMES.dead_letter] = replace(actual[NAMES.dead_letter], partitions=1)

    assert findings(actual) == []


def test_a_single_replica_is_found_where_there_are_more_brokers() -> None:
    actual = with_setting(NAMES.buffer, "min.insync.replicas", "1")
    actual[NAMES.buffer] = replace(actual[NAMES.buffer], replication=1)

    (found,) = findings(actual)

    assert found.problem == "has one replica on 3 brokers: losing that broker loses the topic"


def test_a_single_replica_is_all_that_one_broker_can_have() -> None:
    actual = {
        name: replace(topic, replication=1, settings={**topic.settings, "min.insync.replicas": "1"})
        for name, topic in as_wanted().items()
    }

    assert findings(actual, brokers=1) == []


def test_more_in_sync_replicas_than_there_are_is_found() -> None:
    actual = with_setting(NAMES.buffer, "min.insync.replicas", "2")
    actual[NAMES.buffer] = replace(actual[NAMES.buffer], replication=1)

    (found,) = findings(actual, brokers=1)

    assert "nothing can be written" in found.problem


@pytest.mark.parametrize(("replication", "in_sync"), [(1, 1), (2, 1), (3, 2), (4, 3), (5, 3)])
def test_in_sync_replicas_outlive_one_broker(replication: int, in_sync: int) -> None:
    assert min_insync_replicas(replication) == in_sync


def target(max_message_bytes: int, in_sync: int = 2, replication: int = 3) -> list[TopicFinding]:
    topics = as_wanted()
    settings = {"max.message.bytes": str(max_message_bytes), "min.insync.replicas": str(in_sync)}
    topics["orders"] = Topic("orders", 3, replication, settings)
    return check_target("orders", topics[NAMES.buffer], topics, bootstrap_servers="kafka:9092")


def test_a_target_made_with_kafkas_defaults_takes_every_message() -> None:
    assert target(1_048_588) == []


def test_a_target_that_is_a_byte_too_small_is_found() -> None:
    least = BUFFER_BYTES + OVERHEAD_BYTES

    (found,) = target(least - 1)

    assert found.problem == (
        f"max.message.bytes is {least - 1}, must be at least {least}: the buffer's {BUFFER_BYTES}"
        f" and {OVERHEAD_BYTES} for headers"
    )


def test_a_target_that_asks_for_all_its_replicas_is_found() -> None:
    (found,) = target(1_048_588, in_sync=3)

    assert found.problem.startswith("min.insync.replicas is 3, should be below 3, the number of replicas")
    assert found.mend.endswith("--entity-name orders --add-config min.insync.replicas=2")


def test_a_topic_that_takes_nothing_now_is_found() -> None:
    actual = as_wanted()
    actual[NAMES.checkpoint] = replace(actual[NAMES.checkpoint], unavailable=(0, 1))

    (found,) = check_availability(actual.values())

    assert found.problem == "takes nothing in 0, 1: no leader, or fewer than 2 replicas in sync"


def changed_in(partitions: int) -> SettingsVersions:
    """The settings after a change that has marked so many."""
    begins = {partition: Begin(1, 1) for partition in range(partitions)}
    longer = replace(SETTINGS, max_delay_ms=SETTINGS.max_delay_ms + 1)
    return SettingsVersions.of(SETTINGS).changed(longer, begins, "somebody", "a reason", 1)


def test_partitions_that_were_added_since_a_change_are_found() -> None:
    assert check_marks(changed_in(6), as_wanted()) == []
    actual = as_wanted()
    actual[NAMES.buffer] = replace(actual[NAMES.buffer], partitions=10)

    (found,) = check_marks(changed_in(6), actual)

    assert found.problem == (
        "has partitions that were added since the settings were changed, 6, 7, 8, ...: what is there is read"
        " by version 1 of them, not by 2"
    )
    assert found.mend.startswith("delayline settings change")


def test_settings_that_never_changed_count_in_partitions_that_were_added() -> None:
    actual = as_wanted()
    actual[NAMES.buffer] = replace(actual[NAMES.buffer], partitions=10)
    assert check_marks(SettingsVersions.of(SETTINGS), actual) == []


def test_a_target_of_two_replicas_is_not_made_less_safe() -> None:
    (found,) = target(1_048_588, in_sync=2, replication=2)

    assert found.mend == "kafka-reassign-partitions.sh (three replicas or more)"


def test_a_target_that_is_missing_is_found() -> None:
    topics = as_wanted()

    (found,) = check_target("orders", topics[NAMES.buffer], topics, bootstrap_servers="kafka:9092")

    assert found.mend == "kafka-topics.sh --bootstrap-server kafka:9092 --create --topic orders"


def test_the_headers_of_a_delivery_fit_into_the_overhead() -> None:
    longest = source("t" * 249, MAX_PARTITION, MAX_OFFSET)
    headers = delivery_headers(
        [],
        id=None,
        source=longest.encode(),
        scheduled_for_ms=MAX_MS,
        attempt=MAX_OFFSET,
        occurrence=MAX_OFFSET,
    )

    assert sum(len(name) + len(value or b"") + 8 for name, value in headers) < OVERHEAD_BYTES


def retention_of(topic: str, settings: ClusterSettings) -> int:
    (wanted,) = (one for one in wanted_topics(settings) if one.name == topic)
    (retention_ms,) = (setting.value for setting in wanted.settings if setting.key == "retention.ms")
    return int(retention_ms)


def test_retention_covers_the_longest_delay_and_the_time_for_which_an_id_is_known() -> None:
    settings = replace(SETTINGS, levels_ms=(0,), max_delay_ms=1000, dedup_window_ms=500)

    assert retention_of(NAMES.buffer, settings) == 1500 + RETENTION_MARGIN_MS
    shorter = replace(settings, max_delay_ms=10, dedup_window_ms=5).after(settings)
    assert retention_of(NAMES.buffer, shorter) == 1500 + RETENTION_MARGIN_MS


@pytest.mark.parametrize(("days", "outcomes_days"), [(1, 7), (7, 7), (30, 30)])
def test_where_what_waits_is_carried_the_retention_is_the_cluster_s_own(
    days: int, outcomes_days: int
) -> None:
    settings = replace(SETTINGS, max_delay_ms=3_653 * DAY_MS, retention_ms=days * DAY_MS)

    assert retention_of(NAMES.buffer, settings) == days * DAY_MS
    assert retention_of(NAMES.outcomes, settings) == outcomes_days * DAY_MS


@pytest.mark.parametrize(
    ("buffer_ms", "outcomes_ms", "asked_ms"),
    [
        (30 * DAY_MS, 9 * DAY_MS, 30 * DAY_MS),
        (-1, 9 * DAY_MS, -1),
        (30 * DAY_MS, -1, None),
        (30 * DAY_MS, 30 * DAY_MS, None),
    ],
)
def test_where_what_waits_is_carried_outcomes_are_kept_for_as_long_as_the_buffer_is_now(
    buffer_ms: int, outcomes_ms: int, asked_ms: int | None
) -> None:
    actual = with_setting(NAMES.buffer, "retention.ms", str(buffer_ms)) | {
        NAMES.outcomes: with_setting(NAMES.outcomes, "retention.ms", str(outcomes_ms))[NAMES.outcomes]
    }

    found = findings(actual, settings=replace(SETTINGS, retention_ms=9 * DAY_MS))

    asked = [] if asked_ms is None else [(NAMES.outcomes, f"retention.ms={asked_ms}")]
    assert [(one.topic, one.mend.split()[-1]) for one in found] == asked


@pytest.mark.parametrize("retention_ms", [None, 9 * DAY_MS], ids=["kept", "carried"])
def test_what_is_said_of_retentions_that_are_too_short(
    retention_ms: int | None, snapshot: SnapshotAssertion
) -> None:
    short = with_setting(NAMES.outcomes, "retention.ms", str(6 * DAY_MS))
    actual = with_setting(NAMES.buffer, "retention.ms", str(8 * DAY_MS)) | {
        NAMES.outcomes: short[NAMES.outcomes]
    }
    found = findings(actual, settings=replace(SETTINGS, retention_ms=retention_ms))

    assert [(one.topic, one.problem) for one in found] == snapshot


def test_partitions_follow_the_settings() -> None:
    partitions = {topic.name: topic.partitions for topic in wanted_topics(SETTINGS)}

    assert partitions == {
        NAMES.buffer: 6,
        NAMES.checkpoint: 2,
        NAMES.outcomes: 2,
        NAMES.dead_letter: 6,
        NAMES.settings: 1,
    }


def test_a_problem_is_one_line() -> None:
    problems = [
        findings(with_setting(topic, key, value))[0].problem for topic, key, value, _ in WRONG_SETTINGS
    ]

    assert not [problem for problem in problems if re.search(r"\n", problem)]
