"""What operators do with a cluster, by the commands that they type: on a real Kafka, ZooKeeper, nodes."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AclOperation

import ops.clients.zookeeper
import ops.cluster.status
from election.candidates import Candidate
from node.status import LARGEST_CLOCK_OFFSET_MS, NodeState
from ops import logs
from ops.cli import cluster_status
from ops.clients.zookeeper import registry
from ops.cluster import pause, remove
from ops.doctor import topics
from ops.topics.cluster_topics import create
from tests.logging_state import restored_logging
from tests.stacks import Stack
from tests.support.cluster import Cluster
from tests.support.commands import Done, Operator, operator_of
from tests.support.requests import OpenTransaction, Sender, key_in, now_ms
from tests.support.waiting import becomes, eventually

WHY = ("--reason", "to see it", "--by", "somebody")


@pytest.fixture(scope="module")
def cluster(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One for all who do not end it: `a` and `b`, of which one is leader."""
    name = f"t-seat-{uuid.uuid4().hex[:8]}"
    with restored_logging(), Cluster(stack, name, tmp_path_factory.mktemp("seat")) as made:
        logs.configure(logging.ERROR)  # the nodes of this process say nothing on stdout
        made.start_here("a")
        made.wait_candidates(1)
        made.start_here("b")
        made.wait_candidates(2)
        eventually(lambda: made.member("a") and made.member("b"), "both tell of themselves")
        yield made


@pytest.fixture
def operator(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Operator]:
    with operator_of(cluster.connection, monkeypatch, capsys) as typing:
        yield typing


class Seat:
    """Types a command that changes something, and confirms it."""

    def __init__(self, cluster: Cluster, operator: Operator) -> None:
        self._cluster = cluster
        self._operator = operator

    def __call__(self, *arguments: str) -> Done:
        return self._operator("cluster", *arguments, *WHY, "--confirm", self._cluster.name)


@pytest.fixture
def seat(cluster: Cluster, operator: Operator) -> Seat:
    return Seat(cluster, operator)


def test_a_cluster_that_is_paused_delivers_nothing_until_it_is_resumed(
    cluster: Cluster, operator: Operator, seat: Seat
) -> None:
    done = seat("pause", "-o", "json")
    assert (done.code, done.data["paused"], sorted(done.data["nodes"])) == (0, True, ["a", "b"])
    before = len(cluster.delivered)
    with Sender(cluster) as sender:
        sender.schedule()
        sender.flush()
    eventually(lambda: operator("due", "-o", "json").data["overdue"] == 1, "it waits")
    again = seat("pause")
    assert (again.code, again.err) == (0, "the cluster was paused before, by somebody: to see it\n")
    assert seat("resume", "-o", "json").data["paused"] is False
    cluster.wait_delivered(before + 1)
    assert seat("resume").code == 3


def test_a_target_is_paused_by_itself(cluster: Cluster, operator: Operator, seat: Seat) -> None:
    target = cluster.target()
    assert seat("pause", "--target", target).code == 0
    status = operator("cluster", "status", "-o", "json").data
    assert (status["paused"], status["paused_targets"][target]["reason"]) == (None, "to see it")
    other = seat("resume", "--target", "another")
    assert (other.code, other.err) == (3, f"error: target another is not paused; what is: {target}\n")
    assert seat("resume", "--target", target, "-o", "json").data["paused_targets"] == []


def test_the_service_s_own_topics_are_no_targets_to_pause(cluster: Cluster, seat: Seat) -> None:
    for topic in (cluster.names.buffer, cluster.names.audit):
        done = seat("pause", "--target", topic)
        assert (done.code, "is the service's own topic" in done.err) == (2, True)


def test_a_target_that_is_no_topic_is_paused_with_a_warning(cluster: Cluster, seat: Seat) -> None:
    def words() -> str:
        done = seat("pause", "--target", "nowhere")
        assert (done.code, seat("resume", "--target", "nowhere").code) == (0, 0)
        return done.err

    becomes(words, "warning: there is no topic nowhere\n")  # nothing, if Kafka does not say so in time


