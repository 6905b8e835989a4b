"""`delayline checkpoint` as an operator types it, on a cluster that delivers: data, words, exit codes."""

from __future__ import annotations

import json
import shlex
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec
from syrupy.assertion import SnapshotAssertion

from delayline.times import render_time
from election.candidates import Candidate
from election.operators import Author, HistoryEntry, PauseState
from ops.checkpoint import requests
from ops.checkpoint.show import last_request
from ops.clients.zookeeper import registry
from ops.errors import ConflictError
from store.operations import SkipRequest
from tests.logging_state import restored_logging
from tests.stacks import Stack
from tests.support.cluster import Cluster
from tests.support.commands import Done, Operator, tell_cluster
from tests.support.fixtures import MakeCluster
from tests.support.masked import masked
from tests.support.requests import Sender, now_ms
from tests.support.waiting import PATIENCE_S, becomes, eventually

AUTHOR = Author("somebody", "to see what happens", 1)
REASON = ("--reason", "it was lost")
COUNT = 40


class Checkpoints(Operator):
    """Types commands against one cluster's checkpoints."""

    def __init__(self, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__(capsys, "checkpoint")
        self._cluster = cluster

    def __call__(self, *arguments: str) -> Done:
        with restored_logging():
            return super().__call__(*arguments)

    def execute(self, *arguments: str) -> Done:
        return self(*arguments, "--execute", *REASON, "--by", "anna", "--confirm", self._cluster.name)


def typed_in(
    cluster: Cluster, patches: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Checkpoints:
    tell_cluster(cluster.connection, patches)
    return Checkpoints(cluster, capsys)


class Delivered:
    """A cluster of one node that has delivered a message, and then `COUNT`, every second one to each of two
    targets.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.node = cluster.start_here("a")
        with Sender(cluster) as sender:
            sender.schedule(target="one", value=b"before all")
            sender.flush()
            cluster.wait_delivered(1)  # the client is connected, and the node at work
            self.begin_ms = now_ms() + 1_500
            for number in range(COUNT):
                target = ("one", "two")[number % 2]
                sender.schedule(at_ms=self.begin_ms + number, target=target, value=b"message %d" % number)
            sender.flush()
            assert now_ms() < self.begin_ms, "each is due when it was asked for"
            cluster.wait_delivered(1 + COUNT)

    def between(self, first: int, last: int) -> tuple[str, ...]:
        """Options for the range of the messages from one to another."""
        return (
            "--from",
            render_time(self.begin_ms + first),
            "--to",
            str(self.begin_ms + last + 1),
        )

    def pause(self, pauses: PauseState) -> None:
        """Pauses and resumes; returns once the node knows."""
        with registry(self.cluster.connection) as znodes:
            znodes.change_pauses(lambda _: pauses, HistoryEntry(what="pause", author=AUTHOR))
        becomes(lambda: self.cluster.member("a").get("paused"), pauses.paused is not None)


@pytest.fixture(scope="module")
def delivered(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Delivered]:
    name = f"t-cli-checkpoint-{uuid.uuid4().hex[:8]}"
    with Cluster(stack, name, tmp_path_factory.mktemp("cli"), targets=("one", "two")) as cluster:
        yield Delivered(cluster)


@pytest.fixture
def operator(
    delivered: Delivered, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Checkpoints:
    return typed_in(delivered.cluster, monkeypatch, capsys)


# -- what is refused


@pytest.mark.parametrize(
    "typed",
    [
        "replay --to 5",
        "replay --from soon --to 5",
        "replay --from 5 --to 5",
        "replay --from 1 --to 5",
        "replay --from 2999-01-01T00:00:00Z --to 3000-01-01T00:00:00Z",
        "replay --from 1 --to 5 --lane 7",
        "replay --from 1 --to 5 --cluster nobody",
        "replay --from 1 --to 5 --execute",
        "replay --from 1 --to 5 --execute --reason lost",
        "skip",
        "skip --to -5m",
        "skip --to 2999-01-01T00:00:00Z",
        "skip --to 5 --execute --reason lost --confirm other",
        "skip --to 5 --execute --reason ' ' --confirm other",
        "skip --to 5 --zookeeper 127.0.0.1:1",
        "cancel",
        "cancel --reason lost",
        "cancel --reason lost --confirm other",
        "history --limit 0",
        "history --lane 7",
        "export --lane 7",
        "import nowhere.json",
    ],
)
def test_what_cannot_be_done_is_told_in_one_line(
    operator: Checkpoints, typed: str, snapshot: SnapshotAssertion
) -> None:
    assert masked(operator(*shlex.split(typed))) == snapshot


def test_with_nothing_to_cancel_cancel_says_so(delivered: Delivered, operator: Checkpoints) -> None:
    done = operator("cancel", *REASON, "--confirm", delivered.cluster.name)
    assert (done.code, "nothing to cancel" in done.err) == (3, True)


def test_without_a_node_there_is_nobody_who_can_count_and_nothing_has_changed(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    operator = typed_in(make_cluster(), monkeypatch, capsys)
    for asked in (["replay", "--from", "1", "--to", "5"], ["skip", "--to", "5"]):
        done = operator(*asked)
        assert (done.code, "no node of lane 0 is running" in done.err) == (6, True)
    assert operator("history").err == "nothing has changed yet: no node has been leader\n"
    assert operator("export").code == 3


# -- replay


def test_a_replay_says_first_how_many_messages_of_which_targets_it_would_carry(
    delivered: Delivered, operator: Checkpoints
) -> None:
    there = len(delivered.cluster.delivered)
    done = operator("replay", *delivered.between(10, 19))
    assert done.code == 0
    assert [line.split()[1:] for line in done.out.splitlines()[-2:]] == [
        [delivered.cluster.target("one"), "5"],
        [delivered.cluster.target("two"), "5"],
    ]
    assert "10 messages would be delivered again; nothing was done, --execute does it" in done.err
    assert "what was skipped in that time is delivered, too" in done.err
    only = operator("replay", *delivered.between(10, 19), "--target", "nowhere", "-o", "json")
    assert (only.data["messages"], only.data["executed"]) == (0, False)
    delivered.cluster.tail.catch_up()
    assert len(delivered.cluster.delivered) == there


def test_a_replay_delivers_what_it_said_and_the_history_has_who_and_why(
    delivered: Delivered, operator: Checkpoints
) -> None:
    cluster = delivered.cluster
    there = len(cluster.delivered)
    done = operator.execute("replay", *delivered.between(5, 24), "--target", cluster.target("two"))
    assert (done.code, "is done" in done.err) == (0, True), done.err
    again = cluster.wait_delivered(there + 10)[there:]
    assert sorted(got.value or b"" for got in again) == sorted(b"message %d" % n for n in range(5, 25, 2))
    assert {got.number("delay-attempt") for got in again} == {2}
    last = operator("history", "-o", "json").data[-1]
    assert (last["who"], last["why"], last["lane"]) == ("anna", "it was lost", 0)
    assert last["what"].startswith(f"replay from {render_time(delivered.begin_ms + 5)} to ")


# -- pauses, skips, cancels


def test_what_was_skipped_during_a_pause_never_arrives_but_a_replay_delivers_it(
    delivered: Delivered, operator: Checkpoints
) -> None:
    cluster = delivered.cluster
    delivered.pause(PauseState(paused=AUTHOR))
    there, begin_ms = len(cluster.delivered), now_ms()
    with Sender(cluster) as sender:
        for _ in range(7):
            sender.schedule(target="one")
        skipped = set(sender.flush().schedules)
    to_ms = eventually(lambda: now_ms() if now_ms() > begin_ms + 500 else None, "they are due") or 0
    eventually(
        lambda: operator("skip", "--to", str(to_ms), "-o", "json").data["messages"] == 7, "it counts 7"
    )
    done = operator.execute("skip", "--to", str(to_ms), "-o", "json")
    assert (done.code, "it is done once the cluster is resumed" in done.err) == (0, True), done.err
    assert (done.data["executed"], done.data["waits"]) == (False, True)
    assert "a replay over the time that was skipped delivers what was skipped" in done.err

    shown = operator("show")
    assert f"skip to {render_time(to_ms)}" in shown.out
    assert "the whole cluster is paused since" in shown.out
    assert "somebody: to see what happens" in shown.err
    refused = operator.execute("replay", *delivered.between(0, 1), "-o", "json")  # the skip waits
    assert (refused.code, refused.out) == (5, "")
    assert "take it back with 'delayline checkpoint cancel --lane 0'" in refused.err

    delivered.pause(PauseState())
    cluster.tail.wait(lambda: len(cluster.outcomes) >= 7, "all are answered")
    assert {(one["request"], one["outcome"]) for one in cluster.outcomes} == {(s, "skipped") for s in skipped}
    assert len(cluster.delivered) == there
    wait_taken_up(cluster)
    done = operator.execute("replay", "--from", str(begin_ms), "--to", str(to_ms), "-o", "json")
    assert (done.code, done.data["executed"], done.data["waits"]) == (0, True, False)
    cluster.wait_delivered(there + 7)
    assert {got.text("delay-source") for got in cluster.delivered_to("one")} >= skipped


def wait_taken_up(cluster: Cluster) -> None:
    """Until the mirrored checkpoint has the last request: a command judges by it, and it comes after the
    commit.
    """
    with registry(cluster.connection) as znodes:
        last = last_request(znodes, 0)
    assert last is not None, "there was one"
    becomes(lambda: cluster.mirrored().operation.number, last.number)


def test_what_waits_for_the_leader_can_be_taken_back(delivered: Delivered, operator: Checkpoints) -> None:
    cluster = delivered.cluster
    there = len(cluster.delivered)
    delivered.pause(PauseState(paused=AUTHOR))
    assert operator.execute("replay", *delivered.between(0, 9)).code == 0
    done = operator("cancel", *REASON, "--confirm", cluster.name, "-o", "json")
    assert (done.code, "the cluster is paused" in done.err) == (0, True)
    (cancelled,) = done.data["lanes"]
    assert (cancelled["lane"], cancelled["cancelled"][:12], done.data["waits"]) == (0, "replay from ", True)
    delivered.pause(PauseState())
    eventually(lambda: "there is no replay" in operator("show").out, "the leader has taken the cancel up")
    cluster.tail.catch_up()
    assert len(cluster.delivered) == there
    (cancelled,) = (one for one in operator("history", "-o", "json").data if one["what"] == "cancel")
    assert cancelled["from"].startswith("replay from ")


# -- several lanes


def test_no_lane_is_asked_while_a_request_waits_in_one_of_them(make_cluster: MakeCluster) -> None:
    cluster = two_leaders(make_cluster)
    with registry(cluster.connection) as znodes:
        znodes.ask(1, SKIP, HistoryEntry(what="skip", author=AUTHOR, lane=1))
        with pytest.raises(ConflictError, match=r"lane 1 \(skip to .*cancel --lane 1'; nothing was"):
            requests.carry_out(cluster.connection, SKIP, None, AUTHOR, print, 0)
        assert znodes.asked(0) is None


def test_who_fails_in_the_middle_is_told_which_lanes_were_asked(make_cluster: MakeCluster) -> None:
    cluster = two_leaders(make_cluster)
    with registry(cluster.connection) as znodes:

        def somebody_else(_: str) -> None:
            znodes.ask(1, SKIP, HistoryEntry(what="skip", author=AUTHOR, lane=1))

        with pytest.raises(ConflictError, match=r"lane 1; .* already in lane 0 \('.*cancel --lane 0'"):
            requests.carry_out(cluster.connection, SKIP, None, AUTHOR, somebody_else, 0)


SKIP = SkipRequest(0, 5)


def two_leaders(make_cluster: MakeCluster) -> Cluster:
    """A cluster of two lanes, each with a leader that does nothing."""
    cluster = make_cluster(lanes=2)
    for lane in range(2):
        name = f"{uuid.uuid4().hex}-0000000000"
        path = f"{cluster.znodes.candidates(lane)}/{name}"
        cluster.kazoo.create(path, Candidate("a", "127.0.0.1", 1, 1).encode(), makepath=True)
    return cluster


# -- export and import


def test_an_import_brings_the_lane_back_where_the_export_was(
    make_cluster: MakeCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = make_cluster()
    operator = typed_in(cluster, monkeypatch, capsys)
    for node_id in ("a", "b"):
        node = cluster.start_here(node_id)
        with Sender(cluster) as sender:
            sender.schedule()
            sender.flush()
        cluster.wait_delivered(len(cluster.delivered) + 1)
        if node_id == "a":
            early = operator("export").out
            cluster.stop_here(node)
            cluster.tail.catch_up()
    file = tmp_path / "checkpoints.json"
    check_leaders(operator, cluster, "a", "b")
    file.write_text(early)
    assert refused(operator, file) == "lane 0 has a leader or candidates (b): stop its nodes first"
    cluster.stop_here(node)
    wait_committed(cluster)
    assert operator("export", "--to", str(file)).code == 0
    assert "is not empty: it decides" in refused(operator, file)

    cluster.delete_topic(cluster.names.checkpoint)
    cluster.create_again()
    (tmp_path / "early.json").write_text(early)
    assert "the znode has a later checkpoint" in refused(operator, tmp_path / "early.json")
    wrong = tmp_path / "wrong.json"
    wrong.write_text(file.read_text()[1:])
    assert "wrong.json is no export of checkpoints" in refused(operator, wrong, 2)
    wrong.write_text(json.dumps(json.loads(file.read_text()) | {"cluster": "other"}))
    assert "the export is of cluster other, not of" in refused(operator, wrong)
    exported = json.loads(file.read_text())
    exported["lanes"][0]["last"]["applied"]["0"] = 4_711
    wrong.write_text(json.dumps(exported))
    assert "it is of another buffer topic" in refused(operator, wrong)
    cluster.kazoo.delete(cluster.znodes.checkpoint(0))

    dry = operator("import", str(file))
    assert (dry.code, "nothing was written" in dry.err) == (0, True)
    assert cluster.checkpoints() == []
    assert operator("import", str(file), "--lane", "1").code == 3
    done = operator.execute("import", str(file), "--lane", "0", "-o", "json")
    assert (done.code, done.data["executed"]) == (0, True), done.err
    firsts = [(one["epoch"], True) for one in exported["lanes"][0]["leaderships"]]
    last = exported["lanes"][0]["last"]["epoch"]
    becomes(lambda: [(one.epoch, one.first) for one in cluster.checkpoints()], [*firsts, (last, False)])

    cluster.start_here("c")
    assert cluster.wait_epoch(last + 1).node == "c"
    with Sender(cluster) as sender:
        sender.schedule(value=b"the last")
        sender.flush()
    cluster.tail.wait(lambda: cluster.delivered[-1].value == b"the last", "it delivers on")
    assert len(cluster.delivered) == 3
    assert [one["what"] for one in operator("history", "-o", "json").data].count("import") == 1


def check_leaders(operator: Checkpoints, cluster: Cluster, *nodes: str) -> None:
    eventually(lambda: cluster.mirrored().node == nodes[-1], f"{nodes[-1]} is leader")
    eventually(lambda: shown_leaders(operator) == known_leaders(cluster), "the history has all leaders")
    assert [one.node for one in cluster.leaderships()] == list(nodes)


def shown_leaders(operator: Checkpoints) -> list[tuple[str | None, str]]:
    """From whom to whom, as the history says."""
    return [(one["from"], one["to"]) for one in operator("history", "-o", "json").data]


def known_leaders(cluster: Cluster) -> list[tuple[str | None, str]]:
    """The same, as the checkpoints say."""
    named = [f"{one.node}, epoch {one.epoch}" for one in cluster.checkpoints() if one.first]
    return list(zip([None, *named], named, strict=False))


def wait_committed(cluster: Cluster) -> None:
    """Until the markers of lane 0's last checkpoint are written: after the commit has returned."""
    at = {TopicPartition(cluster.names.checkpoint, 0): OffsetSpec.latest()}

    def end(level: IsolationLevel) -> int:
        (found,) = cluster.admin.list_offsets(at, isolation_level=level).values()
        offset: int = found.result(PATIENCE_S).offset
        return offset

    levels = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
    eventually(lambda: len(set(map(end, levels))) == 1, "no transaction is open")


def refused(operator: Checkpoints, file: Path, code: int = 5) -> str:
    done = operator("import", str(file))
    assert (done.code, done.out) == (code, ""), done
    return done.err.removeprefix("error: ").rstrip("\n")
