"""States in which a node refuses to be leader: the member znode names each, with the way out."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    OffsetSpec,
)

from delayline import requests
from delayline.settings_versions import SettingsVersions
from election.operators import Author
from node.own_stores import store_folder
from node.status import NodeState
from ops.dead_letter.retry import LettersToRetry, send, survey
from ops.dead_letter.search import LetterFilter
from ops.settings import change
from ops.stack.ports import free_port
from tests.support.cluster import Cluster
from tests.support.fates import check_exactly_once
from tests.support.fixtures import MakeCluster
from tests.support.requests import Sender, key_in, now_ms
from tests.support.retention import (
    alter_buffer,
    applied_by,
    delete_records,
    rebuild_behind_retention,
)
from tests.support.waiting import PATIENCE_S, eventually

AUTHOR = Author("somebody", "to see what happens", 1)
TOO_LONG_MS = 7_200_000


def refused(cluster: Cluster, node_id: str, code: str) -> dict[str, Any]:
    """Waits until the node refuses; asserts why, and that it does not stand for leader."""
    said = eventually(lambda: _said(cluster, node_id, code), f"{node_id} refuses: {code}")
    assert said["way_out"], "it says what to do"
    eventually(lambda: node_id not in cluster.candidates(said["lane"]), f"{node_id} stands no more")
    return said


def _said(cluster: Cluster, node_id: str, code: str) -> dict[str, Any]:
    said = cluster.member(node_id)
    return said if (said.get("reason") or "").startswith(f"{code}: ") else {}


def run_once(cluster: Cluster, messages: int = 50, **fields: Any) -> None:
    """A node that has delivered something and kept something, and was stopped."""
    running = cluster.start_here("a", **fields)
    with Sender(cluster) as sender:
        for number in range(messages):
            sender.schedule(id=f"now-{number}")
            sender.schedule(at_ms=now_ms() + 3_600_000, id=f"later-{number}")
    cluster.wait_delivered(messages)
    cluster.stop_here(running)


def change_settings(cluster: Cluster, **chosen: Any) -> SettingsVersions:
    _, after, _ = change.change(cluster.connection, chosen, AUTHOR, PATIENCE_S)
    return after


def begin_anew(cluster: Cluster, *node_ids: str) -> None:
    """What is to be done once the buffer is another one, with all nodes stopped."""
    cluster.delete_topic(cluster.names.checkpoint)
    cluster.delete_topic(cluster.names.outcomes)
    cluster.kazoo.delete(cluster.znodes.checkpoint(0))
    cluster.kazoo.delete(cluster.znodes.keys)
    for node_id in node_ids:
        shutil.rmtree(cluster.data_dir(node_id))
    cluster.create_again()


def test_a_recreated_buffer_is_refused_at_the_start(cluster: Cluster) -> None:
    run_once(cluster)
    cluster.delete_topic(cluster.names.buffer)
    cluster.create_again()
    cluster.start_here("a")
    refused(cluster, "a", "buffer-recreated")


def test_a_running_node_refuses_when_its_buffer_is_recreated(cluster: Cluster) -> None:
    cluster.start_here("a")
    cluster.wait_epoch(1)
    cluster.delete_topic(cluster.names.buffer)
    cluster.create_again()
    refused(cluster, "a", "buffer-recreated")


def test_a_rebuilt_node_refuses_a_checkpoint_that_is_ahead_of_the_buffer(cluster: Cluster) -> None:
    """It has no memory of the old buffer; the checkpoint has."""
    run_once(cluster)
    shutil.rmtree(cluster.data_dir("a"))
    cluster.delete_topic(cluster.names.buffer)
    cluster.create_again()
    cluster.start_here("a")
    refused(cluster, "a", "buffer-recreated")


@pytest.mark.walks("buffer-recreated")
def test_after_a_recreated_buffer_the_way_out_leads_to_a_new_beginning(cluster: Cluster) -> None:
    run_once(cluster)
    change_settings(cluster, max_delay_ms=TOO_LONG_MS // 2, levels_ms=(1,))
    cluster.delete_topic(cluster.names.buffer)
    cluster.create_again()
    refusing = cluster.start_here("a")
    way_out = refused(cluster, "a", "buffer-recreated")["way_out"]
    cluster.stop_here(refusing)
    znodes, old_root = cluster.znodes, cluster.keys.root
    topics = cluster.names.checkpoint, cluster.names.outcomes
    for named in (*topics, znodes.checkpoint(0), znodes.keys, str(cluster.data_dir("a"))):
        assert named in way_out
    with Sender(cluster) as sender:
        sender.schedule(b"the first of the new")
        too_long = sender.schedule(after_ms=TOO_LONG_MS)
        sender.flush()
        begin_anew(cluster, "a")
        cluster.start_here("a")
        cluster.wait_delivered(51)
        cluster.tail.wait(lambda: len(cluster.dead_letters) == 1, "the settings are the latest ones")
        changed = change_settings(cluster, max_delay_ms=TOO_LONG_MS)
        sender.schedule(after_ms=TOO_LONG_MS)
        sender.flush()
        eventually(lambda: cluster.member("a").get("pending") == 1, "it waits", 4 * PATIENCE_S)
    assert changed.latest.number == 2, "there was no change before in this buffer"
    assert [letter.text("delay-source") for letter in cluster.dead_letters] == [too_long.result()]
    cluster.tail.catch_up()
    assert [got.value for got in cluster.delivered[50:]] == [b"the first of the new"]
    assert (cluster.keys.root == old_root, dict(cluster.keys.requests_from)) == (False, {})


def test_a_gap_left_by_retention_is_refused_and_by_a_rebuilt_node_if_it_may_lack_messages(
    cluster: Cluster,
) -> None:
    run_once(cluster)
    ends = applied_by(cluster)
    other = cluster.start_here("b")
    cluster.wait_state("b", NodeState.LEADER)
    with Sender(cluster) as sender:
        for number in range(20):
            sender.schedule(key=key_in(number % 2))
    cluster.wait_delivered(70)
    cluster.stop_here(other)
    alter_buffer(cluster, "retention.ms", "3600000")  # far too short for what may be delayed by a year
    delete_records(cluster, {partition: end + 5 for partition, end in ends.items()})
    refusing = cluster.start_here("a")
    refused(cluster, "a", "retention-gap")
    cluster.stop_here(refusing)
    shutil.rmtree(cluster.data_dir("a"))
    cluster.start_here("a")
    assert "still has its data folder" in refused(cluster, "a", "retention-gap")["way_out"]


def test_a_rebuilt_node_goes_on_where_all_that_is_gone_was_due(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(max_delay_ms=7_200_000)
    alter_buffer(cluster, "retention.ms", "-1")
    running = cluster.start_here("a")
    with Sender(cluster) as sender:
        for number in range(20):
            sender.schedule(key=key_in(number % 2))
    cluster.wait_delivered(20)
    rebuild_behind_retention(cluster, "a", running)
    cluster.wait_state("a", NodeState.LEADER)
    with Sender(cluster) as sender:
        sender.schedule()
    cluster.wait_delivered(23)


@pytest.mark.parametrize("emptied", [False, True], ids=["kept", "emptied"])
def test_a_log_of_which_retention_left_nothing_is_no_gap(cluster: Cluster, *, emptied: bool) -> None:
    """The last offset of each partition is a marker's: more than what was applied, and nothing to miss."""
    running = cluster.start_here("a")
    _send_in_a_transaction(cluster)
    cluster.wait_delivered(2)
    ends = _log_ends(cluster)
    eventually(lambda: cluster.checkpoints()[-1].read == ends, "a heartbeat says how far it has read")
    assert all(applied < ends[partition] for partition, applied in applied_by(cluster).items())
    cluster.stop_here(running)
    delete_records(cluster, ends)
    if emptied:
        shutil.rmtree(cluster.data_dir("a"))
    cluster.start_here("a")
    _send_in_a_transaction(cluster)
    cluster.wait_delivered(4)


