"""Clusters whose buffer is kept for a short time: what waits is carried, retention takes the rest, and nodes
begin in the midst of the log.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from delayline import DelayProducer
from delayline.names import parse_source
from delayline.receipt import Receipt
from delayline.sizes import request_bytes
from delayline.wire import H_DELIVER_AT, H_TARGET_TOPIC, Header, carry_headers, signed_headers
from election.operators import PauseState
from node.node import Node
from node.status import NodeState
from ops.message import lookup
from store.checkpoint import Vector
from store.rows import CARRY_FORMAT
from tests.integration.test_node_refusals import refused
from tests.integration.test_signed import send
from tests.support.cluster import Cluster
from tests.support.fates import check_exactly_once
from tests.support.fixtures import MakeCluster
from tests.support.operators import AUTHOR, say
from tests.support.requests import Ledger, Sender, key_in, now_ms
from tests.support.retention import delete_records
from tests.support.waiting import PATIENCE_S, eventually

RETENTION_MS = 6_000
HALF_AN_HOUR_MS = 1_800_000
"""A retention by which nothing is carried while a test runs."""
HOUR_MS = 3_600_000
COUNT = 20


@pytest.fixture
def cluster(make_cluster: MakeCluster) -> Cluster:
    return make_cluster(retention_ms=RETENTION_MS, dedup_window_ms=500)


def start(cluster: Cluster, node_id: str) -> Node:
    return cluster.start_here(node_id, replay_window_s=0.5)


@contextmanager
def outcomes_of(cluster: Cluster) -> Iterator[DelayProducer]:
    config = {"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "log_level": 0}
    with DelayProducer(config, cluster=cluster.name, outcomes=True) as producer:
        yield producer


def told(receipt: Receipt) -> str:
    return receipt.outcome(PATIENCE_S).outcome


def ends_of(ledger: Ledger) -> Vector:
    """Behind all schedules."""
    ends: Vector = {}
    for one in ledger.schedules:
        _, partition, offset = parse_source(one)
        ends[partition] = max(offset + 1, ends.get(partition, 0))
    return ends


def forget(cluster: Cluster, ends: Vector) -> None:
    """Waits until nothing below these ends is needed any more; then all goes that is not."""

    def carried() -> Vector:
        checkpoints = cluster.checkpoints()
        found = checkpoints[-1].carried if checkpoints else {}
        return found if all(found.get(partition, 0) >= end for partition, end in ends.items()) else {}

    delete_records(cluster, eventually(carried, "all that waits has been carried"))


def take_over(cluster: Cluster, running: Node, node_id: str) -> None:
    """The leader is stopped, and the other one leads."""
    cluster.wait_candidates(2)
    cluster.stop_here(running)
    cluster.wait_state(node_id, NodeState.LEADER)


def test_a_node_without_a_folder_begins_behind_what_waits_and_delivers_it_once_it_leads(
    cluster: Cluster,
) -> None:
    running = start(cluster, "a")
    with Sender(cluster) as sender:
        due_ms = now_ms() + 15_000
        for number in range(COUNT):
            sender.schedule(at_ms=due_ms, id=f"id-{number}")
            sender.schedule(at_ms=due_ms, partition=number % 2)
        ledger = sender.flush()
        forget(cluster, ends_of(ledger))
        start(cluster, "b")
        take_over(cluster, running, "b")
        assert check_exactly_once(cluster, ledger).count("delivered") == 2 * COUNT


def test_requests_about_what_only_carries_tell_of_are_answered_truly(cluster: Cluster) -> None:
    running = start(cluster, "a")
    with Sender(cluster) as sender, outcomes_of(cluster) as producer:
        due_ms = now_ms() + HOUR_MS
        for number in range(COUNT):
            for name in ("cancelled", "moved", "kept", "ended"):
                sender.schedule(at_ms=due_ms, id=f"{name}-{number}")
        without_id = [sender.schedule(at_ms=due_ms, partition=number % 2) for number in range(COUNT)]
        ledger = sender.flush()
        forget(cluster, ends_of(ledger))
        start(cluster, "b")
        take_over(cluster, running, "b")
        ended: list[Receipt | str] = [
            one for one, sent in ledger.schedules.items() if (sent.id or "").startswith("ended")
        ]
        asked = {
            "cancelled": [
                *(producer.cancel(f"cancelled-{number}") for number in range(COUNT)),
                *(producer.cancel(source=one) for one in [*ended, *without_id]),
            ],
            "rescheduled": [producer.run_now(f"moved-{number}") for number in range(COUNT)],
            "duplicate": [
                producer.schedule(cluster.target(), b"again", id=f"kept-{number}", if_exists="keep")
                for number in range(COUNT)
            ],
        }
        for outcome, receipts in asked.items():
            assert {told(one) for one in receipts} == {outcome}
        assert told(producer.cancel("cancelled-0")) == "unknown"
        for number in range(COUNT):
            sender.run_now(f"kept-{number}")
        fates = check_exactly_once(cluster, sender.flush())
    assert (fates.count("delivered"), fates.count("cancelled")) == (2 * COUNT, 3 * COUNT)


def test_what_was_a_duplicate_stays_one_though_what_it_repeats_is_gone(make_cluster: MakeCluster) -> None:
    """Carried is behind the message that it repeats, and before it: something waits between the two."""
    cluster = make_cluster(retention_ms=HALF_AN_HOUR_MS, dedup_window_ms=5_000)
    repeated, waiting = (key_in(0, prefix=name).decode() for name in ("repeated", "waiting"))
    running = start(cluster, "a")
    with Sender(cluster) as sender, outcomes_of(cluster) as producer:
        sender.schedule(id=repeated)
        sender.flush()
        cluster.wait_delivered(1)
        waits = sender.schedule(at_ms=now_ms() + HOUR_MS, id=waiting)
        sender.flush()
        again_at_ms = now_ms() + HOUR_MS
        again = producer.schedule(
            cluster.target(), b"again", id=repeated, if_exists="keep", deliver_at=again_at_ms
        )
        assert told(again) == "duplicate"
        _, _, place = parse_source(waits.result())

        def may_be_forgotten() -> bool:
            sender.schedule(partition=0)
            sender.flush()
            return cluster.checkpoints()[-1].carried.get(0) == place

        eventually(may_be_forgotten, "nothing is needed before what waits")
        cluster.stop_here(running)
        delete_records(cluster, {0: place})
        start(cluster, "b")
        cluster.wait_state("b", NodeState.LEADER)
        assert lookup.show(cluster.connection, repeated, "b", "none").message.state == "unknown"
        assert told(producer.schedule(cluster.target(), b"x", id=waiting, if_exists="keep")) == "duplicate"
        assert told(producer.cancel(repeated)) == "unknown"
        sender.run_now(waiting)
        check_exactly_once(cluster, sender.flush())


@pytest.mark.parametrize("stopped", [True, False], ids=["stopped meanwhile", "running on"])
def test_a_node_whose_place_retention_has_passed_begins_anew_by_itself(
    cluster: Cluster, *, stopped: bool
) -> None:
    running = start(cluster, "a")
    cluster.wait_state("a", NodeState.LEADER)
    passed = cluster.start("b", replay_window_s=0.5)
    cluster.wait_candidates(2)
    with Sender(cluster) as sender:
        sender.schedule()
        sender.flush()
        eventually(lambda: any(cluster.member("b")["applied"].values()), "it has read something")
        if stopped:
            passed.terminate()
            passed.wait_exit()
        else:
            passed.pause()
            sender.schedule()
            sender.flush()  # the fetch that is with the broker is answered with this, and not with the rest
        for number in range(COUNT):
            sender.schedule(at_ms=now_ms() + HOUR_MS, id=f"id-{number}")
        forget(cluster, ends_of(sender.flush()))
        if stopped:
            passed = cluster.start("b", replay_window_s=0.5)
        else:
            passed.resume()
        assert "begins at offset" in passed.wait_event("place-lost")["detail"]
        take_over(cluster, running, "b")
        assert len(passed.events("place-lost")) == 1
        for number in range(COUNT):
            sender.run_now(f"id-{number}")
        at_once = 1 if stopped else 2
        assert check_exactly_once(cluster, sender.flush()).count("delivered") == COUNT + at_once


def test_the_largest_request_is_carried_and_a_larger_one_is_not_accepted(cluster: Cluster) -> None:
    most_bytes = cluster.settings.max_request_bytes
    due_ms = now_ms() + 15_000
    headers: list[Header] = [
        (H_TARGET_TOPIC, cluster.target().encode()),
        (H_DELIVER_AT, b"%d" % due_ms),
        ("own", b""),
    ]
    room_bytes = most_bytes - request_bytes(len(b"k"), 0, headers)
    running = start(cluster, "a")
    largest = send(cluster, 0, b"k", bytes(room_bytes), headers, "lz4")
    larger = send(cluster, 0, b"k", bytes(room_bytes + 1), headers, "lz4")
    cluster.tail.wait(lambda: len(cluster.dead_letters) == 1, "it is a dead letter")
    (letter,) = cluster.dead_letters
    assert letter.text("delay-source") == larger
    assert letter.text("delay-error") == "request-too-large"
    assert letter.value == bytes(room_bytes + 1)
    forget(cluster, {0: parse_source(larger)[2] + 1})
    start(cluster, "b")
    take_over(cluster, running, "b")
    (delivered,) = cluster.wait_delivered(1)
    assert (delivered.text("delay-source"), delivered.value) == (largest, bytes(room_bytes))


def test_a_pause_that_is_longer_than_the_retention_loses_nothing(cluster: Cluster) -> None:
    running = {name: start(cluster, name) for name in "ab"}
    cluster.wait_candidates(2)
    say(cluster, PauseState(paused=AUTHOR))
    with Sender(cluster) as sender:
        for number in range(COUNT):
            sender.schedule(at_ms=now_ms() + number * 500, partition=number % 2)
            sender.schedule(at_ms=now_ms() + number * 500, id=f"id-{number}")
        ledger = sender.flush()
        until_ms = now_ms() + 2 * RETENTION_MS
        for name in "ab":
            forget(cluster, ends_of(ledger))
            cluster.stop_here(running[name])
            shutil.rmtree(cluster.data_dir(name))
            start(cluster, name)
            cluster.wait_candidates(2)
        eventually(lambda: cluster.checkpoints()[-1].at_ms > until_ms, "it has been paused for so long")
        forget(cluster, ends_of(ledger))
        say(cluster, PauseState())
        assert check_exactly_once(cluster, ledger).count("delivered") == 2 * COUNT


def test_an_empty_node_does_not_begin_where_the_log_lacks_what_waits_until_who_has_it_has_carried_it(
    cluster: Cluster,
) -> None:
    running = start(cluster, "a")
    with Sender(cluster) as sender:
        for number in range(COUNT):
            sender.schedule(at_ms=now_ms() + HOUR_MS, id=f"id-{number}")
        ledger = sender.flush()
        forget(cluster, ends_of(ledger))
        ends = dict(cluster.checkpoints()[-1].read)
        cluster.stop_here(running)
        delete_records(cluster, ends)
        start(cluster, "b")
        assert "what waits may stand from offset" in refused(cluster, "b", "retention-gap")["reason"]
        running = start(cluster, "a")
        cluster.wait_state("a", NodeState.LEADER)
        take_over(cluster, running, "b")
        for number in range(COUNT):
            sender.run_now(f"id-{number}")
        assert check_exactly_once(cluster, sender.flush()).count("delivered") == COUNT


def test_of_a_carry_of_a_newer_version_nothing_is_applied_and_the_node_says_to_upgrade_it(
    cluster: Cluster,
) -> None:
    start(cluster, "a")
    cluster.wait_state("a", NodeState.LEADER)
    value = bytes([CARRY_FORMAT + 1]) + b"what only a newer version reads"
    serial = (0, 1_000_000)  # higher than any that the leader has sent
    place = send(
        cluster, 0, None, value, signed_headers(carry_headers(), cluster.keys, serial, 0, None, value)
    )
    said = refused(cluster, "a", "carry-newer")
    assert f"{place}: a carry has format {CARRY_FORMAT + 1}" in said["reason"]
    assert "Upgrade this node" in said["way_out"]
    assert said["applied"]["0"] == 0