def test_a_pause_waits_for_every_node_that_is_there_and_names_who_does_not_know(
    cluster: Cluster, seat: Seat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pause, "STALE_MS", 1_000)
    with registry(cluster.connection) as znodes:
        znodes.publish_member("deaf", b'{"node": "deaf", "lane": 0, "state": "follower", "at_ms": 1}')
        done = seat("pause", "--timeout", "1.5")
        assert (done.code, " deaf (silent for" in done.err) == (6, True)
    assert seat("resume").code == 0


@pytest.mark.parametrize("said", [None, b'{"node": "mute", "lane": 0, "state": "starting", "open": false}'])
def test_a_pause_waits_for_a_candidate_until_it_says_that_it_knows(
    cluster: Cluster, seat: Seat, said: bytes | None
) -> None:
    """It may have asked what is paused before there was anything, and be leader the next moment."""
    candidacy = cluster.kazoo.create(
        f"{cluster.znodes.candidates(0)}/{uuid.uuid4().hex}-",
        Candidate("mute", "127.0.0.1", 1, now_ms()).encode(),
        ephemeral=True,
        sequence=True,
    )
    with registry(cluster.connection) as znodes:
        if said is not None:
            znodes.publish_member("mute", said)
        done = seat("pause", "--timeout", "1.5")
    cluster.kazoo.delete(candidacy)
    assert (done.code, "not every node has said" in done.err, " mute" in done.err) == (6, True, True)
    assert seat("resume").code == 0


def test_a_pause_does_not_wait_for_a_node_that_refuses_and_has_not_opened_its_store(
    cluster: Cluster, seat: Seat
) -> None:
    refusing = cluster.start_here("c", lane=7)
    cluster.wait_state("c", NodeState.REFUSING)
    done = seat("pause", "-o", "json")
    assert seat("resume").code == 0
    cluster.stop_here(refusing)
    assert (done.code, sorted(done.data["nodes"])) == (0, ["a", "b", "c"])


def test_who_resumes_a_target_is_told_when_its_messages_come(cluster: Cluster, seat: Seat) -> None:
    assert seat("pause", "--target", cluster.target()).code == 0
    done = seat("resume", "--target", cluster.target())
    assert "what waits for it is delivered in order" in done.err


def test_a_switchover_ends_when_the_new_leader_delivers(cluster: Cluster, seat: Seat) -> None:
    leader, follower = cluster.candidates()
    done = seat("switchover", "--to", follower, "-o", "json")
    assert (done.code, done.data["before"], done.data["leader"]) == (0, leader, follower)
    assert cluster.mirrored().node == follower
    assert cluster.kazoo.exists(cluster.znodes.switchover(0)) is None
    cluster.wait_candidates(2)


def test_a_switchover_of_a_paused_cluster_ends_too(cluster: Cluster, seat: Seat) -> None:
    assert seat("pause").code == 0
    _, follower = cluster.candidates()
    done = seat("switchover", "-o", "json")
    assert seat("resume").code == 0
    assert done.code == 0, done.err
    assert done.data["leader"] == follower
    cluster.wait_candidates(2)


def test_a_switchover_is_refused_where_it_makes_no_sense(cluster: Cluster, seat: Seat) -> None:
    leader = cluster.candidates()[0]
    assert seat("switchover", "--to", leader).code == 5
    assert seat("switchover", "--to", "nobody").code == 3
    assert seat("switchover", "--lane", "1").code == 3


@pytest.mark.parametrize("offset_ms", [-3_600_000, 3_600_000])
def test_a_switchover_to_a_node_whose_clock_is_wrong_says_so(
    cluster: Cluster, seat: Seat, operator: Operator, offset_ms: int
) -> None:
    node = cluster.start("wrong", clock_offset_ms=offset_ms)
    try:
        cluster.wait_state("wrong", NodeState.FOLLOWER)
        done = seat("switchover", "--to", "wrong")
        assert (done.code, "the clock of wrong is " in done.err) == (5, True), done.err
        members = operator("cluster", "status", "-o", "json").data["members"]
        assert {said["node"]: said["health"] for said in members}["wrong"] == "clock"
    finally:
        node.close()
        cluster.wait_candidates(2)
        eventually(lambda: not cluster.member("wrong"), "it is gone")