def test_changed_settings_are_refused_by_a_running_node(cluster: Cluster) -> None:
    cluster.start_here("a")
    cluster.wait_epoch(1)
    _change_settings(cluster)
    refused(cluster, "a", "settings-changed")


def test_partitions_added_to_the_buffer_stop_nothing_and_what_is_in_them_has_a_fate(cluster: Cluster) -> None:
    """Also after a failover, and by nodes that learn of them one after the other."""
    cluster.start("a")
    cluster.wait_epoch(1)
    cluster.start("b")
    cluster.wait_candidates(2)
    cluster.widen_buffer(3)
    later_ms = now_ms() + 12_000
    for partition in range(3):
        _send_into(cluster, partition, [{"deliver_at": at} for at in (later_ms, None) for _ in range(10)])
    _send_into(cluster, 2, [{"id": f"id-{number}"} for number in range(5)])
    cluster.wait_delivered(60)
    cluster.tail.wait(lambda: len(cluster.dead_letters) == 5, "those with an id are dead letters")
    assert {got.text("delay-error") for got in cluster.dead_letters} == {"wrong-partition"}
    cluster.wait_candidates(2)
    cluster.leader().kill()
    for partition in range(3):
        _send_into(cluster, partition, [{}] * 10)
    cluster.wait_delivered(90)
    _retry_dead_letters(cluster)
    cluster.wait_delivered(95)
    cluster.tail.catch_up()
    sources = [got.text("delay-source") for got in cluster.delivered]
    assert (len(sources), len(set(sources)), len(cluster.dead_letters)) == (95, 95, 5)


