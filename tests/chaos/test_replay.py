"""A past range is delivered again while its master is killed: what was predicted arrives again, once."""

from __future__ import annotations

import signal
from collections import Counter

from election.operators import Author, Entry
from node.delivery import Step
from ops import requests
from ops.zookeeper import registry
from store.operations import ReplayRequest
from tests.support.cluster import Cluster
from tests.support.fixtures import MakeCluster
from tests.support.requests import Sender, now_ms
from tests.support.tail import Got
from tests.support.waiting import eventually

AUTHOR = Author("somebody", "the target was lost", 1)
COUNT = 1_000
AT_A_TIME = 40


def again(cluster: Cluster) -> list[Got]:
    return [got for got in cluster.delivered if got.number("delay-attempt") == 2]


def test_a_replay_is_gone_on_with_by_the_next_master_exactly_once(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(targets=("one", "two"))
    for node_id in ("a", "b"):
        cluster.start(node_id, step=Step.DURING_COMMIT, selection_max_messages=AT_A_TIME)
    cluster.wait_candidates(2)
    with Sender(cluster) as sender:
        begin_ms = now_ms() + 2_000
        for number in range(COUNT):
            target = ("one", "two")[number % 2]
            sender.schedule(at_ms=begin_ms + number, target=target, value=b"message %d" % number)
        sender.flush()
        cluster.wait_delivered(COUNT)
        request = ReplayRequest(0, begin_ms + 100, begin_ms + 900, cluster.target("one"))
        (foretold,) = requests.foresee(cluster.connection, request, None)
        assert foretold.targets == {cluster.target("one"): 400}

        master = cluster.master()
        with registry(cluster.connection) as znodes:
            znodes.ask(0, request, Entry(what="replay", author=AUTHOR, lane=0))
        cluster.tail.wait(lambda: len(again(cluster)) > 2 * AT_A_TIME, "it has begun")
        master.arm()
        assert master.wait_exit() == -signal.SIGKILL, "it killed itself at the step"
        sent = [sender.schedule(value=b"new %d" % number, target="one") for number in range(20)]
        sender.flush()
        cluster.wait_delivered(COUNT + 400 + len(sent))
        eventually(lambda: cluster.mirrored().operation.replay is None, "the replay is over")
        sender.schedule(value=b"the last", target="one")
        sender.flush()
        cluster.tail.wait(lambda: any(got.value == b"the last" for got in cluster.delivered), "it is there")

    assert cluster.wait_epoch(2).node != master.node_id
    carried = [one for one in cluster.checkpoints() if one.epoch == 2 and one.operation.replay is not None]
    assert carried, "the second master has gone on with it"
    assert sorted(got.value or b"" for got in again(cluster)) == sorted(
        b"message %d" % number for number in range(100, 900, 2)
    )
    first = {got.value: got.text("delay-source") for got in cluster.delivered if got not in again(cluster)}
    assert all(first[got.value] == got.text("delay-source") for got in again(cluster))
    assert Counter(got.number("delay-attempt") for got in cluster.delivered) == {1: COUNT + 21, 2: 400}
