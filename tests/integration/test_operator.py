"""What operators write into ZooKeeper, and what the nodes do about it."""

from __future__ import annotations

from collections import Counter

import msgspec

from election.operators import PauseState, Switchover, encode
from store.operations import Operation, OperatorRequest, ReplayRequest, SkipRequest
from tests.support.cluster import Cluster
from tests.support.fates import check_exactly_once
from tests.support.fixtures import MakeCluster
from tests.support.operators import AUTHOR, say, write
from tests.support.requests import Sender, due_times, now_ms
from tests.support.traffic import Traffic
from tests.support.waiting import eventually


def ask(cluster: Cluster, request: OperatorRequest) -> None:
    write(cluster, cluster.znodes.request(0), msgspec.json.encode(request))


def started(cluster: Cluster, *nodes: str) -> None:
    """They stand, in this order."""
    for count, node in enumerate(nodes, 1):
        cluster.start(node)
        cluster.wait_candidates(count)


def test_a_paused_cluster_delivers_nothing_whoever_is_leader_and_all_of_it_when_it_is_resumed(
    cluster: Cluster,
) -> None:
    started(cluster, "a", "b")
    with Sender(cluster) as sender:
        sender.schedule()
        cluster.wait_delivered(1)
        say(cluster, PauseState(paused=AUTHOR))
        for number in range(20):
            sender.schedule(id=f"id-{number}")
        sender.cancel("id-7")
        ledger = sender.flush()
        cluster.leader().kill()
        begun = cluster.wait_leadership(2)
        heartbeats = eventually(
            lambda: [one for one in cluster.checkpoints() if one.node == begun.node][2:], "heartbeats go on"
        )
        assert {one.position for one in heartbeats} == {begun.position}
        cluster.tail.catch_up()
        assert len(cluster.delivered) == 1
        say(cluster, PauseState())
    check_exactly_once(cluster, ledger)


def held_rows(cluster: Cluster) -> list[int]:
    """How many messages each hold has, by the znode."""
    return [hold.rows for hold in cluster.mirrored().holds]


def test_what_goes_to_a_paused_target_waits_where_it_is_whoever_is_leader_and_comes_in_order(
    make_cluster: MakeCluster,
) -> None:
    """And is one message to a replay."""
    cluster = make_cluster(targets=("free", "held"))
    started(cluster, "a", "b")
    say(cluster, PauseState(paused_targets={cluster.target("held"): AUTHOR}))
    begin_ms = now_ms()
    with Sender(cluster) as sender:
        for number in range(20):
            id_, due_ms = (f"id-{number}" if number % 2 else None), begin_ms + 3_000 - number * 5
            sender.schedule(target="held", at_ms=due_ms, id=id_, partition=0)
        sender.flush()
        eventually(lambda: held_rows(cluster) == [20], "they are held")
        sender.cancel("id-7")
        sender.run_now("id-9")
        sender.schedule(target="free")
        ledger = sender.flush()
        cluster.tail.wait(lambda: cluster.delivered_to("free"), "the others are delivered")
        cluster.leader().kill()
        cluster.wait_leadership(2)
        say(cluster, PauseState())
        cluster.tail.wait(lambda: len(cluster.delivered_to("held")) == 19, "they have come")
    check_exactly_once(cluster, ledger)
    assert held_rows(cluster) == []
    assert "target-paused" not in {one["code"] for one in cluster.outcomes}
    found = cluster.delivered_to("held")
    assert {got.number("delay-attempt") for got in found} == {1}
    times_ms = [got.number("delay-scheduled-for") for got in found if got.text("delay-id") != "id-9"]
    assert times_ms == sorted(times_ms)
    ask(cluster, ReplayRequest(1, begin_ms, now_ms(), cluster.target("held")))
    cluster.tail.wait(lambda: len(cluster.delivered_to("held")) >= 38, "they come again")
    eventually(lambda: cluster.mirrored().operation.number == 1, "the replay is over")
    cluster.tail.catch_up()
    twice = [(got.text("delay-source"), got.number("delay-attempt")) for got in cluster.delivered_to("held")]
    assert len(set(twice)) == len(twice) == 38