@pytest.mark.walks("store-damaged")
def test_a_store_that_does_not_open_is_refused_and_a_rebuilt_one_goes_on(cluster: Cluster) -> None:
    run_once(cluster)
    store = store_folder(cluster.data_dir("a"))
    (store / "CURRENT").write_text("MANIFEST-999999\n")
    refusing = cluster.start_here("a")
    refused(cluster, "a", "store-damaged")
    cluster.stop_here(refusing)
    shutil.rmtree(cluster.data_dir("a"))
    cluster.start_here("a")
    with Sender(cluster) as sender:
        sender.schedule(b"after the damage")
        for number in range(50):
            sender.run_now(f"later-{number}")
    cluster.wait_delivered(101)
    cluster.tail.catch_up()
    assert len(cluster.delivered) == 101


def test_damage_found_while_delivering_is_refused_and_another_node_takes_over(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster()
    with Sender(cluster) as sender:
        running = cluster.start_here("a")
        due_ms = now_ms() + 3_600_000
        for number in range(200):
            sender.schedule(random.Random(number).randbytes(2_000), at_ms=due_ms, id=f"id-{number}")
        sender.flush()
        eventually(lambda: sum(cluster.member("a").get("applied", {}).values()) >= 200, "they are stored")
        cluster.stop_here(running)
        _damage_tables(store_folder(cluster.data_dir("a")))
        cluster.start_here("a")
        eventually(lambda: cluster.candidates() == ["a"], "a stands: the damage is not found yet")
        cluster.start_here("b")
        for number in range(200):
            sender.run_now(f"id-{number}")
        ledger = sender.flush()
        refused(cluster, "a", "store-damaged")
    check_exactly_once(cluster, ledger)


def test_a_full_disk_is_refused_another_node_takes_over_and_room_brings_it_back(
    cluster: Cluster,
) -> None:
    cluster.start_here("a")
    cluster.wait_epoch(1)
    store = store_folder(cluster.data_dir("a"))
    for number in range(1, 1_000):
        if not (store / f"{number:06d}.sst").exists():
            (store / f"{number:06d}.sst").symlink_to("/dev/full")
    with Sender(cluster) as sender:
        for _ in range(60):
            sender.schedule(random.Random(0).randbytes(500_000), at_ms=now_ms() + 3_600_000)
        sender.flush()
        refused(cluster, "a", "disk-full")
        other = cluster.start_here("b")
        sender.schedule()
        sender.flush()
        cluster.wait_delivered(1)
        for table in store.glob("*.sst"):
            if table.is_symlink():
                table.unlink()
        cluster.wait_state("a", NodeState.FOLLOWER)
        cluster.stop_here(other)
        sender.schedule()
        sender.flush()
    cluster.wait_delivered(2)
    assert cluster.checkpoints()[-1].node == "a"


def test_a_twin_takes_its_place_when_the_other_one_has_gone(cluster: Cluster) -> None:
    first = cluster.start_here("a")
    cluster.wait_state("a", NodeState.LEADER)
    cluster.start("a", data_dir=cluster.folder / "twin", peer_port=free_port())

    def twins() -> list[str]:
        names: list[str] = cluster.kazoo.get_children(cluster.znodes.members)
        return [name for name in names if name.startswith("a~")]

    eventually(twins, "the twin refuses under a name of its own")
    cluster.stop_here(first)
    cluster.wait_state("a", NodeState.LEADER)
    eventually(lambda: not twins(), "it has its name back")
    with Sender(cluster) as sender:
        sender.schedule()
    cluster.wait_delivered(1)


def test_a_store_that_is_in_use_is_opened_when_the_other_process_has_gone(cluster: Cluster) -> None:
    first = cluster.start_here("a")
    cluster.wait_epoch(1)
    cluster.start("b", data_dir=cluster.data_dir("a"))
    refused(cluster, "b", "store-in-use")
    cluster.stop_here(first)
    cluster.wait_state("b", NodeState.LEADER)
    with Sender(cluster) as sender:
        sender.schedule()
    cluster.wait_delivered(1)


@pytest.mark.parametrize("offset_ms", [-3_600_000, 5_000])
def test_a_wrong_clock_is_refused_and_a_right_one_takes_over(cluster: Cluster, offset_ms: int) -> None:
    run_once(cluster)
    before = len(cluster.checkpoints())
    wrong = cluster.start("a", clock_offset_ms=offset_ms)
    said = refused(cluster, "a", "clock-skew")["clock_offset_ms"]
    assert said * offset_ms < 0, "the brokers' clock, less the node's"
    # It says too little by what the checkpoint's way took, and both clocks' milliseconds are cut off.
    assert cluster.node_config("a").max_clock_skew_ms < abs(said) <= abs(offset_ms) + 1
    cluster.start_here("b")
    with Sender(cluster) as sender:
        for _ in range(10):
            sender.schedule()
            sender.schedule(at_ms=now_ms() + 1_000)
        sender.flush()
    cluster.wait_delivered(70)
    assert wrong.running, "it stays, to say so"
    since = cluster.checkpoints()[before:]
    passing = {checkpoint.node for checkpoint in since if not checkpoint.first}
    assert (passing, since[-1].node) == ({"b"}, "b"), "a wrong clock passes nothing"


@pytest.mark.walks("own-topic-unusable")
@pytest.mark.parametrize("which", ["outcomes", "dead_letter"])
def test_a_missing_topic_of_the_clusters_own_is_named_and_its_return_noticed(
    cluster: Cluster, which: str
) -> None:
    cluster.start_here("a")
    cluster.wait_epoch(1)
    missing = getattr(cluster.names, which)
    cluster.delete_topic(missing)
    with Sender(cluster) as sender:
        sender.cancel("nobody")
        sender.schedule(target="nowhere")
        sender.flush()
        said = cluster.wait_state("a", NodeState.REFUSING)
        assert said["reason"].startswith(f"own-topic-unusable: {missing} ")
        cluster.create_again()
        cluster.wait_state("a", NodeState.LEADER)
        sender.schedule()
        sender.flush()
    cluster.wait_delivered(1)
    assert len(cluster.delivered) == 1
    assert cluster.checkpoints()[-1].epoch <= 4, "no epoch begins that cannot deliver"


def test_a_buffer_that_is_missing_is_said_and_its_way_out_takes_nothing_away(cluster: Cluster) -> None:
    cluster.start_here("a")
    cluster.wait_epoch(1)
    cluster.delete_topic(cluster.names.buffer)
    said = cluster.wait_state("a", NodeState.REFUSING)
    assert said["reason"].startswith("buffer-missing: ")
    assert "remove" not in said["way_out"]


@pytest.mark.walks("clock-skew")
def test_a_node_whose_clock_is_wrong_delivers_nothing_early_and_leads_while_it_is_right(
    cluster: Cluster,
) -> None:
    """Wrong from the beginning, and then set ahead while it is leader."""
    with Sender(cluster) as sender:
        sender.schedule(b"not an hour early", at_ms=now_ms() + 3_000_000)
        sender.schedule(b"now")
        sender.flush()
    node = cluster.start("a", clock_offset_ms=3_600_000)
    refused(cluster, "a", "clock-skew")
    node.set_clock()
    cluster.wait_state("a", NodeState.LEADER)
    cluster.wait_delivered(1)
    node.set_clock()
    refused(cluster, "a", "clock-skew")
    node.set_clock()
    cluster.wait_state("a", NodeState.LEADER)
    cluster.tail.catch_up()
    assert [got.value for got in cluster.delivered] == [b"now"]


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"{", "settings-unreadable"), (b'{"format_version": 99}', "settings-newer")],
    ids=["no JSON", "a newer format"],
)
def test_settings_that_cannot_be_read_are_refused(cluster: Cluster, content: bytes, code: str) -> None:
    running = cluster.start_here("a")
    cluster.wait_epoch(1)
    cluster.kazoo.set(cluster.znodes.settings, content)
    refused(cluster, "a", code)
    cluster.stop_here(running)
    cluster.start_here("a")
    refused(cluster, "a", code)


