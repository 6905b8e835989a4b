"""Leadership passes from node to node: ordered, by a pause, to one far behind, to one that begins anew."""

from __future__ import annotations

import shutil

import pytest

from election.operators import PauseState, encode
from node.core.steps import Step
from node.status import NodeState
from tests.support.cluster import Cluster
from tests.support.fates import check_exactly_once
from tests.support.fixtures import MakeCluster
from tests.support.operators import AUTHOR, say, write
from tests.support.process import NodeProcess
from tests.support.proxy import Proxy
from tests.support.requests import Sender, key_in, now_ms
from tests.support.traffic import Traffic
from tests.support.waiting import eventually

HOUR_MS = 3_600_000
LONGEST_SESSION_S = 60.0


def _latest_ms(cluster: Cluster, node_id: str) -> int:
    """When a node has made its last checkpoint."""
    return max(checkpoint.at_ms for checkpoint in cluster.checkpoints() if checkpoint.node == node_id)


def _candidacies(cluster: Cluster) -> set[str]:
    """Each is another one, also of a node that stands again."""
    return set(cluster.kazoo.get_children(cluster.znodes.candidates(0)))


def _alive(cluster: Cluster) -> NodeProcess:
    """The node `a` in a new life, in which it is leader."""
    begun_ms = now_ms()
    process = cluster.start("a")
    eventually(
        lambda: any(one.first and one.at_ms >= begun_ms for one in cluster.checkpoints()), "it is leader"
    )
    return process


def _started(cluster: Cluster, *node_ids: str) -> list[NodeProcess]:
    """Nodes that stand, in this order; the first is leader."""
    processes = []
    for count, node_id in enumerate(node_ids, start=1):
        processes.append(cluster.start(node_id))
        cluster.wait_candidates(count)
    return processes


def test_sigterm_hands_over_exactly_once_and_ends_with_code_0(cluster: Cluster) -> None:
    leader, follower = _started(cluster, "a", "b")
    with Traffic(cluster) as traffic:
        cluster.wait_delivered(60)
        leader.terminate()
        assert leader.wait_exit() == 0
        assert cluster.wait_leadership(2).node == follower.node_id
        cluster.wait_delivered(len(cluster.delivered) + 60)
        ledger = traffic.stop()
    check_exactly_once(cluster, ledger)


@pytest.mark.parametrize("step", [Step.BEFORE_BEGIN, Step.AFTER_PRODUCE, Step.AFTER_CHECKPOINT_RECORD])
def test_a_leader_paused_past_its_session_commits_nothing_more(cluster: Cluster, step: Step) -> None:
    for node_id in ("a", "b"):
        cluster.start(node_id, step=step, signal_name="SIGSTOP")
    leader_id, follower_id = cluster.wait_candidates(2)
    paused = cluster.process(leader_id)
    with Traffic(cluster) as traffic:
        cluster.wait_delivered(60)
        paused.arm()
        paused.wait_paused()
        cluster.wait_leadership(2)
        cluster.wait_delivered(len(cluster.delivered) + 60)
        paused.resume()
        cluster.wait_state(paused.node_id, NodeState.FOLLOWER)
        ledger = traffic.stop()
    check_exactly_once(cluster, ledger)
    assert [one.node for one in cluster.leaderships()] == [leader_id, follower_id], (
        "nothing of the first leadership after the second has begun"
    )


def test_a_leader_that_stands_still_is_replaced_though_its_session_lasts(cluster: Cluster) -> None:
    """The session outlives the test's patience: only the beats that are missed can end this leadership."""
    for node_id in ("a", "b"):
        cluster.start(node_id, session_timeout_s=LONGEST_SESSION_S, peer_silence_ms=400)
    leader_id, follower_id = cluster.wait_candidates(2)
    still = cluster.process(leader_id)
    with Traffic(cluster) as traffic:
        cluster.wait_delivered(60)
        still.pause()
        assert cluster.wait_leadership(2).node == follower_id
        cluster.wait_delivered(len(cluster.delivered) + 60)
        still.resume()
        cluster.wait_state(leader_id, NodeState.FOLLOWER)
        ledger = traffic.stop()
    check_exactly_once(cluster, ledger)


def test_a_leader_cut_off_from_zookeeper_delivers_until_it_is_fenced(cluster: Cluster) -> None:
    with Proxy(cluster.zookeeper) as proxy:
        cut_off = cluster.start("a", zookeeper=proxy.address)
        cluster.wait_candidates(1)
        cluster.start("b")
        cluster.wait_candidates(2)
        with Traffic(cluster) as traffic:
            cluster.wait_delivered(60)
            proxy.cut()
            cut_ms = now_ms()
            assert cluster.wait_leadership(2).node == "b"
            assert _latest_ms(cluster, "a") > cut_ms + 1_000, "it stopped without ZooKeeper"
            cluster.wait_delivered(len(cluster.delivered) + 60)
            proxy.mend()
            cluster.wait_state(cut_off.node_id, NodeState.FOLLOWER)
            ledger = traffic.stop()
    check_exactly_once(cluster, ledger)
    assert [one.node for one in cluster.leaderships()] == ["a", "b"], "it fenced nobody back"


