"""Each row of the table of refusals (docs/operations.md): what it says to do is done, as an operator would do
it, and messages are counted: none lost, none doubled. Rows that other tests walk have the mark `walks` there;
tests/unit/test_operations_page.py knows which are walked.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from election.operators import PauseState, encode
from node.node import Node
from node.own_stores import store_folder
from node.status import NodeState
from ops.stack.ports import free_port
from store import keys
from store.rocks import RocksStore
from tests.integration.test_node_refusals import begin_anew, refused
from tests.support.cluster import Cluster
from tests.support.commands import Done, Operator, operator_of
from tests.support.fates import check_exactly_once
from tests.support.fixtures import MakeCluster
from tests.support.keys import STRANGER
from tests.support.operators import AUTHOR, write
from tests.support.requests import Sender, now_ms
from tests.support.waiting import eventually

HOUR_MS = 3_600_000
COUNT = 10
"""So many are delivered before the trouble, and so many wait for later."""

Type = Callable[[Cluster], Operator]


@pytest.fixture
def operator(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Type]:
    """Types commands for a cluster."""
    typing = []

    def of(cluster: Cluster) -> Operator:
        context = operator_of(cluster.connection, monkeypatch, capsys)
        typing.append(context)
        return context.__enter__()

    yield of
    for context in typing:
        context.__exit__(None, None, None)


@contextmanager
def counted(cluster: Cluster) -> Iterator[Node]:
    """Half of the messages are delivered and the others pending when the block gets the node that leads. At
    its end all that is pending is brought, and each has arrived once.
    """
    with Sender(cluster) as sender:
        running = cluster.start_here("a")
        for number in range(COUNT):
            sender.schedule()
            sender.schedule(at_ms=now_ms() + HOUR_MS, id=f"later-{number}")
        sender.flush()
        cluster.wait_delivered(COUNT)
        eventually(lambda: cluster.member("a").get("pending") == COUNT, "the others are pending")
        yield running
        for number in range(COUNT):
            sender.run_now(f"later-{number}")
        ledger = sender.flush()
    assert check_exactly_once(cluster, ledger).count("delivered") == 2 * COUNT


def gone(cluster: Cluster, node: Node, node_id: str = "a") -> None:
    cluster.stop_here(node)
    eventually(lambda: cluster.member(node_id) == {}, "it has gone")


def stands_once_started_right(cluster: Cluster, code: str, wrong_dir: Path) -> None:
    """A second node refuses with a data folder, and is a candidate with one of its own."""
    with counted(cluster):
        refusing = cluster.start_here("b", data_dir=wrong_dir)
        refused(cluster, "b", code)
        cluster.stop_here(refusing)
        cluster.start_here("b")
        cluster.wait_candidates(2)


def typed(operator: Operator, text: str) -> Done:
    """The command that a text names, as it stands there."""
    (command,) = re.findall(r"`(delayline topics create --restore[^`]*)`", text)
    return operator(*shlex.split(command)[1:])


def tightened(cluster: Cluster) -> bytes:
    """Settings under which what is pending would be a reject."""
    return replace(cluster.settings, max_delay_ms=10_000, levels_ms=(1_000,)).to_json().encode()


def others(max_delay: str) -> list[str]:
    """Options that name every setting."""
    chosen = (
        f"--partitions 2 --lanes 1 --retention max-delay --max-delay {max_delay} --level 1s --dedup-window 1h"
        " --meaning 1"
    )
    return chosen.split()


# -- settings


@pytest.fixture
def plain(make_cluster: MakeCluster) -> Cluster:
    """Without a settings topic, as version 0.1.0 has made it."""
    return make_cluster(meaning=1)


@pytest.mark.walks("settings-missing")
def test_settings_that_zookeeper_has_lost_are_restored_by_the_command_that_a_node_names(
    plain: Cluster, operator: Type
) -> None:
    with counted(plain) as running:
        plain.stop_here(running)
        plain.kazoo.delete(plain.znodes.root, recursive=True)
        plain.start_here("a")
        said = refused(plain, "a", "settings-missing")
        assert typed(operator(plain), said["way_out"]).code == 0
        plain.wait_state("a", NodeState.LEADER)


def test_no_settings_are_made_beside_requests(plain: Cluster, operator: Type) -> None:
    with counted(plain) as running:
        gone(plain, running)
        plain.kazoo.delete(plain.znodes.root, recursive=True)
        made = operator(plain)("topics", "create", "--partitions", "2", "--max-delay", "2h")
        assert (made.code, "start a node that still has its data folder" in made.err) == (5, True)
        plain.restore_settings()
        plain.start_here("a")
        plain.wait_state("a", NodeState.LEADER)


def test_who_would_make_settings_beside_requests_is_told_the_command_while_a_node_lives(
    plain: Cluster, operator: Type
) -> None:
    with counted(plain):
        plain.kazoo.delete(plain.znodes.settings)
        made = operator(plain)("topics", "create", "--partitions", "2")
        (command,) = re.findall(r"restore them: delayline (.*)", made.err)
        assert operator(plain)(*shlex.split(command)).code == 0


@pytest.mark.walks("settings-changed")
def test_settings_that_somebody_has_changed_are_restored_by_the_command_that_a_node_names(
    plain: Cluster, operator: Type
) -> None:
    with counted(plain) as running:
        plain.stop_here(running)
        plain.kazoo.set(plain.znodes.settings, tightened(plain))
        refusing = plain.start_here("a")
        said = refused(plain, "a", "settings-changed")
        assert typed(operator(plain), said["way_out"]).code == 0
        plain.stop_here(refusing)
        plain.start_here("a")
        plain.wait_state("a", NodeState.LEADER)


def test_a_view_made_under_wrong_settings_is_made_anew_once_they_are_restored(plain: Cluster) -> None:
    with counted(plain) as running:
        plain.stop_here(running)
        plain.kazoo.set(plain.znodes.settings, tightened(plain))
        write(plain, plain.znodes.pauses, encode(PauseState(paused=AUTHOR)))
        wrong = plain.start_here("b")
        plain.wait_state("b", NodeState.LEADER)
        gone(plain, wrong, "b")
        plain.restore_settings()
        write(plain, plain.znodes.pauses, encode(PauseState()))
        plain.start_here("a")
        refusing = plain.start_here("b")
        assert "remove" in refused(plain, "b", "settings-changed")["way_out"]
        plain.stop_here(refusing)
        shutil.rmtree(plain.data_dir("b"))
        plain.start_here("b")
        plain.wait_candidates(2)


def test_settings_are_not_restored_while_a_node_works_with_others(plain: Cluster, operator: Type) -> None:
    plain.start_here("a")
    plain.wait_state("a", NodeState.LEADER)
    done = operator(plain)("topics", "create", "--restore", *others("10s"))
    assert (done.code, "a works with other settings" in done.err) == (5, True)


def test_settings_are_not_restored_beside_a_node_of_another_version(plain: Cluster, operator: Type) -> None:
    plain.kazoo.create(f"{plain.znodes.members}/newer", b'{"state": "dreaming"}', makepath=True)
    done = operator(plain)("topics", "create", "--restore", *others("10s"))
    assert (done.code, "newer says nothing that this version can read" in done.err) == (5, True)


def test_settings_that_no_view_was_made_with_are_not_restored(plain: Cluster, operator: Type) -> None:
    with counted(plain) as running:
        plain.stop_here(running)
        plain.kazoo.delete(plain.znodes.settings)
        plain.start_here("a")
        said = refused(plain, "a", "settings-missing")
        done = operator(plain)("topics", "create", "--restore", *others("10s"))
        assert (done.code, "no node's view was made with these settings" in done.err) == (5, True)
        assert typed(operator(plain), said["way_out"]).code == 0
        plain.wait_state("a", NodeState.LEADER)


def test_nothing_that_is_restored_is_left_to_a_default(plain: Cluster, operator: Type) -> None:
    done = operator(plain)("topics", "create", "--restore", "--partitions", "2")
    assert (
        done.code,
        "--lanes, --retention, --max-delay, --level, --dedup-window, --max-request-bytes, --meaning missing"
        in done.err,
    ) == (
        2,
        True,
    )


@pytest.mark.walks("settings-contradict")
def test_settings_that_are_not_those_of_their_topic_are_replaced_by_those(
    cluster: Cluster, operator: Type
) -> None:
    with counted(cluster) as running:
        gone(cluster, running)
        cluster.kazoo.set(cluster.znodes.settings, tightened(cluster))
        refusing = cluster.start_here("b")
        said = refused(cluster, "b", "settings-contradict")
        assert typed(operator(cluster), said["way_out"]).code == 0
        gone(cluster, refusing, "b")
        shutil.rmtree(cluster.data_dir("b"))
        cluster.start_here("b")
        cluster.wait_state("b", NodeState.LEADER)


@pytest.mark.walks("settings-unreadable")
def test_settings_that_cannot_be_read_are_restored_by_the_command_that_a_node_names(
    plain: Cluster, operator: Type
) -> None:
    with counted(plain) as running:
        plain.stop_here(running)
        plain.kazoo.set(plain.znodes.settings, b"{")
        refusing = plain.start_here("a")
        said = refused(plain, "a", "settings-unreadable")
        assert typed(operator(plain), said["way_out"]).code == 0
        plain.stop_here(refusing)
        plain.start_here("a")
        plain.wait_state("a", NodeState.LEADER)


def test_settings_of_a_newer_version_are_left_as_they_are(plain: Cluster, operator: Type) -> None:
    """By the way out, and by the command that restores older ones."""
    running = plain.start_here("a")
    plain.wait_state("a", NodeState.LEADER)
    gone(plain, running)
    newer = json.dumps(json.loads(plain.settings.to_json()) | {"format_version": 99}).encode()
    plain.kazoo.set(plain.znodes.settings, newer)
    plain.start_here("a")
    way_out = refused(plain, "a", "settings-newer")["way_out"]
    assert ("Upgrade" in way_out, "elete" in way_out, "topics create" in way_out) == (True, False, False)
    done = operator(plain)("topics", "create", "--restore", *others("366d"))
    assert (done.code, plain.kazoo.get(plain.znodes.settings)[0]) == (1, newer)


# -- folders


@pytest.mark.walks("other-data")
def test_a_store_of_an_older_version_is_made_anew(cluster: Cluster) -> None:
    with counted(cluster) as running:
        cluster.stop_here(running)
        store = RocksStore(store_folder(cluster.data_dir("a")))
        batch = store.batch()
        batch.put(keys.IDENTITY, msgspec.json.encode({"format": 1, "of": "another kind"}))
        store.write(batch)
        store.close()
        refusing = cluster.start_here("a")
        assert str(cluster.data_dir("a")) in refused(cluster, "a", "other-data")["way_out"]
        cluster.stop_here(refusing)
        shutil.rmtree(cluster.data_dir("a"))
        cluster.start_here("a")
        cluster.wait_state("a", NodeState.LEADER)


@pytest.mark.walks("store-in-use")
def test_a_node_in_anothers_folder_gets_one_of_its_own(cluster: Cluster) -> None:
    stands_once_started_right(cluster, "store-in-use", cluster.data_dir("a"))


@pytest.mark.walks("data-dir-unusable")
def test_a_node_that_may_not_write_its_folder_gets_another(cluster: Cluster) -> None:
    (cluster.folder / "file").touch()
    stands_once_started_right(cluster, "data-dir-unusable", cluster.folder / "file")


@pytest.mark.walks("node-id-taken")
def test_of_two_nodes_with_one_name_one_is_stopped(cluster: Cluster) -> None:
    def second() -> dict[str, Any]:
        names = cluster.kazoo.get_children(cluster.znodes.members)
        return next((cluster.member(name) for name in names if "~" in name), {})

    with counted(cluster):
        twin = cluster.start_here("a", data_dir=cluster.data_dir("twin"), peer_port=free_port())
        eventually(lambda: (second().get("reason") or "").startswith("node-id-taken: "), "it says so")
        cluster.stop_here(twin)
        cluster.wait_state("a", NodeState.LEADER)


@pytest.mark.walks("no-such-lane")
def test_a_node_of_a_lane_that_there_is_not_gets_one_that_there_is(cluster: Cluster) -> None:
    with counted(cluster):
        refusing = cluster.start_here("b", lane=1)
        eventually(lambda: "--lane 0" in (cluster.member("b").get("way_out") or ""), "it says so")
        cluster.stop_here(refusing)
        cluster.start_here("b", lane=0)
        cluster.wait_candidates(2)


@pytest.mark.walks("disk-full")
def test_a_node_goes_on_once_there_is_room(cluster: Cluster) -> None:
    with counted(cluster) as running, Sender(cluster) as sender:
        full = fill_disk(cluster)
        for _ in range(60):
            sender.schedule(bytes(500_000), at_ms=now_ms() + HOUR_MS, target="sentinels")
        sender.flush()
        refused(cluster, "a", "disk-full")
        gone(cluster, running)
        for file in full:
            file.unlink(missing_ok=True)
        cluster.start_here("a")
        cluster.wait_state("a", NodeState.LEADER)


def fill_disk(cluster: Cluster) -> list[Path]:
    """The next tables that RocksDB makes have no room."""
    store = store_folder(cluster.data_dir("a"))
    tables = [store / f"{number:06d}.sst" for number in range(1, 1_000)]
    full = [table for table in tables if not table.exists()]
    for table in full:
        table.symlink_to("/dev/full")
    return full


# -- keys


@pytest.mark.walks("keys-missing")
def test_keys_that_are_missing_are_put_back_by_a_node_that_has_its_folder(cluster: Cluster) -> None:
    with counted(cluster) as running:
        gone(cluster, running)
        before = cluster.keys
        cluster.kazoo.delete(cluster.znodes.keys)
        refusing = cluster.start_here("b")
        assert "topics create" in refused(cluster, "b", "keys-missing")["way_out"]
        cluster.start_here("a")
        cluster.wait_state("a", NodeState.LEADER)
        assert cluster.keys == before
        cluster.stop_here(refusing)
        cluster.start_here("b")
        cluster.wait_candidates(2)


@pytest.mark.walks("keys-replaced")
def test_keys_that_were_replaced_by_mistake_come_back(cluster: Cluster) -> None:
    with counted(cluster) as running:
        gone(cluster, running)
        before = cluster.keys
        cluster.kazoo.set(cluster.znodes.keys, STRANGER.to_json().encode())
        refusing = cluster.start_here("a")
        assert cluster.znodes.keys in refused(cluster, "a", "keys-replaced")["reason"]
        gone(cluster, refusing)
        cluster.kazoo.delete(cluster.znodes.keys)
        cluster.start_here("a")
        cluster.wait_state("a", NodeState.LEADER)
        assert cluster.keys == before


@pytest.mark.walks("keys-unreadable")
def test_keys_that_are_damaged_come_back(cluster: Cluster) -> None:
    with counted(cluster) as running:
        gone(cluster, running)
        cluster.kazoo.set(cluster.znodes.keys, b"{")
        refusing = cluster.start_here("a")
        refused(cluster, "a", "keys-unreadable")
        gone(cluster, refusing)
        cluster.kazoo.delete(cluster.znodes.keys)
        cluster.start_here("a")
        cluster.wait_state("a", NodeState.LEADER)


# -- topics


@pytest.mark.walks("buffer-forbidden")
@pytest.mark.walks("checkpoint-forbidden")
@pytest.mark.parametrize("which", ["buffer", "checkpoint"])
def test_a_node_that_may_read_a_topic_again_goes_on(cluster: Cluster, which: str) -> None:
    topic = getattr(cluster.names, which)
    with counted(cluster):
        cluster.allow_only(topic, AclOperation.DESCRIBE, AclOperation.WRITE)
        refused_while_it_lasts(cluster, f"{which}-forbidden")
        cluster.allow_only(topic, AclOperation.READ)
        cluster.wait_state("a", NodeState.LEADER)


@pytest.mark.walks("transactional-id-forbidden")
def test_a_node_that_may_use_its_transactional_ids_again_goes_on(cluster: Cluster) -> None:
    with counted(cluster) as running:
        gone(cluster, running)
        allow_ids(cluster, "User:somebody-else")
        cluster.start_here("a")
        refused_while_it_lasts(cluster, "transactional-id-forbidden")
        allow_ids(cluster, "User:ANONYMOUS")
        cluster.wait_state("a", NodeState.LEADER)


def allow_ids(cluster: Cluster, user: str) -> None:
    """Once one user may use the lane's transactional ids, no other may that is not allowed, too."""
    right = AclBinding(
        ResourceType.TRANSACTIONAL_ID,
        f"{cluster.name}-0-",
        ResourcePatternType.PREFIXED,
        user,
        "*",
        AclOperation.WRITE,
        AclPermissionType.ALLOW,
    )
    for future in cluster.admin.create_acls([right]).values():
        future.result()


