"""What operators ask of messages whose own records are gone, and which only carries tell of: look-ups,
replays, and giving up a gap.
"""

from __future__ import annotations

import logging

import pytest

from delayline.names import parse_source
from election.operators import Author, HistoryEntry
from node.node import Node
from node.status import NodeState
from ops import logs
from ops.clients.zookeeper import registry
from ops.message import lookup
from store.operations import ReplayRequest
from tests.support.cluster import Cluster
from tests.support.commands import operator_of
from tests.support.fixtures import MakeCluster
from tests.support.requests import Sender, key_in, now_ms
from tests.support.retention import delete_records
from tests.support.waiting import becomes, eventually

RETENTION_MS = 4_000
HOUR_MS = 3_600_000
AUTHOR = Author("somebody", "the target was lost", 1)
COUNT = 10


@pytest.fixture
def cluster(make_cluster: MakeCluster) -> Cluster:
    return make_cluster(retention_ms=RETENTION_MS, dedup_window_ms=300)


def forget_all(cluster: Cluster) -> None:
    """What is there by now goes, once nothing of it is needed any more."""
    ends = cluster.checkpoints()[-1].read

    def carried() -> dict[int, int]:
        found = cluster.checkpoints()[-1].carried
        return found if all(found.get(partition, 0) >= end for partition, end in ends.items()) else {}

    delete_records(cluster, eventually(carried, "nothing of it is needed any more"))


def read_all(cluster: Cluster, ledger_ends: dict[int, int]) -> None:
    """Waits until all is applied."""
    cluster.wait_epoch(1)
    eventually(
        lambda: all(cluster.checkpoints()[-1].applied.get(p, 0) >= end for p, end in ledger_ends.items()),
        "all is applied",
    )


def ends_of(sender: Sender) -> dict[int, int]:
    ends: dict[int, int] = {}
    for one in sender.flush().schedules:
        _, partition, offset = parse_source(one)
        ends[partition] = max(ends.get(partition, 0), offset + 1)
    return ends


def start(cluster: Cluster, node: str, replay_window_s: float) -> Node:
    return cluster.start_here(node, replay_window_s=replay_window_s)


def shown(
    cluster: Cluster, node: str, *, id: str | None = None, source: str | None = None
) -> tuple[str, ...]:
    """Its state, and the request that it is of."""
    if source is None:
        assert id is not None
        message = lookup.show(cluster.connection, id, node, "none").message
    else:
        message = lookup.show_source(cluster.connection, source, node, "none").message
    return message.state, message.root or "", message.detail or ""


def test_a_message_that_only_carries_tell_of_is_found_by_its_id_and_by_its_source(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(retention_ms=RETENTION_MS, dedup_window_ms=HOUR_MS)
    running = start(cluster, "a", 60.0)
    with Sender(cluster) as sender:
        due_ms = now_ms() + HOUR_MS
        by_id = {f"id-{number}": sender.schedule(at_ms=due_ms, id=f"id-{number}") for number in range(3)}
        alone = sender.schedule(at_ms=due_ms, partition=0).result()
        read_all(cluster, ends_of(sender))
        forget_all(cluster)
        start(cluster, "b", 60.0)
        cluster.wait_candidates(2)
        cluster.stop_here(running)
        cluster.wait_state("b", NodeState.LEADER)
        sources = {id_: receipt.result() for id_, receipt in by_id.items()}
        for id_, one in sources.items():
            assert shown(cluster, "b", id=id_) == shown(cluster, "b", source=one) == ("pending", one, "")
        assert shown(cluster, "b", source=alone) == ("pending", alone, "")
        listed = lookup.pending(cluster.connection, {}, None, COUNT, "b")
        assert {one.root for one in listed.messages} == {*sources.values(), alone}
        sender.run_now("id-0")
        sender.cancel("id-1")
        sender.reschedule("id-2", at_ms=due_ms + 1)
        sender.flush()
        cluster.wait_delivered(1)

        def found() -> list[str]:
            by_id = [shown(cluster, "b", id=id_)[0] for id_ in sources]
            return [*by_id, *(shown(cluster, "b", source=sources[id_])[0] for id_ in ("id-0", "id-2"))]

        becomes(found, ["delivered", "cancelled", "pending", "delivered", "pending"])


def test_a_node_that_has_begun_in_the_midst_of_the_log_delivers_again_what_only_a_carry_tells_of(
    cluster: Cluster,
) -> None:
    running = start(cluster, "a", 30.0)
    with Sender(cluster) as sender:
        due_ms = now_ms() + 2 * RETENTION_MS
        for number in range(COUNT):
            sender.schedule(at_ms=due_ms + number, partition=number % 2)
        ends = ends_of(sender)
        sources = set(sender.ledger.schedules)
        read_all(cluster, ends)
        forget_all(cluster)
        cluster.wait_delivered(COUNT)
        cluster.stop_here(running)
        start(cluster, "b", 30.0)
        cluster.wait_state("b", NodeState.LEADER)
        request = ReplayRequest(0, due_ms, due_ms + COUNT, None)
        with registry(cluster.connection) as znodes:
            znodes.ask(0, request, HistoryEntry(what="replay", author=AUTHOR, lane=0))
        cluster.wait_delivered(2 * COUNT)
    again = {got.text("delay-source") for got in cluster.delivered if got.number("delay-attempt") == 2}
    assert again == sources


def test_where_a_gap_is_given_up_what_waits_is_carried_and_an_empty_node_begins_behind_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    running = start(cluster, "a", 0.5)
    with Sender(cluster) as sender:
        for number in range(COUNT):
            sender.schedule(at_ms=now_ms() + HOUR_MS, id=f"kept-{number}")
        read_all(cluster, ends_of(sender))
        forget_all(cluster)
        cluster.stop_here(running)
        lost = [sender.schedule(key=key_in(number % 2)) for number in range(COUNT)]
        delete_records(cluster, ends_of(sender))
        running = start(cluster, "a", 0.5)
        cluster.wait_state("a", NodeState.REFUSING)
        with operator_of(cluster.connection, monkeypatch, capsys) as operator:
            logs.configure(logging.ERROR)  # the nodes of this process say nothing on stdout
            why = ("--reason", "it was too short", "--confirm", cluster.name, "-o", "json")
            assert operator("cluster", "accept-gap", *why, "--execute").code == 0
        cluster.wait_state("a", NodeState.LEADER)
        sender.schedule(b"after")
        sender.flush()
        cluster.wait_delivered(1)
        forget_all(cluster)
        start(cluster, "b", 0.5)
        cluster.wait_candidates(2)
        cluster.stop_here(running)
        cluster.wait_state("b", NodeState.LEADER)
        for number in range(COUNT):
            sender.run_now(f"kept-{number}")
        sender.flush()
        cluster.wait_delivered(1 + COUNT)
    delivered = [got.text("delay-source") or "" for got in cluster.delivered]
    kept = [one for one, sent in sender.ledger.schedules.items() if (sent.id or "").startswith("kept")]
    assert sorted(delivered) == sorted([sender.ledger.source_of(b"after"), *kept])
    assert not {receipt.result() for receipt in lost} & set(delivered)
