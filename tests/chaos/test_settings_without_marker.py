"""The broker of the settings topic alone dies: Kafka ends a change's transaction without its marker there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest
from confluent_kafka import Producer

from bench.second_broker import SECOND, SecondBroker
from delayline.settings_versions import Begin, SettingsVersions
from node.kafka.fetch.coordinators import ONGOING, Coordinators
from ops.clients import settings_topic
from ops.clients.left_open import end_left_open
from ops.clients.settings_topic import Change, SettingsTopic
from ops.settings import change
from ops.stack import LocalStack
from ops.topics import cluster_topics, rules
from tests.support.cluster import Cluster, wait_led
from tests.support.operators import AUTHOR
from tests.support.transactions import last_of_settings
from tests.support.waiting import PATIENCE_S, eventually

DAY_MS: Final = 86_400_000


class Died(Exception):
    """The command has."""


async def die(*_: object) -> NoReturn:
    raise Died


@pytest.fixture
def second(tmp_path: Path) -> Iterator[tuple[Cluster, SecondBroker]]:
    """A cluster, and a broker that has its settings topic and nothing else."""
    with ExitStack() as open_until_end:
        stack = open_until_end.enter_context(LocalStack(tmp_path / "stack"))
        (tmp_path / "cluster").mkdir()
        cluster = open_until_end.enter_context(Cluster(stack, "t-marker", tmp_path / "cluster"))
        second = SecondBroker(stack, tmp_path / "second")
        open_until_end.callback(second.kill)
        second.start()
        cluster.delete_topic(cluster.names.settings)
        wanted = rules.settings_topic(cluster.names)
        second.make_topic(wanted.name, [[SECOND]], {one.key: one.value for one in wanted.settings})
        wait_led(cluster.admin, {wanted.name: 1})
        SettingsTopic(cluster.connection, cluster.names, cluster.keys).write_first(versions_of(cluster))
        yield cluster, second


def versions_of(cluster: Cluster) -> SettingsVersions:
    return cluster_topics.read_versions(cluster.connection)


def lose_marker(
    cluster: Cluster, second: SecondBroker, monkeypatch: pytest.MonkeyPatch, *, is_committed: bool
) -> None:
    """A change to the longest delay ends while its topic has no leader, and its command dies then."""

    def end(_: SettingsTopic, producer: Producer) -> None:
        second.kill()
        eventually(lambda: not second.is_counted(), "the second broker is given up")
        if is_committed:
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.abort_transaction(PATIENCE_S)

    def make(begins: Mapping[int, int]) -> SettingsVersions:
        marks = {partition: Begin(offset, 0) for partition, offset in begins.items()}
        stand = versions_of(cluster)
        return stand.changed(replace(stand.settings, max_delay_ms=DAY_MS, levels_ms=(1,)), marks, "", "", 0)

    with monkeypatch.context() as patches:
        patches.setattr(settings_topic, "TIMEOUT_S", PATIENCE_S)  # it takes a while to give a broker up
        patches.setattr(SettingsTopic, "_commit", end)
        topic = SettingsTopic(cluster.connection, cluster.names, cluster.keys)
        topic.write([0, 1], lambda _: Change(2, make))
    second.start()
    wait_led(cluster.admin, {cluster.names.settings: 1})


@pytest.mark.parametrize("is_committed", [True, False], ids=["committed", "aborted"])
def test_a_change_that_has_ended_without_its_marker_counts_if_it_was_committed_and_others_follow(
    second: tuple[Cluster, SecondBroker], monkeypatch: pytest.MonkeyPatch, *, is_committed: bool
) -> None:
    cluster, broker = second
    lose_marker(cluster, broker, monkeypatch, is_committed=is_committed)
    chosen: dict[str, Any] = {"max_delay_ms": 2 * DAY_MS, "levels_ms": (1,)}
    _, after, _ = change.change(cluster.connection, chosen, AUTHOR, PATIENCE_S)
    delays_ms = [one.settings.max_delay_ms for one in after.all[1:]]
    assert delays_ms == [DAY_MS, 2 * DAY_MS] if is_committed else [2 * DAY_MS]


def die_ending_it(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command begins to end what is open, and has died before it says how."""
    with monkeypatch.context() as patches:
        for end in ("commit", "abort"):
            patches.setattr(Coordinators, end, die)
        with pytest.raises(Died):
            end_left_open(cluster.connection.client_config(), cluster.names)
    assert last_of_settings(cluster) == ONGOING


def test_so_does_one_that_was_committed_though_a_command_has_died_that_was_ending_it(
    second: tuple[Cluster, SecondBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, broker = second
    lose_marker(cluster, broker, monkeypatch, is_committed=True)
    die_ending_it(cluster, monkeypatch)
    chosen: dict[str, Any] = {"max_delay_ms": 2 * DAY_MS, "levels_ms": (1,)}
    _, after, _ = change.change(cluster.connection, chosen, AUTHOR, PATIENCE_S)
    assert [one.settings.max_delay_ms for one in after.all[1:]] == [DAY_MS, 2 * DAY_MS]


def test_one_that_was_aborted_is_not_committed_where_a_command_has_died_that_was_ending_it(
    second: tuple[Cluster, SecondBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, broker = second
    lose_marker(cluster, broker, monkeypatch, is_committed=False)
    die_ending_it(cluster, monkeypatch)
    end_left_open(cluster.connection.client_config(), cluster.names)
    assert last_of_settings(cluster) == ONGOING