def test_a_follower_far_behind_becomes_leader(cluster: Cluster) -> None:
    leader, behind = _started(cluster, "a", "b")
    behind.pause()
    due_ms = now_ms() + 3_000
    cancelled = range(1, 4_000, 4)
    with Sender(cluster) as sender:
        for number in range(4_000):
            at_ms = due_ms + (HOUR_MS if number in cancelled else number % 1_000)
            sender.schedule(at_ms=at_ms, id=f"id-{number}" if number % 2 else None)
        for number in cancelled:
            sender.cancel(f"id-{number}")
        for number in range(2_000):
            sender.schedule(at_ms=due_ms - 3_000 + number)
        ledger = sender.flush()
    cluster.wait_delivered(1_000)
    leader.kill()
    behind.resume()
    assert cluster.wait_leadership(2).node == behind.node_id
    fates = check_exactly_once(cluster, ledger)
    assert (fates.count("delivered"), fates.count("cancelled")) == (5_000, 1_000)


def test_a_node_with_an_emptied_folder_rebuilds_and_becomes_leader(cluster: Cluster) -> None:
    leader, emptied = _started(cluster, "a", "b")
    with Sender(cluster) as sender:
        for number in range(300):
            sender.schedule(id=f"now-{number}")
            sender.schedule(at_ms=now_ms() + 6_000, id=f"later-{number}")
        for number in range(100):
            sender.cancel(f"later-{number}")
            sender.cancel(f"now-{number}")
            sender.schedule(at_ms=now_ms() + 6_000, id=f"later-{number + 100}")
        sender.flush()
        cluster.wait_delivered(200)
        emptied.kill()
        shutil.rmtree(cluster.data_dir("b"))
        before = _candidacies(cluster)
        cluster.start("b")
        eventually(lambda: _candidacies(cluster) - before, "b stands again")
        leader.kill()
        assert cluster.wait_leadership(2).node == "b"
        sender.schedule()
        ledger = sender.flush()
    check_exactly_once(cluster, ledger)


def test_a_node_killed_again_and_again_delivers_exactly_once_alone(cluster: Cluster) -> None:
    with Traffic(cluster) as traffic:
        for _ in range(3):
            node = _alive(cluster)
            cluster.wait_delivered(len(cluster.delivered) + 50)
            node.kill()
        _alive(cluster)
        ledger = traffic.stop()
    check_exactly_once(cluster, ledger)


def test_a_cancel_made_while_the_whole_service_is_down_counts(cluster: Cluster) -> None:
    (only,) = _started(cluster, "a")
    say(cluster, PauseState(paused=AUTHOR))
    with Sender(cluster) as sender:
        due_ms = now_ms() + 500
        cancelled = sender.schedule(b"cancelled", at_ms=due_ms, id="cancelled")
        moved = sender.schedule(b"moved", at_ms=due_ms, id="moved")
        kept = sender.schedule(b"kept", at_ms=due_ms, id="kept")
        sender.flush()
        eventually(lambda: sum(cluster.member("a")["applied"].values()) == 3, "it has them all")
        only.kill()
        sender.cancel("cancelled")
        sender.reschedule("moved", at_ms=due_ms + 100)
        ledger = sender.flush()
    eventually(lambda: now_ms() > due_ms, "all of them are overdue")
    write(cluster, cluster.znodes.pauses, encode(PauseState()))
    cluster.start("a")
    fates = check_exactly_once(cluster, ledger)
    assert {receipt.result(): fates.of[receipt.result()] for receipt in (cancelled, moved, kept)} == {
        cancelled.result(): ["cancelled"],
        moved.result(): ["delivered"],
        kept.result(): ["delivered"],
    }


def test_a_lane_goes_on_while_another_has_no_leader(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(partitions=2, lanes=2)
    first, second = cluster.start("a", lane=0), cluster.start("b", lane=1)
    cluster.wait_epoch(1, lane=0)
    cluster.wait_epoch(1, lane=1)
    with Sender(cluster) as sender:
        for number in range(100):
            sender.schedule(key=key_in(number % 2, prefix=f"k{number}"))
        sender.flush()
        cluster.wait_delivered(100)
        first.kill()
        waiting = [sender.schedule(key=key_in(0, prefix=f"w{number}")) for number in range(50)]
        for number in range(50):
            sender.schedule(at_ms=now_ms() + 10 * number, key=key_in(1, prefix=f"g{number}"))
        sender.flush()
        cluster.wait_delivered(150)
        assert not {receipt.result() for receipt in waiting} & {
            got.text("delay-source") for got in cluster.delivered
        }, "the dead lane's messages wait"
        cluster.start("c", lane=0)
        ledger = sender.flush()
    check_exactly_once(cluster, ledger, lanes=2)
    assert second.running
    assert [one.node for one in cluster.leaderships(1)] == ["b"], "the other lane never stopped"