def test_a_switchover_under_load_makes_the_wanted_node_leader_exactly_once(cluster: Cluster) -> None:
    started(cluster, "a", "b", "c")
    with Traffic(cluster) as traffic:
        cluster.wait_delivered(60)
        wanted = Switchover(cluster.mirrored().epoch, "c", AUTHOR)
        write(cluster, cluster.znodes.switchover(0), encode(wanted))
        assert cluster.wait_leadership(2).node == "c"
        eventually(lambda: sorted(cluster.candidates()) == ["a", "b", "c"], "the others stand behind it")
        cluster.wait_delivered(len(cluster.delivered) + 60)
        ledger = traffic.stop()
    check_exactly_once(cluster, ledger)
    assert [one.node for one in cluster.leaderships()] == ["a", "c"]


def test_a_switchover_of_an_earlier_leadership_is_of_no_account(cluster: Cluster) -> None:
    started(cluster, "a", "b")
    cluster.wait_epoch(1)
    cluster.process("a").terminate()
    cluster.process("a").wait_exit()
    cluster.wait_leadership(2)
    write(cluster, cluster.znodes.switchover(0), encode(Switchover(1, None, AUTHOR)))
    cluster.start("a")
    assert cluster.wait_candidates(2) == ["b", "a"]
    with Sender(cluster) as sender:
        sender.schedule()
        check_exactly_once(cluster, sender.flush())
    assert cluster.candidates() == ["b", "a"]


def test_a_replay_delivers_its_range_once_more_and_nothing_else(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(targets=("one", "two"))
    cluster.start_here("a")
    with Sender(cluster) as sender:
        begin_ms = now_ms() + 2_000
        twos = {b"message %d" % number for number in range(1, 40, 2)}
        for number in range(40):
            sender.schedule(
                at_ms=begin_ms + number, target=("one", "two")[number % 2], value=b"message %d" % number
            )
        due = due_times(cluster, sender.flush())
        cluster.wait_delivered(40)
        request = ReplayRequest(1, due[10][0], due[29][0] + 1, cluster.target("two"))
        in_range = [value for at_ms, value in due if request.from_ms <= at_ms < request.to_ms]
        replayed = [value for value in in_range if value in twos]
        ask(cluster, request)
        cluster.wait_delivered(40 + len(replayed))
        over = Operation(1, request)
        eventually(lambda: cluster.mirrored().operation == over, "it is over, and operators see it")
        sender.schedule(target="one", value=b"the last")
        sender.flush()
        cluster.tail.wait(lambda: any(got.value == b"the last" for got in cluster.delivered), "it is there")
    again = [got for got in cluster.delivered if got.number("delay-attempt") == 2]
    assert Counter(got.value for got in again) == Counter(replayed)
    assert {got.topic for got in again} == {cluster.target("two")}


def test_what_is_skipped_is_answered_and_never_arrives(cluster: Cluster) -> None:
    cluster.start_here("a")
    with Sender(cluster) as sender:
        sender.schedule()
        cluster.wait_delivered(1)
        say(cluster, PauseState(paused=AUTHOR))
        for _ in range(10):
            sender.schedule()
        ledger = sender.flush()
        until_ms = now_ms() + 300
        sender.schedule(value=b"behind", at_ms=until_ms + 1)
        eventually(lambda: now_ms() > until_ms, "it is past")
        ask(cluster, SkipRequest(1, until_ms))
        say(cluster, PauseState())
        sender.flush()
        cluster.wait_delivered(2)
    assert cluster.delivered[-1].value == b"behind"
    cluster.tail.wait(lambda: len(cluster.outcomes) == 10, "all are answered")
    assert {one["outcome"] for one in cluster.outcomes} == {"skipped"}
    assert {one["request"] for one in cluster.outcomes} <= set(ledger.schedules)
