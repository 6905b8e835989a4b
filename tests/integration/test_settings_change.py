"""Settings that are changed while nodes run: each request is read by those of its place in the log, by every
node alike, whenever it learns of them.
"""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer

from delayline.names import parse_source
from delayline.receipt import Receipt
from delayline.settings import BUFFER_MAX_MESSAGE_BYTES, OVERHEAD_BYTES, SETTINGS
from delayline.settings_record import KEY, PARTITION, encode_settings, signed
from delayline.settings_versions import MOST_BYTES, SettingsVersions
from delayline.wire import (
    H_AFTER,
    H_TARGET_TOPIC,
    Header,
    SettingsMark,
    SettingsPlace,
    settings_mark_headers,
)
from election.operators import Author
from node.kafka import known_settings
from node.kafka.fetch.coordinators import ONGOING
from node.kafka.known_settings import NOTHING_READ, ReadSettings, read_settings
from node.kafka.reader import TopicReader
from node.node import Node
from node.status import NodeState
from ops.clients.settings_topic import Change, SettingsTopic
from ops.doctor import examine
from ops.errors import ConfigError, ConflictError
from ops.settings import change
from ops.topics import cluster_topics
from ops.topics.marks import check_marks
from store.checkpoint import Vector
from tests.integration.test_carrying import ends_of, forget, outcomes_of, start, told
from tests.integration.test_signed import send
from tests.support.cluster import Cluster
from tests.support.fates import Fates, check_exactly_once
from tests.support.fixtures import MakeCluster
from tests.support.requests import Sender
from tests.support.transactions import last_of_settings
from tests.support.waiting import PATIENCE_S, eventually

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
AUTHOR = Author("somebody", "to see what happens", 1)
COUNT = 10


@pytest.fixture
def cluster(make_cluster: MakeCluster) -> Cluster:
    return make_cluster(max_delay_ms=HOUR_MS, levels_ms=(HOUR_MS,))


def change_to(cluster: Cluster, **chosen: Any) -> SettingsVersions:
    _, after, _ = change.change(cluster.connection, chosen, AUTHOR, PATIENCE_S)
    return after


def versions_of(cluster: Cluster) -> SettingsVersions:
    return cluster_topics.read_versions(cluster.connection)


def end_of_settings(cluster: Cluster) -> SettingsPlace:
    return read_settings(cluster.connection.client_config(), cluster.names, cluster.keys).to


def mark_of(cluster: Cluster, number: int, at: SettingsPlace) -> list[Header]:
    """Of partition 0."""
    return settings_mark_headers(SettingsMark(number, at), 0, cluster.keys)


def give_up(cluster: Cluster) -> list[Header]:
    """A change that dies once its marks are there; a copy of one."""
    end = end_of_settings(cluster)

    def die(_: Any) -> SettingsVersions:
        raise InterruptedError("the operator has gone")

    number = versions_of(cluster).latest.number + 1
    with pytest.raises(InterruptedError):
        SettingsTopic(cluster.connection, cluster.names, cluster.keys).write(
            [0], lambda _: Change(number, die)
        )
    eventually(lambda: end_of_settings(cluster).offset == end.offset + 2, "what it has begun is ended")
    return mark_of(cluster, number, end._replace(offset=end.offset + 1))


def is_behind(cluster: Cluster) -> bool:
    return (cluster.member("a").get("reason") or "").startswith("settings-behind: ")


def take_over(cluster: Cluster, running: Node, node_id: str) -> Node:
    """The leader is stopped; another one, which has no folder, reads all of the log, and leads."""
    cluster.stop_here(running)
    shutil.rmtree(cluster.data_dir(node_id), ignore_errors=True)
    node = cluster.start_here(node_id)
    cluster.wait_state(node_id, NodeState.LEADER)
    return node


def wait_rejects(cluster: Cluster, count: int) -> None:
    cluster.tail.wait(lambda: len(cluster.dead_letters) == count, f"there are {count} dead letters")


def too_long(sender: Sender, name: str) -> list[Receipt]:
    """What is too long at first."""
    return [sender.schedule(after_ms=2 * HOUR_MS, id=f"{name}-{number}") for number in range(COUNT)]


def fates_of(fates: Fates, receipts: list[Receipt]) -> set[str]:
    return {fate for receipt in receipts for fate in fates.of[receipt.result()]}


