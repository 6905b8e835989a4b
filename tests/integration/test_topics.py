"""Making a cluster, making it again, and what `check` sees, on a real Kafka and ZooKeeper."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from delayline.names import ClusterNames
from delayline.times import DAY_MS
from election.errors import Forbidden, SettingsDiffer, ZnodeMissing
from node.config import ConnectionConfig, ZookeeperAuth
from ops.clients.kafka import KafkaAdmin
from ops.clients.zookeeper import registry
from ops.errors import ConfigError, ConflictError, NotFoundError, UnavailableError
from ops.topics import cluster_topics
from ops.topics.new_settings import new_settings
from ops.topics.rules import wanted_topics
from tests.stacks import Stack

DEADLINE_S = 20.0


@pytest.fixture
def config(stack: Stack, cluster_name: str) -> ConnectionConfig:
    return ConnectionConfig(
        cluster=cluster_name, bootstrap_servers=stack.bootstrap, zookeeper=stack.zookeeper
    )


@pytest.fixture
def names(config: ConnectionConfig) -> ClusterNames:
    return ClusterNames(config.cluster)


@pytest.fixture
def admin(stack: Stack) -> AdminClient:
    return AdminClient({"bootstrap.servers": stack.bootstrap})


def wait_until(holds: Callable[[], bool]) -> None:
    """A broker learns of a change a moment after the controller has made it."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline_s


def delete(admin: AdminClient, topic: str) -> None:
    admin.delete_topics([topic])[topic].result()
    wait_until(lambda: topic not in admin.list_topics(timeout=5).topics)


def make(admin: AdminClient, topic: str, partitions: int = 1, **settings: str) -> None:
    named = {key.replace("_", "."): value for key, value in settings.items()}
    request = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=named)
    admin.create_topics([request])[topic].result()
    wait_until(lambda: topic in admin.list_topics(timeout=5).topics)


def alter(admin: AdminClient, topic: str, key: str, value: str) -> None:
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result()
    wait_until(lambda: setting(admin, topic, key) == value)


def setting(admin: AdminClient, topic: str, key: str) -> str:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entry: ConfigEntry = admin.describe_configs([resource])[resource].result()[key]
    return str(entry.value)


def test_a_new_cluster_has_its_topics_and_settings_as_they_must_be(config: ConnectionConfig) -> None:
    created = cluster_topics.create(config, {"partitions": 3, "lanes": 2})

    assert created.settings_written
    assert created.findings == ()
    assert cluster_topics.check(config) == []
    assert cluster_topics.read_settings(config) == new_settings(config.cluster, partitions=3, lanes=2)


def test_every_topic_has_the_partitions_and_settings_it_was_made_with(
    config: ConnectionConfig, names: ClusterNames
) -> None:
    settings = cluster_topics.create(config, {"partitions": 3, "lanes": 2}).settings

    actual = KafkaAdmin(config).topics({*names.own_topics, names.settings})
    for wanted in wanted_topics(settings):
        assert actual[wanted.name].partitions == wanted.partitions
        made_with = {setting.key: setting.value for setting in wanted.settings}
        assert {key: actual[wanted.name].settings[key] for key in made_with} == made_with


def test_making_a_cluster_again_changes_nothing(config: ConnectionConfig) -> None:
    first = cluster_topics.create(config, {"partitions": 2})

    again = cluster_topics.create(config, {"partitions": 2})

    assert (again.settings, again.settings_written, again.topics) == (first.settings, False, ())


def test_a_lost_checkpoint_topic_is_made_anew_by_the_present_settings(
    config: ConnectionConfig, names: ClusterNames, admin: AdminClient
) -> None:
    cluster_topics.create(config, {"partitions": 3, "lanes": 3})
    delete(admin, names.checkpoint)

    created = cluster_topics.create(config)

    assert created.topics == (names.checkpoint,)
    assert not created.buffer_was_lost
    assert cluster_topics.check(config) == []


def test_a_lost_buffer_is_told(config: ConnectionConfig, names: ClusterNames, admin: AdminClient) -> None:
    cluster_topics.create(config)
    delete(admin, names.buffer)

    assert cluster_topics.create(config).buffer_was_lost


def test_other_settings_than_the_clusters_are_refused(config: ConnectionConfig) -> None:
    present = cluster_topics.create(config, {"partitions": 2}).settings

    with pytest.raises(SettingsDiffer, match="partitions is 2 there, 3 here"):
        cluster_topics.create(config, {"partitions": 3})

    assert cluster_topics.read_settings(config) == present
    assert cluster_topics.check(config) == []


def test_settings_that_contradict_themselves_are_refused(config: ConnectionConfig) -> None:
    with pytest.raises(ConfigError, match="lanes is 5: it must be 1 to the number of partitions, 4"):
        cluster_topics.create(config, {"lanes": 5})


def test_more_replicas_than_brokers_are_refused_before_anything_is_written(config: ConnectionConfig) -> None:
    with pytest.raises(ConfigError, match="1000 replicas need as many brokers"):
        cluster_topics.create(config, replication=1000)

    with pytest.raises(ZnodeMissing):
        cluster_topics.read_settings(config)


def test_of_two_operators_at_once_one_is_told_of_the_others_settings(config: ConnectionConfig) -> None:
    def create(partitions: int) -> int | None:
        try:
            return cluster_topics.create(config, {"partitions": partitions}).settings.partitions
        except (SettingsDiffer, ConflictError):
            return None

    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(create, (2, 3)))

    assert made.count(None) == 1
    assert cluster_topics.read_settings(config).partitions in made
    assert cluster_topics.check(config) == []