def test_a_node_that_lives_is_not_removed(cluster: Cluster, seat: Seat) -> None:
    done = seat("remove", "a")
    assert (done.code, "a lives: it told of itself" in done.err) == (5, True)
    assert seat("remove", "nobody").code == 3


def test_a_dead_node_s_znodes_are_removed(
    cluster: Cluster, seat: Seat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remove, "STALE_MS", -1_000)  # what was written just now is long ago
    with registry(cluster.connection) as znodes:
        znodes.publish_member("dead", b'{"node": "dead", "lane": 0, "state": "follower", "at_ms": 1}')
        done = seat("remove", "dead", "-o", "json")
        assert (done.code, done.data["removed"]) == (0, [cluster.znodes.member("dead")])
        assert "dead" not in znodes.members()
        assert znodes.history()[-1].before == "dead"


def test_what_is_not_confirmed_is_not_done(cluster: Cluster, operator: Operator) -> None:
    unasked = operator("cluster", "pause", *WHY)
    other = operator("cluster", "pause", *WHY, "--confirm", "another")
    assert (unasked.code, other.code) == (2, 2)
    with registry(cluster.connection) as znodes:
        assert znodes.pauses()[0].paused is None


def test_status_is_watched_until_it_is_interrupted(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = iter((None, KeyboardInterrupt))

    def rest(_: float) -> None:
        if (error := next(rounds)) is not None:
            raise error

    # For the command alone: other threads of this process rest, too.
    own_time = SimpleNamespace(monotonic=time.monotonic, sleep=rest)
    monkeypatch.setattr(cluster_status, "time", own_time)
    done = operator("cluster", "status", "-W")
    assert (done.code, done.out.count("delivered up to")) == (130, 2)


def test_status_as_yaml_is_what_it_is_as_json(operator: Operator) -> None:
    as_yaml = yaml.safe_load(operator("cluster", "status", "-o", "yaml").out)
    as_json = json.loads(operator("cluster", "status", "-o", "json").out)
    assert as_yaml["settings"] == as_json["settings"]
    assert [member["health"] for member in as_yaml["members"]] == ["ok", "ok"]


def test_due_counts_by_seconds_minutes_days_and_targets(cluster: Cluster, operator: Operator) -> None:
    with Sender(cluster) as sender:
        for delay_ms in (30_000, 40_000, 600_000, 3 * 86_400_000):
            sender.schedule(at_ms=now_ms() + delay_ms)
        sender.flush()
    begun_s = time.monotonic()

    def counted() -> list[int]:
        found = operator("due", "-o", "json").data
        scales = [
            sum(one["count"] for one in found[scale]["counts"]) for scale in ("seconds", "minutes", "days")
        ]
        return [*scales, found["targets"].get(cluster.target(), 0)]

    eventually(lambda: counted() == [2, 3, 4, 4], "all are counted")
    assert time.monotonic() - begun_s < 25
    drawn = operator("due").out
    assert "4 pending" in drawn
    assert "█" in drawn
    table = operator("due", "-o", "csv").out.splitlines()
    assert table[0] == "scale,at,target,count,at_least"
    assert table[-1] == f"target,,{cluster.target()},4,False"


def test_the_doctor_has_nothing_to_mend_in_a_cluster_that_is_well(operator: Operator) -> None:
    done = operator("doctor", "-o", "json")
    wrong = [finding for finding in done.data if finding["level"] == "problem"]
    assert (done.code, wrong) == (0, [])
    assert {"zookeeper", "sessions", "znodes", "kafka", "topics", "brokers", "rights"} <= {
        finding["check"] for finding in done.data
    }


def test_the_doctor_says_what_to_do_about_each_problem(
    cluster: Cluster, operator: Operator, seat: Seat
) -> None:
    assert seat("pause").code == 0
    done = operator("doctor")
    assert done.code == 1
    assert "delayline cluster resume --reason ..." in done.out
    assert seat("resume").code == 0


def test_what_waits_behind_an_open_transaction_is_told_with_whose_it_is(
    cluster: Cluster, operator: Operator
) -> None:
    foreign = OpenTransaction(cluster)
    foreign.begin([b"open"], key=key_in(1))
    try:
        with Sender(cluster) as sender:
            for _ in range(820):
                sender.schedule(key=key_in(1))
            sender.flush()

        def told() -> list[dict[str, Any]]:
            (lane,) = operator("cluster", "status", "-o", "json").data["lanes"]
            return [one for one in lane["blocked"] if one["records"] >= 820 and one["transactional_id"]]

        (held,) = eventually(told, "it is told, with whose it is")
        assert (held["partition"], held["transactional_id"]) == (1, f"{cluster.name}-foreign")
        assert held["timeout_ms"] == 60_000
        found = operator("doctor", "-o", "json").data
        (finding,) = [one for one in found if "records of" in one["found"]]
        assert f"{cluster.names.buffer}/1 have waited" in finding["found"]
        assert "commit or abort" in finding["mend"]
        assert "behind the open transaction of" in operator("cluster", "status").err
    finally:
        foreign.abort()
    eventually(lambda: operator("cluster", "status").err == "", "nothing waits")


def levels(done: Done) -> dict[str, str]:
    return {finding["check"]: finding["level"] for finding in done.data}


def test_the_doctor_goes_on_without_kafka(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is a node's clock wrong for its having waited for Kafka."""
    monkeypatch.setattr(ops.cluster.status, "_PATIENCE_S", LARGEST_CLOCK_OFFSET_MS / 1000 + 0.5)
    monkeypatch.setattr(topics, "TIMEOUT_S", 0.2)
    done = operator("doctor", "--bootstrap", "127.0.0.1:1", "-o", "json")
    found = levels(done)
    assert (done.code, found["kafka"]) == (1, "problem")
    assert (found["znodes"], found["clocks"]) == ("ok", "ok")


def test_the_doctor_goes_on_without_zookeeper(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops.clients.zookeeper, "ANSWER_TIMEOUT_S", 1.0)
    done = operator("doctor", "--zookeeper", "127.0.0.1:1", "-o", "json")
    found = levels(done)
    assert (done.code, found["znodes"], found["kafka"]) == (1, "problem", "note")


NO_CLIENT = ("-X", "security.protocol=SSL", "-X", "ssl.ca.location=/no/such/ca.pem", "-o", "json")


def test_without_a_client_of_kafka_status_says_why_there_is_no_lag(operator: Operator) -> None:
    done = operator("cluster", "status", *NO_CLIENT)
    assert (done.code, [one["lag"] for one in done.data["members"]]) == (0, [None, None])
    assert done.err.startswith("warning: no lag is known: kafka: ")
    assert "ssl.ca.location" in done.err


def test_without_a_client_of_kafka_the_doctor_goes_on(operator: Operator) -> None:
    found = levels(operator("doctor", *NO_CLIENT))
    assert (found["kafka"], found["znodes"], found["http"]) == ("problem", "ok", "ok")


def test_without_kafka_the_history_has_what_operators_have_changed(operator: Operator, seat: Seat) -> None:
    assert (seat("pause").code, seat("resume").code) == (0, 0)
    done = operator("checkpoint", "history", *NO_CLIENT)
    assert (done.code, [one["what"] for one in done.data][-2:]) == (0, ["pause", "resume"])
    assert not [one for one in done.data if one["what"] == "leader"]
    assert done.err.startswith("warning: leaderships are not known: kafka: ")


def test_the_doctor_names_the_rights_that_this_user_lacks(cluster: Cluster, operator: Operator) -> None:
    name = f"{cluster.name}-other"
    create(cluster.connection.model_copy(update={"cluster": name}), {"partitions": 1})
    may = (AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
    cluster.allow_only(f"{name}.buffer", *may)

    def lacking() -> list[str]:
        findings = operator("doctor", "--cluster", name, "-o", "json").data
        return [one["mend"] for one in findings if (one["check"], one["level"]) == ("rights", "problem")]

    becomes(lacking, [f"give it Write on {name}.buffer"])