@pytest.mark.parametrize("what", ["keys", "kafka"])
def test_what_a_newer_version_has_written_is_refused_and_left_as_it_is(cluster: Cluster, what: str) -> None:
    running = cluster.start_here("a")
    cluster.wait_epoch(1)
    znode = f"{cluster.znodes.root}/{what}"
    before, _ = cluster.kazoo.get(znode)
    newer = json.dumps(json.loads(before) | {"format": 2, "format_version": 2}).encode()
    cluster.kazoo.set(znode, newer)
    assert refused(cluster, "a", "newer-format")["way_out"].startswith("Upgrade this node")
    cluster.stop_here(running)
    running = cluster.start_here("a")
    refused(cluster, "a", "newer-format")
    assert cluster.kazoo.get(znode)[0] == newer
    cluster.kazoo.set(znode, before)
    cluster.stop_here(running)
    cluster.start_here("a")
    cluster.wait_state("a", NodeState.LEADER)


def test_a_checkpoint_of_a_newer_version_is_refused(cluster: Cluster) -> None:
    running = cluster.start_here("a")
    cluster.wait_epoch(1)
    cluster.stop_here(running)
    cluster.append_checkpoint(b'{"format": 99}')
    cluster.start_here("a")
    said = refused(cluster, "a", "newer-format")
    assert "checkpoint has format 99; this version reads 5 and 6: upgrade it" in said["reason"]


