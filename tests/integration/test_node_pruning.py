"""What a node keeps does not grow with what has gone through it (I8): rows, ids, tombstones and counts go."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import psutil
import pytest

from delayline import DelayProducer
from node import housekeeping
from node.node import Node
from store import keys
from store.kv import KeyValue
from tests.support.cluster import Cluster
from tests.support.fates import check_exactly_once
from tests.support.fixtures import MakeCluster
from tests.support.requests import Sender, key_in, now_ms
from tests.support.waiting import becomes, eventually

VALUE = b"x" * 1_000


@pytest.fixture
def cluster(make_cluster: MakeCluster) -> Cluster:
    """An id is known no longer than until its message is due."""
    return make_cluster(dedup_window_ms=0)


_SPACES = {
    "rows": keys.ROW,
    "late": keys.LATE,
    "pending answers": keys.PENDING_ANSWER,
    "pending answers by id": keys.ENDING,
    "ids": keys.INDEX,
    "tombstones": keys.TOMBSTONE,
    "expiry": keys.EXPIRY,
}


def test_all_that_was_delivered_leaves_leader_and_follower(cluster: Cluster) -> None:
    leader = cluster.start_here("a", replay_window_s=0.5)
    cluster.wait_epoch(1)
    follower = cluster.start_here("b", replay_window_s=0.5)
    cluster.wait_candidates(2)
    with Sender(cluster) as sender:
        for number in range(300):
            sender.schedule(after_ms=number % 200, id=f"id-{number}")
            sender.schedule(at_ms=now_ms() - 60_000)
        for number in range(0, 300, 3):
            sender.cancel(f"id-{number}")
            sender.run_now(f"id-{number + 1}")
            sender.cancel(f"unknown-{number}")
        ledger = sender.flush()
    check_exactly_once(cluster, ledger)
    _move_time_on(cluster)
    for node in (leader, follower):
        becomes(partial(_kept, node), {})


def test_memory_does_not_grow_with_what_is_pending(cluster: Cluster) -> None:
    node = cluster.start("a")
    cluster.wait_epoch(1)
    process = psutil.Process(node.pid)
    _schedule_for_later(cluster, 30_000)
    before = process.memory_info().rss
    _schedule_for_later(cluster, 150_000)
    assert process.memory_info().rss - before < 150_000 * len(VALUE) / 3


def _schedule_for_later(cluster: Cluster, count: int) -> None:
    """Returns when the node has taken them in."""

    def applied() -> int:
        return sum(cluster.member("a").get("applied", {}).values())

    wanted = applied() + count
    with DelayProducer({"bootstrap.servers": cluster.bootstrap}, cluster=cluster.name) as producer:
        for number in range(count):
            producer.schedule(cluster.target(), VALUE, key=b"%d" % number, after="1h")
    eventually(lambda: applied() >= wanted, f"{count} more are in")


def test_what_is_pending_stays_and_so_does_its_id(cluster: Cluster) -> None:
    node = cluster.start_here("a", replay_window_s=0.0)
    with Sender(cluster) as sender:
        for number in range(50):
            sender.schedule(id=f"now-{number}")
            sender.schedule(at_ms=now_ms() + 3_600_000, id=f"later-{number}")
        sender.flush()
        cluster.wait_delivered(50)
        for partition in range(cluster.settings.partitions):
            sender.schedule(key=key_in(partition, cluster.settings.partitions))
        becomes(partial(_kept_but_expiry, node), {"rows": 50, "ids": 50})
        for number in range(50):
            sender.cancel(f"later-{number}")
        ledger = sender.flush()
    assert check_exactly_once(cluster, ledger).count("cancelled") == 50
    _move_time_on(cluster)
    becomes(partial(_kept_but_expiry, node), {})


def test_delivered_messages_stay_for_the_replay_window(cluster: Cluster) -> None:
    node = cluster.start_here("a", replay_window_s=3600)
    with Sender(cluster) as sender:
        for _ in range(50):
            sender.schedule()
        ledger = sender.flush()
    check_exactly_once(cluster, ledger)
    assert _kept(node)["rows"] == 50 + 1, "and the sentinel of the check"


def test_a_cancel_after_the_row_was_pruned_is_still_too_late_or_unknown_and_delivers_nothing(
    cluster: Cluster,
) -> None:
    node = cluster.start_here("a", replay_window_s=0.0)
    with Sender(cluster) as sender:
        sender.schedule(b"once", id="pruned", key=key_in(0))
        sender.flush()
        cluster.wait_delivered(1)
        eventually(lambda: "rows" not in _kept(node), "its row is pruned")
        cancel = sender.cancel("pruned")
        ledger = sender.flush()
    fates = check_exactly_once(cluster, ledger)
    assert fates.answers[cancel.result()] in (["too-late"], ["unknown"])


def test_ids_go_as_fast_as_they_come(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """One round of housekeeping takes as many as there are; how many it has time for is the machine's affair.

    The rounds are this test's own.
    """
    monkeypatch.setattr(housekeeping, "COLLECTING_S", 3600.0)
    node = cluster.start_here("a", replay_window_s=0.0)
    cluster.wait_epoch(1)
    parts: Any = node._progress.parts
    parts.housekeeping.stop()
    parts.housekeeping.join()
    with Sender(cluster) as sender:
        for number in range(12_000):
            sender.schedule(b"", id=f"id-{number}", headers=())
        sender.flush()
    _move_time_on(cluster)
    cluster.wait_delivered(12_000 + cluster.settings.partitions)

    def pruned() -> bool:
        parts.view.prune()
        return "rows" not in _kept(node)

    eventually(pruned, "nothing is left but ids")
    eventually(lambda: parts.view.has_read_to(parts.kafka_log.high_watermarks()), "it has read to the end")
    assert _kept_but_expiry(node) == {"ids": 12_000}
    parts.housekeeping._collect()
    assert _kept(node) == {}


def _move_time_on(cluster: Cluster) -> None:
    """Time is what the log says: an id is known until a later record comes to its partition."""
    with DelayProducer({"bootstrap.servers": cluster.bootstrap}, cluster=cluster.name) as producer:
        for partition in range(cluster.settings.partitions):
            producer.schedule(cluster.target(), b"", key=key_in(partition, cluster.settings.partitions))


def _kept(node: Node) -> dict[str, int]:
    """How many entries of each kind the node's store has."""
    kv = _store(node)
    counts = Counter({name: _count(kv, prefix) for name, prefix in _SPACES.items()})
    return dict(+counts)


def _kept_but_expiry(node: Node) -> dict[str, int]:
    """An entry of the expiry queue is of many ids, and stays until all of them would have gone."""
    return {name: count for name, count in _kept(node).items() if name != "expiry"}


def _count(kv: KeyValue, prefix: bytes) -> int:
    return sum(1 for _ in kv.scan(prefix, keys.end_of(prefix)))


def _store(node: Node) -> KeyValue:
    parts: Any = node._progress.parts
    assert parts is not None, "the node has opened its store"
    store: KeyValue = parts.view._kv
    return store
