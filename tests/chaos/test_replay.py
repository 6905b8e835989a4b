"""A past range is delivered again while its leader is killed: what was predicted arrives again, once."""

from __future__ import annotations

import signal
from collections import Counter

from election.operators import Author, HistoryEntry
from node.core.steps import Step
from ops.checkpoint import requests
from ops.clients.zookeeper import registry
from store.operations import Operation, ReplayRequest
from tests.support.cluster import Cluster
from tests.support.fixtures import MakeCluster
from tests.support.requests import Sender, due_times, now_ms
from tests.support.tail import Got
from tests.support.waiting import eventually

AUTHOR = Author("somebody", "the target was lost", 1)
COUNT = 1_000
AT_A_TIME = 40


def again(cluster: Cluster) -> list[Got]:
    return [got for got in cluster.delivered if got.number("delay-attempt") == 2]


def test_a_replay_is_gone_on_with_by_the_next_leader_exactly_once(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(targets=("one", "two"))
    for node_id in ("a", "b"):
        cluster.start(
            node_id, step=Step.DURING_COMMIT, carried=3 * AT_A_TIME, selection_max_messages=AT_A_TIME
        )
    cluster.wait_candidates(2)
    with Sender(cluster) as sender:
        begin_ms = now_ms() + 2_000
        ones = {b"message %d" % number for number in range(0, COUNT, 2)}
        for number in range(COUNT):
            target = ("one", "two")[number % 2]
            sender.schedule(at_ms=begin_ms + number, target=target, value=b"message %d" % number)
        due = due_times(cluster, sender.flush())
        cluster.wait_delivered(COUNT)
        request = ReplayRequest(0, due[100][0], due[899][0] + 1, cluster.target("one"))
        in_range = [value for at_ms, value in due if request.from_ms <= at_ms < request.to_ms]
        replayed = [value for value in in_range if value in ones]
        (foretold,) = requests.foresee(cluster.connection, request, None)
        assert foretold.targets == {cluster.target("one"): len(replayed)}

        leader = cluster.leader()
        leader.arm()
        with registry(cluster.connection) as znodes:
            znodes.ask(0, request, HistoryEntry(what="replay", author=AUTHOR, lane=0))
        assert leader.wait_exit() == -signal.SIGKILL, "it killed itself in the middle of the replay"
        sent = [sender.schedule(value=b"new %d" % number, target="one") for number in range(20)]
        sender.flush()
        cluster.wait_delivered(COUNT + len(replayed) + len(sent))
        eventually(lambda: _is_over(cluster.mirrored().operation), "the replay is over")
        sender.schedule(value=b"the last", target="one")
        sender.flush()
        cluster.tail.wait(lambda: any(got.value == b"the last" for got in cluster.delivered), "it is there")

    replaying = [one.node for one in cluster.checkpoints() if one.operation.replay is not None]
    assert {*replaying} == {"a", "b"}, "the second leader has gone on with it"
    assert Counter(got.value for got in again(cluster)) == Counter(replayed)
    first = {got.value: got.text("delay-source") for got in cluster.delivered if got not in again(cluster)}
    assert all(first[got.value] == got.text("delay-source") for got in again(cluster))
    attempts = Counter(got.number("delay-attempt") for got in cluster.delivered)
    assert attempts == {1: COUNT + len(sent) + 1, 2: len(replayed)}


def _is_over(operation: Operation) -> bool:
    return operation.request is not None and operation.replay is None