def settled(cluster: Cluster, sender: Sender, *names: str) -> Fates:
    """All of these are delivered now, but for what has come to another end."""
    for name in names:
        for number in range(COUNT):
            sender.run_now(f"{name}-{number}")
    return check_exactly_once(cluster, sender.flush())


def test_what_was_asked_before_a_change_means_what_it_meant_to_who_reads_it_later(cluster: Cluster) -> None:
    running = cluster.start_here("a")
    cluster.wait_state("a", NodeState.LEADER)
    with Sender(cluster) as sender:
        before = too_long(sender, "before")
        sender.flush()
        assert change_to(cluster, max_delay_ms=DAY_MS, levels_ms=(1,)).latest.number == 2
        after = too_long(sender, "after")
        sender.flush()
        wait_rejects(cluster, COUNT)
        take_over(cluster, running, "b")
        fates = settled(cluster, sender, "before", "after")
        assert fates_of(fates, before) == {"delay-too-long"}
        assert fates_of(fates, after) == {"delivered"}


def test_what_was_accepted_stays_so_whatever_the_settings_become(cluster: Cluster) -> None:
    """A move writes it back, where a shorter delay holds, and another list of targets."""
    running = cluster.start_here("a")
    cluster.wait_state("a", NodeState.LEADER)
    with Sender(cluster) as sender:
        change_to(cluster, max_delay_ms=DAY_MS, levels_ms=(1,))
        accepted = too_long(sender, "moved")
        sender.flush()
        change_to(cluster, max_delay_ms=HOUR_MS, targets=(cluster.sentinels,))
        refused_now = [sender.schedule() for _ in range(COUNT)]
        sender.flush()
        running = take_over(cluster, running, "b")
        change_to(cluster, targets=())
        fates = settled(cluster, sender, "moved")
        assert fates_of(fates, accepted) == {"delivered"}
        assert fates_of(fates, refused_now) == {"target-forbidden"}


def test_changes_under_load_are_read_alike_by_every_node(cluster: Cluster) -> None:
    cluster.start_here("a")
    cluster.start_here("b")
    cluster.wait_candidates(2)
    with Sender(cluster) as sender:
        for turn in range(6):
            for number in range(100):
                sender.schedule(after_ms=2 * HOUR_MS, partition=number % 2)
            change_to(cluster, max_delay_ms=HOUR_MS if turn % 2 else DAY_MS, levels_ms=(1,))
        ledger = sender.flush()
        assert SettingsVersions.from_json(cluster.member("a")["settings"]) == versions_of(cluster)
        accepted = {one for one in ledger.schedules if is_long_enough(versions_of(cluster), one)}
        wait_rejects(cluster, len(ledger.schedules) - len(accepted))
        cluster.start_here("c")
        cluster.wait_candidates(3)
        eventually(
            lambda: all(cluster.member(node)["pending"] == len(accepted) for node in "abc"),
            "all have the same",
        )


def is_long_enough(versions: SettingsVersions, source: str) -> bool:
    _, partition, offset = parse_source(source)
    return versions.settings_at(partition, offset).max_delay_ms == DAY_MS


def test_a_forged_mark_is_a_reject_and_a_copy_of_one_is_nothing(cluster: Cluster) -> None:
    running = cluster.start_here("a")
    cluster.wait_state("a", NodeState.LEADER)
    with Sender(cluster) as sender:
        end = end_of_settings(cluster)
        change_to(cluster, max_delay_ms=DAY_MS)
        after = too_long(sender, "after")
        change_to(cluster, max_delay_ms=HOUR_MS)
        ledger = sender.flush()
        send(cluster, 0, None, None, mark_of(cluster, 2, end._replace(offset=end.offset + 1)))
        forged = send(cluster, 0, None, None, [("delay-op", b"settings"), ("delay-settings", b"2")])
        ledger.rejects.add(forged)
        late = too_long(sender, "late")
        sender.flush()
        wait_rejects(cluster, COUNT + 1)
        take_over(cluster, running, "b")
        fates = settled(cluster, sender, "after", "late")
        assert fates_of(fates, after) == {"delivered"}
        assert fates_of(fates, late) == {"delay-too-long"}
        assert fates.of[forged] == ["bad-parent"]


