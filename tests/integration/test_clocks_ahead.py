"""Clocks that are ahead, and right again: the brokers' and the leader's together, or one broker's alone."""

from __future__ import annotations

from tests.support.cluster import Cluster
from tests.support.process import NodeProcess
from tests.support.requests import Sender, now_ms
from tests.support.retention import alter_buffer, send_of_the_past
from tests.support.waiting import eventually

HOUR_MS = 3_600_000


def start_ahead(cluster: Cluster) -> NodeProcess:
    """A leader whose clock is a day ahead, and the brokers' with it. It has delivered what is due in
    twelve hours.
    """
    node = cluster.start("a", clock_offset_ms=24 * HOUR_MS, brokers_too=True)
    with Sender(cluster) as sender:
        sender.schedule(at_ms=now_ms() + 12 * HOUR_MS)
    cluster.wait_delivered(1)
    return node


def test_what_is_due_is_delivered_once_the_clocks_are_right_again(cluster: Cluster) -> None:
    start_ahead(cluster).set_clock()
    with Sender(cluster) as sender:
        sender.schedule()
        sender.schedule(at_ms=now_ms() + 1_500)
    delivered = cluster.wait_delivered(3)[1:]
    assert all(one.timestamp_ms >= int(one.text("delay-scheduled-for") or 0) for one in delivered)


def test_another_leader_delivers_nothing_of_it_again(cluster: Cluster) -> None:
    ahead = start_ahead(cluster)
    ahead.set_clock()
    eventually(lambda: cluster.checkpoints()[-1].overruns, "the position was rewound")
    ahead.kill()
    cluster.start_here("b")
    with Sender(cluster) as sender:
        sender.schedule()
    cluster.wait_delivered(2)
    assert len({one.text("delay-source") for one in cluster.delivered}) == 2


def test_a_partition_whose_records_are_ahead_of_the_clock_is_told(cluster: Cluster) -> None:
    cluster.start_here("a")
    send_of_the_past(cluster, now_ms() + HOUR_MS // 2)
    alter_buffer(cluster, "message.timestamp.type", "LogAppendTime")
    eventually(
        lambda: set(cluster.member("a").get("ahead") or ()) == {"0", "1"}, "the node says which they are"
    )