def _send_in_a_transaction(cluster: Cluster) -> None:
    """A message into each of the two partitions."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": cluster.name})
    producer.init_transactions(10)
    producer.begin_transaction()
    for partition in range(2):
        headers: list[tuple[str, str | bytes | None]] = [("delay-target-topic", cluster.target())]
        producer.produce(cluster.names.buffer, b"v", partition=partition, headers=headers)
    producer.commit_transaction(10)


def _change_settings(cluster: Cluster) -> None:
    other = dataclasses.replace(cluster.settings, max_delay_ms=7_200_000)
    cluster.kazoo.set(cluster.znodes.settings, other.to_json().encode())


def _send_into(cluster: Cluster, partition: int, schedules: list[dict[str, Any]]) -> None:
    """Schedules in a partition of the buffer, whatever the partitioner says."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0})
    for fields in schedules:
        record = requests.schedule(cluster.target(), b"v", **fields)
        headers: Any = record.headers
        producer.produce(cluster.names.buffer, record.value, record.key, partition, headers=headers)
    assert producer.flush(PATIENCE_S) == 0


def _retry_dead_letters(cluster: Cluster) -> None:
    """As an operator who is told to."""
    cluster.create_again()
    wanted = LetterFilter(codes=frozenset({"wrong-partition"}))
    found = survey(
        cluster.connection, cluster.settings, LettersToRetry(wanted, frozenset(), None, False, now_ms())
    )
    assert len(send(found).sources) == 5


def _log_ends(cluster: Cluster) -> dict[int, int]:
    """Where the log ends, markers and all."""
    wanted = {TopicPartition(cluster.names.buffer, partition): OffsetSpec.latest() for partition in range(2)}
    found = cluster.admin.list_offsets(wanted)
    return {at.partition: future.result().offset for at, future in found.items()}


def _damage_tables(store: Path) -> None:
    """Overwrites the middle of the largest table: rows, and not what is read when the store is opened."""
    table = max(store.glob("*.sst"), key=lambda path: path.stat().st_size)
    assert table.stat().st_size > 200 * 1_000, "the rows are in it"
    with table.open("r+b") as file:
        file.seek(table.stat().st_size // 2)
        file.write(b"\xde\xad" * 10_000)