def test_a_topic_of_that_name_with_other_partitions_is_refused_before_anything_is_written(
    config: ConnectionConfig, names: ClusterNames, admin: AdminClient
) -> None:
    make(admin, names.buffer, partitions=2)

    with pytest.raises(
        ConflictError, match=f"{names.buffer} exists with 2 partitions, the settings ask for 4"
    ):
        cluster_topics.create(config)

    with pytest.raises(ZnodeMissing):
        cluster_topics.read_settings(config)
    assert names.checkpoint not in admin.list_topics(timeout=5).topics


def test_a_topic_that_was_there_with_wrong_settings_is_found(
    config: ConnectionConfig, names: ClusterNames, admin: AdminClient
) -> None:
    week_ms = "604800000"  # as the outcomes are kept
    make(admin, names.buffer, partitions=4, message_timestamp_type="LogAppendTime", retention_ms=week_ms)
    alter(admin, names.buffer, "cleanup.policy", "compact")

    (found,) = cluster_topics.create(config).findings

    assert (found.topic, found.problem[:14]) == (names.buffer, "cleanup.policy")


def test_what_check_finds_is_mended_by_the_command_it_names(
    config: ConnectionConfig, names: ClusterNames, admin: AdminClient
) -> None:
    cluster_topics.create(config)
    alter(admin, names.buffer, "retention.ms", "1000")

    (found,) = cluster_topics.check(config)
    mend = re.fullmatch(r"kafka-configs.sh .* --entity-name (\S+) --add-config (\S+)=(\S+)", found.mend)
    assert mend is not None
    alter(admin, *mend.groups())

    assert cluster_topics.check(config) == []


@pytest.mark.parametrize(
    ("chosen", "days", "outcomes_days"),
    [({}, 7, 7), ({"retention_ms": 30 * DAY_MS}, 30, 30), ({"retention_ms": None}, 373, 7)],
    ids=["default", "chosen", "nothing carried"],
)
def test_the_log_is_kept_for_the_clusters_retention_or_for_the_longest_delay(
    config: ConnectionConfig,
    names: ClusterNames,
    admin: AdminClient,
    chosen: dict[str, int | None],
    days: int,
    outcomes_days: int,
) -> None:
    cluster_topics.create(config, chosen)

    kept_ms = int(setting(admin, names.buffer, "retention.ms"))
    assert kept_ms // DAY_MS == days
    assert int(setting(admin, names.outcomes, "retention.ms")) == outcomes_days * DAY_MS
    assert cluster_topics.check(config) == []
    alter(admin, names.buffer, "retention.ms", str(kept_ms - 1))
    (found,) = cluster_topics.check(config)
    assert (found.topic, f"retention.ms={kept_ms}" in found.mend) == (names.buffer, True)


def test_a_retention_too_short_for_the_dedup_window_is_refused_before_anything_is_written(
    config: ConnectionConfig,
) -> None:
    with pytest.raises(ConfigError, match="retention is 13h: it must be at least 2d14h"):
        cluster_topics.create(config, {"retention_ms": 13 * 3_600_000})

    with pytest.raises(ZnodeMissing):
        cluster_topics.read_settings(config)


def test_the_retention_of_a_cluster_that_exists_is_not_changed(config: ConnectionConfig) -> None:
    cluster_topics.create(config)

    with pytest.raises(SettingsDiffer, match="retention_ms is 604800000 there, None here"):
        cluster_topics.create(config, {"retention_ms": None})


def test_check_names_the_topic_that_is_missing(
    config: ConnectionConfig, names: ClusterNames, admin: AdminClient
) -> None:
    cluster_topics.create(config)
    delete(admin, names.outcomes)

    (found,) = cluster_topics.check(config)

    assert (found.topic, found.mend) == (names.outcomes, "delayline topics create")


def test_check_tells_of_a_target_that_takes_less_than_the_buffer(
    config: ConnectionConfig, admin: AdminClient
) -> None:
    cluster_topics.create(config, {"max_request_bytes": 495_904})
    make(admin, f"{config.cluster}.small", max_message_bytes="500000")
    make(admin, f"{config.cluster}.large")

    (found,) = cluster_topics.check(config, f"{config.cluster}.small")

    assert found.problem.startswith("max.message.bytes is 500000, must be at least 504096")
    assert cluster_topics.check(config, f"{config.cluster}.large") == []


def test_a_cluster_that_was_never_made_cannot_be_checked(config: ConnectionConfig) -> None:
    with pytest.raises(ZnodeMissing, match="create it with `delayline topics create`"):
        cluster_topics.check(config)


def test_a_target_cannot_be_checked_without_the_buffer(
    config: ConnectionConfig, names: ClusterNames, admin: AdminClient
) -> None:
    cluster_topics.create(config)
    delete(admin, names.buffer)

    with pytest.raises(NotFoundError, match=f"{names.buffer} is missing"):
        cluster_topics.check(config, "target")


def test_settings_written_with_credentials_cannot_be_read_without(config: ConnectionConfig) -> None:
    auth = ZookeeperAuth.model_validate({"scheme": "digest", "credential": "operator:secret"})
    cluster_topics.create(config.model_copy(update={"zookeeper_auth": auth}))

    with registry(config) as znodes, pytest.raises(Forbidden, match="check zookeeper_auth"):
        znodes.settings()


def test_a_kafka_that_refuses_the_connection_is_unavailable_and_says_why() -> None:
    config = ConnectionConfig(bootstrap_servers="127.0.0.1:1", zookeeper="127.0.0.1:1")

    with pytest.raises(UnavailableError, match=r"Kafka at 127.0.0.1:1 does not answer: .*Connection refused"):
        KafkaAdmin(config, timeout_s=2.0).brokers()