@pytest.mark.parametrize("before", ["_mark", "_write_record", "_commit"])
def test_nobody_ends_a_change_that_is_on_its_way(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    states: list[str] = []
    goes_on = getattr(SettingsTopic, before)

    def settled_first(topic: SettingsTopic, *args: Any) -> Any:
        topic.settle()
        states.append(last_of_settings(cluster))
        return goes_on(topic, *args)

    monkeypatch.setattr(SettingsTopic, before, settled_first)
    after = change_to(cluster, max_delay_ms=DAY_MS)
    assert states == [ONGOING]
    assert versions_of(cluster) == after


def test_a_mark_of_a_change_that_was_given_up_is_nothing_and_stops_nobody(cluster: Cluster) -> None:
    """Whoever reads what was aborted may send it again."""
    cluster.start_here("a")
    cluster.wait_state("a", NodeState.LEADER)
    with Sender(cluster) as sender:
        send(cluster, 0, None, None, give_up(cluster))
        delivered = [sender.schedule() for _ in range(COUNT)]
        fates = settled(cluster, sender)
        assert fates_of(fates, delivered) == {"delivered"}
        change_to(cluster, max_delay_ms=DAY_MS)
        after = too_long(sender, "after")
        assert fates_of(settled(cluster, sender, "after"), after) == {"delivered"}


def test_copies_of_a_mark_that_was_given_up_cost_no_further_read(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[ReadSettings] = []
    read = known_settings.read_settings

    def counted(*asked: Any, **how: Any) -> ReadSettings:
        reads.append(read(*asked, **how))
        return reads[-1]

    running = cluster.start_here("a")
    cluster.wait_state("a", NodeState.LEADER)
    copied = [give_up(cluster), give_up(cluster)]
    monkeypatch.setattr(known_settings, "read_settings", counted)
    with Sender(cluster) as sender:
        for _ in range(COUNT):
            for mark in copied:
                send(cluster, 0, None, None, mark)
            sender.schedule(partition=0)
            settled(cluster, sender)
    cluster.stop_here(running)
    assert len(reads) <= len(copied)


def test_the_settings_topic_is_read_on_from_where_it_was_read_to(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    begins: list[int] = []
    start = TopicReader.start

    def started(reader: TopicReader, offsets: Vector) -> None:
        begins.append(offsets[PARTITION])
        start(reader, offsets)

    def read_on(before: ReadSettings = NOTHING_READ) -> ReadSettings:
        return read_settings(cluster.connection.client_config(), cluster.names, cluster.keys, before)

    change_to(cluster, max_delay_ms=DAY_MS)
    first = read_on()
    after = change_to(cluster, max_delay_ms=HOUR_MS)
    monkeypatch.setattr(TopicReader, "start", started)
    second = read_on(first)
    assert (second.versions, begins) == (after, [first.to.offset])
    assert read_on(second) == second
    assert begins == [first.to.offset]
    cluster.delete_topic(cluster.names.settings)
    cluster.create_again()
    begins.clear()
    assert read_on(second).versions == after
    assert begins == [0]


def test_what_stands_behind_a_mark_waits_for_the_place_of_its_change_whatever_end_a_broker_tells(
    cluster: Cluster,
) -> None:
    """A broker that is cut off from the others does not have what the mark names: as if it told that."""
    cluster.start_here("a")
    cluster.wait_state("a", NodeState.LEADER)
    end = end_of_settings(cluster)
    send(cluster, 0, None, None, mark_of(cluster, 2, end._replace(offset=end.offset + 4)))
    with Sender(cluster) as sender:
        behind = [sender.schedule(partition=0) for _ in range(COUNT)]
        sender.flush()
        eventually(lambda: is_behind(cluster), "it says so")
        give_up(cluster)
        give_up(cluster)
        assert is_behind(cluster)
        assert not cluster.delivered
        give_up(cluster)
        assert fates_of(settled(cluster, sender), behind) == {"delivered"}
        eventually(lambda: not is_behind(cluster), "it says no more that it waits")


def test_a_node_begins_whatever_is_open_in_the_settings_topic(cluster: Cluster) -> None:
    change_to(cluster, max_delay_ms=DAY_MS)
    stranger = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": cluster.target("open")})
    stranger.init_transactions(PATIENCE_S)
    stranger.begin_transaction()
    stranger.produce(cluster.names.settings, b"of a transaction that stays open", partition=PARTITION)
    stranger.flush(PATIENCE_S)
    try:
        cluster.start_here("a")
        cluster.wait_state("a", NodeState.LEADER)
        with Sender(cluster) as sender:
            receipts = too_long(sender, "changed")
            assert fates_of(settled(cluster, sender, "changed"), receipts) == {"delivered"}
    finally:
        stranger.abort_transaction(PATIENCE_S)


def test_a_command_reads_the_settings_where_the_thread_has_an_event_loop_that_runs(cluster: Cluster) -> None:
    """As in a notebook."""

    async def changed() -> SettingsVersions:
        return change_to(cluster, max_delay_ms=DAY_MS)

    after = asyncio.run(changed())
    assert asyncio.run(versions_in_topic(cluster)) == after == versions_of(cluster)


async def versions_in_topic(cluster: Cluster) -> SettingsVersions | None:
    return SettingsTopic(cluster.connection, cluster.names, cluster.keys).read()


def test_what_strangers_write_to_the_settings_topic_and_copies_there_are_nothing(cluster: Cluster) -> None:
    running = cluster.start_here("a")
    cluster.wait_state("a", NodeState.LEADER)
    first = versions_of(cluster)
    after = change_to(cluster, max_delay_ms=DAY_MS)
    topic, producer = cluster.names.settings, Producer({"bootstrap.servers": cluster.bootstrap})
    value = encode_settings(first, 0)
    headers: Any = signed(value, topic, cluster.keys)
    producer.produce(topic, value, KEY, PARTITION, headers=headers)
    producer.produce(topic, encode_settings(first, 5), KEY, PARTITION)
    producer.produce(topic, None, KEY, PARTITION)
    assert producer.flush(PATIENCE_S) == 0
    assert SettingsTopic(cluster.connection, cluster.names, cluster.keys).read() == after
    with Sender(cluster) as sender:
        long = too_long(sender, "long")
        take_over(cluster, running, "b")
        assert fates_of(settled(cluster, sender, "long"), long) == {"delivered"}


@pytest.mark.parametrize("running", [True, False], ids=["while it runs", "while it is away"])
def test_settings_that_zookeeper_has_lost_are_put_back_from_their_topic(
    cluster: Cluster, *, running: bool
) -> None:
    node = cluster.start_here("a")
    cluster.wait_state("a", NodeState.LEADER)
    after = change_to(cluster, max_delay_ms=DAY_MS)
    if not running:
        cluster.stop_here(node)
    cluster.kazoo.delete(cluster.znodes.settings)
    if not running:
        cluster.start_here("a")
    eventually(lambda: cluster.kazoo.exists(cluster.znodes.settings), "they are back", 4 * PATIENCE_S)
    assert versions_of(cluster) == after
    cluster.wait_state("a", NodeState.LEADER)


def test_settings_too_long_to_be_shown_are_not_replaced_by_others_that_a_node_works_without(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(allow_list=("*", *(f"orders.{number:04}" for number in range(2_000))))
    cluster.start_here("a")
    status = cluster.wait_state("a", NodeState.LEADER)
    assert status["settings"] == ""
    cluster.delete_topic(cluster.names.settings)
    others = {name: getattr(cluster.settings, name) for name in SETTINGS if name != "cluster"} | {
        "targets": ()
    }
    with pytest.raises(ConflictError, match="a works with other settings"):
        cluster_topics.create(cluster.connection, others, restore=AUTHOR)
    with pytest.raises(ConflictError, match="too long to be shown here"):
        cluster_topics.create(cluster.connection, restore=AUTHOR)
    cluster.restore_settings()
    assert versions_of(cluster) == SettingsVersions.of(cluster.settings)


def test_settings_near_the_most_that_zookeeper_takes_are_restored(make_cluster: MakeCluster) -> None:
    """With their entry of the history, in one transaction."""
    cluster = make_cluster(allow_list=("*", *(f"orders.{number:012}" for number in range(25_000))))
    text = cluster.kazoo.get(cluster.znodes.settings)[0]
    assert len(text) > MOST_BYTES
    cluster.kazoo.delete(cluster.znodes.settings)
    cluster.restore_settings()
    assert cluster.kazoo.get(cluster.znodes.settings)[0] == text


def test_a_buffer_that_is_made_anew_begins_with_the_latest_settings_also_by_the_old_keys(
    cluster: Cluster,
) -> None:
    """What the settings topic has said before is signed with them."""
    before = change_to(cluster, max_delay_ms=DAY_MS)
    cluster.delete_topic(cluster.names.buffer)
    cluster.create_again()
    first = SettingsVersions.of(before.settings)
    topic = SettingsTopic(cluster.connection, cluster.names, cluster.keys)
    assert versions_of(cluster) == first == topic.read()
    end = end_of_settings(cluster)
    cluster.create_again()
    assert (versions_of(cluster), end_of_settings(cluster)) == (first, end)


def test_a_znode_that_is_behind_gets_what_the_topic_has(cluster: Cluster) -> None:
    """As if the operator had died between the two."""
    cluster.start_here("a")
    cluster.wait_state("a", NodeState.LEADER)
    before = cluster.kazoo.get(cluster.znodes.settings)[0]
    after = change_to(cluster, max_delay_ms=DAY_MS)
    cluster.kazoo.set(cluster.znodes.settings, before)
    eventually(lambda: versions_of(cluster) == after, "it is put back", 4 * PATIENCE_S)


@pytest.mark.walks("settings-behind")
def test_where_their_topic_is_lost_a_node_waits_at_a_mark_until_it_is_made_again(cluster: Cluster) -> None:
    cluster.start_here("a")
    cluster.wait_state("a", NodeState.LEADER)
    after = change_to(cluster, max_delay_ms=DAY_MS)
    end = end_of_settings(cluster)
    cluster.delete_topic(cluster.names.settings)
    send(cluster, 0, None, None, mark_of(cluster, 3, end))
    eventually(lambda: is_behind(cluster), "it says so")
    assert cluster.names.settings in cluster.member("a")["way_out"]
    cluster.create_again()
    topic = SettingsTopic(cluster.connection, cluster.names, cluster.keys)
    assert topic.read() == after
    assert end_of_settings(cluster).topic_id != end.topic_id
    assert "settings change" in cluster.member("a")["way_out"]
    change_to(cluster, max_delay_ms=HOUR_MS)
    eventually(lambda: not cluster.member("a").get("reason"), "it goes on")


def test_a_cluster_of_the_first_meaning_takes_a_new_one_first(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(max_delay_ms=HOUR_MS, levels_ms=(HOUR_MS,), meaning=1)
    running = cluster.start_here("a")
    cluster.wait_state("a", NodeState.LEADER)
    with pytest.raises(ConfigError, match="change the meaning, too"):
        change_to(cluster, max_delay_ms=DAY_MS)
    with Sender(cluster) as sender:
        copied = send(cluster, 0, None, None, mark_of(cluster, 2, SettingsPlace("another", 0, 1)))
        change_to(cluster, max_delay_ms=DAY_MS, meaning=2)
        ledger = sender.flush()
        ledger.rejects.add(copied)
        after = too_long(sender, "after")
        sender.flush()
        take_over(cluster, running, "b")
        fates = settled(cluster, sender, "after")
        assert fates_of(fates, after) == {"delivered"}
        assert fates.of[copied] == ["unknown-header"]
    assert cluster_topics.read_settings(cluster.connection).max_request_bytes == (
        BUFFER_MAX_MESSAGE_BYTES - OVERHEAD_BYTES
    )
    assert cluster_topics.check(cluster.connection) == []


def test_the_meaning_is_raised_only_where_whoever_led_last_is_there_to_be_asked(
    make_cluster: MakeCluster,
) -> None:
    """One that is cut off from ZooKeeper is not there, and may lead on."""
    cluster = make_cluster(meaning=1)
    running = cluster.start_here("a")
    cluster.wait_epoch(1)
    cluster.stop_here(running)
    with pytest.raises(ConflictError, match="the last checkpoint of lane 0 is a's, which ZooKeeper does not"):
        change_to(cluster, meaning=2)
    cluster.start_here("b")
    eventually(lambda: cluster.checkpoints()[-1].node == "b", "b leads")
    assert change_to(cluster, meaning=2).settings.meaning == 2


def test_no_other_version_is_made_of_a_number_that_a_node_knows(cluster: Cluster) -> None:
    """ZooKeeper has come from a backup, and the topic was lost: both lack the last change."""
    cluster.start_here("a")
    cluster.wait_state("a", NodeState.LEADER)
    change_to(cluster, max_delay_ms=DAY_MS)
    before, _ = cluster.kazoo.get(cluster.znodes.settings)
    change_to(cluster, max_delay_ms=HOUR_MS)
    cluster.delete_topic(cluster.names.settings)
    cluster.kazoo.set(cluster.znodes.settings, before)
    with pytest.raises(
        ConflictError, match=r"a has settings that neither .* nor ZooKeeper has: restore them"
    ):
        change_to(cluster, max_delay_ms=2 * DAY_MS)
    assert versions_of(cluster).latest.number == 2
    assert SettingsTopic(cluster.connection, cluster.names, cluster.keys).read() is None


def test_settings_that_only_a_node_knows_any_more_are_restored(cluster: Cluster) -> None:
    """ZooKeeper has come from a backup, and the topic, which was lost, was made again by it."""
    cluster.start_here("a")
    cluster.wait_state("a", NodeState.LEADER)
    change_to(cluster, max_delay_ms=DAY_MS)
    before, _ = cluster.kazoo.get(cluster.znodes.settings)
    latest = change_to(cluster, max_delay_ms=HOUR_MS)
    cluster.delete_topic(cluster.names.settings)
    cluster.kazoo.set(cluster.znodes.settings, before)
    cluster.create_again()
    cluster_topics.create(cluster.connection, restore=AUTHOR)
    assert versions_of(cluster) == latest
    assert change_to(cluster, max_delay_ms=2 * DAY_MS).all[:3] == latest.all


def test_settings_of_a_node_at_work_and_of_the_topic_that_contradict_each_other_are_not_restored(
    cluster: Cluster,
) -> None:
    """Whose are the right ones says the operator, by what the error names."""
    cluster.start_here("a")
    cluster.wait_state("a", NodeState.LEADER)
    begun = versions_of(cluster)
    latest = change_to(cluster, max_delay_ms=DAY_MS)
    other = begun.changed(replace(begun.settings, max_delay_ms=2 * DAY_MS), {}, "another", "", 1)
    topic = SettingsTopic(cluster.connection, cluster.names, cluster.keys)
    topic.write([], lambda _: Change(2, lambda _: other))
    with pytest.raises(ConflictError, match=f"stop a, .* if a's are, delete {cluster.names.settings} first"):
        cluster_topics.create(cluster.connection, restore=AUTHOR)
    cluster.delete_topic(cluster.names.settings)
    cluster.kazoo.set(cluster.znodes.settings, other.to_json().encode())
    cluster_topics.create(cluster.connection, restore=AUTHOR)
    assert versions_of(cluster) == latest == topic.read()


def test_a_change_waits_until_every_node_knows_its_meaning(cluster: Cluster) -> None:
    path, status = cluster.znodes.member("old"), b'{"node": "old", "lane": 0, "state": "follower"}'
    cluster.kazoo.create(path, status, ephemeral=True, makepath=True)
    with pytest.raises(ConflictError, match="old does not know"):
        change_to(cluster, max_delay_ms=DAY_MS)
    assert versions_of(cluster).latest.number == 1


def test_what_cannot_be_changed_is_said(cluster: Cluster) -> None:
    with pytest.raises(ConfigError, match="partitions cannot be changed"):
        change.plan(cluster.connection, {"partitions": 3})
    with pytest.raises(ConfigError, match="whether what waits is written again cannot be changed"):
        change.plan(cluster.connection, {"retention_ms": 30 * DAY_MS})
    with pytest.raises(ConfigError, match="levels_ms must each be 0 to max_delay_ms"):
        change.plan(cluster.connection, {"max_delay_ms": 1})


def test_a_longer_delay_has_the_log_kept_for_longer_first(cluster: Cluster) -> None:
    """Of a cluster that carries nothing."""
    wanted = change.plan(cluster.connection, {"max_delay_ms": 400 * DAY_MS})
    assert [raised.topic for raised in wanted.raises] == [cluster.names.buffer]
    change_to(cluster, max_delay_ms=400 * DAY_MS)
    assert cluster_topics.check(cluster.connection) == []


def test_a_larger_request_has_the_topics_take_more_first(cluster: Cluster) -> None:
    most_bytes = cluster.settings.max_request_bytes
    value = bytes(most_bytes + 1)
    cluster.start_here("a")
    headers = [(H_TARGET_TOPIC, cluster.target().encode()), (H_AFTER, b"10ms")]
    before = send(cluster, 0, None, value, headers, "lz4")
    cluster.tail.wait(lambda: len(cluster.dead_letters) == 1, "it is a dead letter")
    planned = change.plan(cluster.connection, {"max_request_bytes": 2 * most_bytes})
    assert [(one.topic, one.key, one.to_value) for one in planned.raises] == [
        (cluster.names.buffer, "max.message.bytes", 2 * most_bytes + OVERHEAD_BYTES),
        (cluster.names.dead_letter, "max.message.bytes", 2 * most_bytes + 2 * OVERHEAD_BYTES),
    ]
    change_to(cluster, max_request_bytes=2 * most_bytes)
    assert cluster_topics.check(cluster.connection) == []
    after = send(cluster, 0, None, value, headers, "lz4")
    (delivered,) = cluster.wait_delivered(1)
    assert (delivered.text("delay-source"), delivered.value) == (after, value)
    assert [letter.text("delay-source") for letter in cluster.dead_letters] == [before]


def test_a_longer_retention_has_buffer_and_outcomes_kept_for_longer_first(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(retention_ms=30 * DAY_MS)
    planned = change.plan(cluster.connection, {"retention_ms": 60 * DAY_MS})
    assert [(one.topic, one.key, one.to_value) for one in planned.raises] == [
        (cluster.names.buffer, "retention.ms", 60 * DAY_MS),
        (cluster.names.outcomes, "retention.ms", 60 * DAY_MS),
    ]
    change_to(cluster, retention_ms=60 * DAY_MS)
    assert cluster_topics.check(cluster.connection) == []


def test_by_a_shorter_retention_what_waits_is_carried_sooner_and_the_topics_stay(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change, "expect_lasting", lambda _: None)  # that lasts for days
    cluster = make_cluster(retention_ms=200_000, dedup_window_ms=500)
    running = start(cluster, "a")
    with Sender(cluster) as sender:
        for number in range(COUNT):
            sender.schedule(after_ms=HOUR_MS, id=f"carried-{number}")
        ledger = sender.flush()
        assert change.plan(cluster.connection, {"retention_ms": 6_000}).raises == ()
        change_to(cluster, retention_ms=6_000)
        forget(cluster, ends_of(ledger))
        assert cluster_topics.check(cluster.connection) == []
        cluster.stop_here(running)
        start(cluster, "b")
        cluster.wait_state("b", NodeState.LEADER)
        change_to(cluster, retention_ms=200_000)
        assert settled(cluster, sender, "carried").count("delivered") == COUNT


def test_a_longer_dedup_window_has_the_log_kept_for_longer_and_brings_back_nothing(cluster: Cluster) -> None:
    """Of a cluster that carries nothing."""
    cluster.start_here("a")
    with outcomes_of(cluster) as producer:

        def keep() -> Receipt:
            return producer.schedule(cluster.target(), b"again", id="kept", if_exists="keep")

        keep()
        cluster.wait_delivered(1)
        assert told(keep()) == "duplicate"
        change_to(cluster, dedup_window_ms=0)
        keep()
        cluster.wait_delivered(2)
        planned = change.plan(cluster.connection, {"dedup_window_ms": DAY_MS})
        assert [(one.topic, one.key) for one in planned.raises] == [(cluster.names.buffer, "retention.ms")]
        change_to(cluster, dedup_window_ms=DAY_MS)
        assert cluster_topics.check(cluster.connection) == []
        keep()
        cluster.wait_delivered(3)


def test_a_partition_that_was_added_is_read_by_what_held_before_until_the_next_change(
    cluster: Cluster,
) -> None:
    cluster.start_here("a")
    cluster.wait_state("a", NodeState.LEADER)
    change_to(cluster, max_delay_ms=DAY_MS)
    cluster.widen_buffer(3)
    assert versions_of(cluster).unmarked([0, 1, 2]) == [2]
    assert change.plan(cluster.connection, {}).unmarked == (2,)
    (found,) = check_marks(cluster.connection)
    assert (
        "were added since the settings were changed, 2: what is there is read by version 1" in found.problem
    )
    assert found.problem in [one.found.partition(" ")[2] for one in examine(cluster.connection)]
    long = [("delay-target-topic", cluster.target().encode()), ("delay-after", b"2h")]
    before = send(cluster, 2, None, b"before", long)
    assert change_to(cluster).latest.number == 3
    assert versions_of(cluster).unmarked([0, 1, 2]) == []
    assert check_marks(cluster.connection) == []
    send(cluster, 2, None, b"after", long)
    wait_rejects(cluster, 1)
    eventually(lambda: cluster.member("a").get("pending") == 1, "the later one waits", 4 * PATIENCE_S)
    (letter,) = cluster.dead_letters
    assert letter.text("delay-source") == before