@pytest.mark.walks("buffer-missing")
def test_after_a_lost_buffer_the_cluster_begins_anew_and_nothing_comes_twice(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was pending is lost, as the row says; here nothing was."""
    monkeypatch.setattr("node.inspection.INSPECT_EVERY_S", 0.0)
    with Sender(cluster) as sender:
        running = cluster.start_here("a")
        for number in range(COUNT):
            sender.schedule(b"before %d" % number)
        sender.flush()
        cluster.wait_delivered(COUNT)
    cluster.delete_topic(cluster.names.buffer)
    refused_while_it_lasts(cluster, "buffer-missing")
    cluster.create_again()
    refused(cluster, "a", "buffer-recreated")
    gone(cluster, running)
    begin_anew(cluster, "a")
    with Sender(cluster) as sender:
        for number in range(COUNT):
            sender.schedule(b"after %d" % number)
        sender.flush()
        cluster.start_here("a")
        cluster.wait_delivered(2 * COUNT)
    cluster.tail.catch_up()
    assert set(Counter(got.value for got in cluster.delivered).values()) == {1}


@pytest.mark.walks("partitions-missing")
def test_where_partitions_are_missing_those_that_are_added_make_it_go_on(plain: Cluster) -> None:
    wider = replace(plain.settings, partitions=3).to_json().encode()
    plain.kazoo.set(plain.znodes.settings, wider)
    with Sender(plain) as sender:
        for _ in range(COUNT):
            sender.schedule()
        ledger = sender.flush()
    refusing = plain.start_here("a")
    refused(plain, "a", "partitions-missing")
    plain.widen_buffer(3)
    gone(plain, refusing)
    plain.start_here("a")
    assert check_exactly_once(plain, ledger).count("delivered") == COUNT


def refused_while_it_lasts(cluster: Cluster, code: str) -> None:
    assert cluster.wait_state("a", NodeState.REFUSING)["reason"].startswith(f"{code}: ")
