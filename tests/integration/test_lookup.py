"""Messages looked up by id and listed while they wait, on real nodes: from the leader and from a follower."""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from delayline import DelayProducer, every
from delayline.names import parse_source
from delayline.times import render_time
from node.config import NodeConfig
from node.core.ports import TARGET_UNAVAILABLE, TARGET_UNKNOWN
from node.http import messages
from node.http.answers import Message, OutcomeHistory, Shown
from node.http.server import MOST_CONNECTIONS
from node.kafka.target_snapshot import KafkaTargetSnapshot
from node.status import NodeState
from ops.cli.main import run
from ops.clients import nodes
from ops.message import lookup
from ops.message.lookup import MessageListing
from store.checkpoint import Checkpoint
from store.holds import tag_of
from store.lookup import Total
from tests.logging_state import restored_logging
from tests.stacks import Stack
from tests.support.cluster import TARGET, Cluster
from tests.support.fixtures import MakeCluster
from tests.support.requests import now_ms
from tests.support.waiting import becomes, eventually

HOUR_MS = 3_600_000
DARK = "dark"
LISTED = 300
HANGING = 70

STATES = {
    "early": "delivered",
    "waits": "pending",
    "there": "delivered",
    "gone": "cancelled",
    "missed": "delivered",
    "again": "pending",
    "moved": "pending",
    "stale": "expired",
    "lost": "dead-lettered",
    "off": "parked",
    "daily": "pending",
    "nobody": "unknown",
    "never": "unknown",
}


def history_of(shown: Shown) -> OutcomeHistory:
    """That of a message with an id."""
    assert shown.history is not None
    return shown.history


class Told:
    """A cluster whose second leader has decided on a message in each state; `a` follows, `b` leads."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.producer = DelayProducer(cluster.bootstrap, cluster=cluster.name, outcomes=True)
        first = cluster.start_here("a")
        cluster.wait_epoch(1)
        self.sources = {"early": self.schedule("early")}
        cluster.wait_delivered(1)
        cluster.start_here("b")
        cluster.wait_candidates(2)
        cluster.stop_here(first)
        cluster.wait_leadership(2)
        cluster.start_here("a")
        assert cluster.wait_candidates(2) == ["b", "a"]
        self.due_ms = now_ms() + HOUR_MS
        self._request()

    def schedule(self, id_: str, target: str = TARGET, **options: Any) -> str:
        receipt = self.producer.schedule(self.cluster.target(target), id_.encode(), id=id_, **options)
        return receipt.result()

    def _request(self) -> None:
        self.sources |= {
            id_: self.schedule(id_, deliver_at=self.due_ms) for id_ in ("waits", "gone", "again", "moved")
        }
        self.sources |= {id_: self.schedule(id_) for id_ in ("there", "missed")}
        self.schedule("stale", expire_at=1)
        self.schedule("lost", "nowhere")
        self.schedule("off", DARK)
        self.schedule("daily", deliver_at=now_ms() + 500, repeat=every("1d"))
        self.cluster.wait_delivered(4)
        self.schedule("again", deliver_at=self.due_ms + HOUR_MS)
        answers = [self.producer.cancel(id_) for id_ in ("gone", "missed", "never")]
        answers.append(self.producer.reschedule("moved", deliver_at=self.due_ms + 2 * HOUR_MS))
        said = [answer.outcome(30).outcome for answer in answers]
        assert said == ["cancelled", "too-late", "unknown", "rescheduled"]
        for node in "ab":
            becomes(partial(self.states, node), STATES)
            becomes(partial(self._changes, node), (self.due_ms + HOUR_MS, self.due_ms + 2 * HOUR_MS, 2))
        eventually(lambda: history_of(self.show("again")).events, "what was replaced is answered")

    def _changes(self, node: str) -> tuple[int | None, int | None, int | None]:
        """What a state does not tell."""
        again, moved, daily = (self.message(id_, node) for id_ in ("again", "moved", "daily"))
        return again.due_ms, moved.due_ms, daily.occurrence

    def states(self, node: str) -> dict[str, str]:
        return {id_: self.message(id_, node).state for id_ in STATES}

    def show(self, id_: str, node: str | None = None) -> Shown:
        return lookup.show(self.cluster.connection, id_, node, "recent")

    def message(self, id_: str, node: str | None = None) -> Message:
        return self.show(id_, node).message

    def pending(
        self, after: str | None = None, limit: int = 1_000, node: str | None = None, **query: Any
    ) -> MessageListing:
        return lookup.pending(self.cluster.connection, query, after, limit, node)

    def ids(self, **options: Any) -> list[str | None]:
        return [message.id for message in self.pending(**options).messages]

    def count(self, id_prefix: str, node: str) -> int:
        """How many messages whose ids begin so the node has."""
        total = self.pending(limit=1, node=node, id_prefix=id_prefix).total
        return -1 if total is None else total.count

    def first_covering(self, source: str, due_ms: int) -> Checkpoint:
        """The first of all committed checkpoints under which the row is done."""
        _, partition, offset = parse_source(source)
        row, tag = (due_ms, partition, offset), tag_of(self.cluster.target())
        found = eventually(
            lambda: [one for one in self.cluster.checkpoints() if one.frontier.done(row, tag)], "it is done"
        )
        return found[0]

    def close(self) -> None:
        self.producer.close(10)
        self.cluster.close()


@pytest.fixture(scope="module")
def told(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    name = f"t-lookup-{uuid.uuid4().hex[:8]}"
    with ExitStack() as ends:
        patches = ends.enter_context(pytest.MonkeyPatch.context())
        problem = KafkaTargetSnapshot.problem

        def dark(self: KafkaTargetSnapshot, topic: str, *more: Any) -> tuple[str, str] | None:
            found = (TARGET_UNAVAILABLE, f"{topic}/0 has no leader") if topic.endswith(f".{DARK}") else None
            return found or problem(self, topic, *more)

        patches.setattr(KafkaTargetSnapshot, "problem", dark)
        cluster = Cluster(stack, name, tmp_path_factory.mktemp("lookup"), targets=(TARGET, DARK))
        ends.callback(cluster.close)
        told = Told(cluster)
        ends.callback(told.producer.close, 10)
        yield told


@pytest.mark.parametrize("node", ["a", "b"])
def test_every_node_shows_what_became_of_each_message(told: Told, node: str) -> None:
    becomes(partial(told.states, node), STATES)


@pytest.mark.parametrize("node", ["a", "b"])
@pytest.mark.parametrize("id_", ["early", "there", "missed"])
def test_a_delivered_message_has_the_time_and_epoch_of_its_transaction(
    told: Told, node: str, id_: str
) -> None:
    message = told.message(id_, node)
    covering = told.first_covering(told.sources[id_], message.due_ms or 0)
    assert (message.epoch, message.at_ms) == (covering.epoch, covering.at_ms)
    assert (message.root, message.target_topic) == (told.sources[id_], told.cluster.target())


def test_a_message_that_waits_has_its_due_time_its_target_attempt_and_occurrence(told: Told) -> None:
    waits, moved, daily = (told.message(id_) for id_ in ("waits", "moved", "daily"))
    assert (waits.due_ms, waits.attempt, waits.target_topic) == (told.due_ms, 1, told.cluster.target())
    assert (moved.due_ms, moved.root) == (told.due_ms + 2 * HOUR_MS, told.sources["moved"])
    assert daily.occurrence == 2
    eventually(lambda: (told.message("off").attempt or 0) > 1, "it is parked")


def test_a_message_that_was_not_delivered_has_the_reason(told: Told) -> None:
    stale, lost, gone = (told.message(id_) for id_ in ("stale", "lost", "gone"))
    assert (stale.code, lost.code) == ("expired", "target-missing")
    assert lost.epoch in {one.epoch for one in told.cluster.checkpoints() if one.node == "b"}
    assert (gone.source, gone.due_ms) == (told.sources["gone"], told.due_ms)


@pytest.mark.parametrize(
    ("id_", "outcomes"),
    [
        ("again", ["replaced"]),
        ("moved", ["rescheduled"]),
        ("missed", ["too-late"]),
        ("lost", ["dead-lettered"]),
        ("never", ["unknown"]),
        ("waits", []),
    ],
)
def test_a_message_s_history_has_its_outcomes(told: Told, id_: str, outcomes: list[str]) -> None:
    events = history_of(told.show(id_)).events
    # What the brokers have not told of yet is parked first.
    assert [event.outcome for event in events if event.code != TARGET_UNKNOWN] == outcomes


def test_a_history_that_is_too_long_is_left_out_unless_it_is_asked_for(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "MOST_HISTORY", 3)
    found = history_of(told.show("again"))
    assert found.left_out > 3
    assert found.events == []
    whole = history_of(lookup.show(told.cluster.connection, "again", None, "all"))
    assert [event.outcome for event in whole.events] == ["replaced"]


def test_every_answer_says_how_far_the_node_was(told: Told) -> None:
    for answering in (told.show("waits", "a").node, told.pending(node="a").nodes[0]):
        assert (answering.node, answering.state, answering.lane) == ("a", NodeState.FOLLOWER, 0)
        assert answering.applied.keys() == {0, 1}
        assert answering.delivered_up_to_ms > told.due_ms - 2 * HOUR_MS
    becomes(lambda: told.show("waits", "a").node.lag, 0)


def test_the_leader_is_asked_and_another_one_if_it_does_not_answer(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert told.show("waits").node.node == "b"
    ask = nodes.NodeAddress.ask
    monkeypatch.setattr(
        nodes.NodeAddress,
        "ask",
        lambda self, *question: "b is away" if self.node == "b" else ask(self, *question),
    )
    assert told.show("waits").node.node == "a"


def test_what_is_pending_is_chosen_by_time_target_and_id(told: Told) -> None:
    assert told.ids(id_prefix="wa") == ["waits"]
    assert told.ids(from_ms=told.due_ms, to_ms=told.due_ms + 1) == ["waits"]
    assert told.ids(from_ms=told.due_ms, to_ms=told.due_ms + 3 * HOUR_MS) == ["waits", "again", "moved"]
    eventually(lambda: told.ids(target=told.cluster.target(DARK)) == ["off"], "it is parked, not in flight")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["show", "waits"], 0, "state          pending"),
        (["show", "nobody"], 3, "state  unknown"),
        (["show", "again"], 0, "replaced"),
        (["list", "--id-prefix", "wait"], 0, "waits"),
        (["show", "waits", "--node", "c"], 3, "no node c is running: there are a, b"),
        (["list", "--from", "soon"], 2, "'soon'"),
        (["list", "--after", "x"], 2, "is no cursor"),
    ],
)
def test_the_commands_say_it_and_end_with_a_code(
    told: Told,
    arguments: list[str],
    code: int,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ended, out, err = typed(told, arguments, monkeypatch, capsys)
    assert (ended, says in out + err) == (code, True), out + err
    assert ("applied" in err) == (code == 0 or says.startswith("state"))


def typed(
    told: Told,
    arguments: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> tuple[int, str, str]:
    connection = told.cluster.connection
    for name in ("bootstrap_servers", "zookeeper", "cluster"):
        monkeypatch.setenv(f"DELAYLINE_{name.upper()}", getattr(connection, name))
    capsys.readouterr()
    with restored_logging():
        code = run(["message", *arguments])
    return code, *capsys.readouterr()


def test_lists_are_data_as_well_and_sixty_columns_cut_nothing(
    told: Told, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["list", "--id-prefix", "wait", "--to", render_time(told.due_ms + 1)]
    _, out, _ = typed(told, [*asked, "-o", "json"], monkeypatch, capsys)
    data = json.loads(out)
    assert [message["source"] for message in data["messages"]] == [told.sources["waits"]]
    assert (data["next"], data["total"]) == (None, {"count": 1, "at_least": False})
    for name, value in (("FORCE_COLOR", "1"), ("NO_COLOR", "1"), ("TERM", "xterm"), ("COLUMNS", "60")):
        monkeypatch.setenv(name, value)
    _, out, _ = typed(told, asked, monkeypatch, capsys)
    assert f"source      {told.sources['waits']}" in out.splitlines()


def test_pages_meet_each_pending_message_once_while_others_come_and_go(told: Told) -> None:
    begin_ms = now_ms() + 10 * HOUR_MS
    wanted = [f"page-{number:03}" for number in range(LISTED)]
    sent = [
        told.producer.schedule(told.cluster.target(), b"", id=id_, deliver_at=begin_ms + number % 50)
        for number, id_ in enumerate(wanted)
    ]
    for receipt in sent:
        receipt.result(30)
    for node in "ab":
        becomes(partial(told.count, "page-", node), LISTED)
    before, delivered = len(told.cluster.delivered), 0
    found: list[str | None] = []
    after: str | None = None
    while True:
        listing = told.pending(after, 17, node="ab"[len(found) % 2], from_ms=now_ms())
        found += [message.id for message in listing.messages if message.id in wanted]
        after = listing.next
        if after is None:
            break
        told.schedule(f"passing-{delivered}")
        told.schedule(f"new-{delivered}", deliver_at=begin_ms + delivered)
        delivered += 1
    assert sorted(map(str, found)) == wanted
    told.cluster.wait_delivered(before + delivered)


def test_lanes_are_listed_together_and_each_id_is_found_in_its_own(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(lanes=2)
    for lane, node_id in enumerate("ab"):
        cluster.start_here(node_id, lane=lane)
        cluster.wait_candidates(1, lane)
    for node_id in "ab":
        eventually(partial(_has_address, cluster, node_id), f"{node_id} has an address")
    begin_ms = now_ms() + HOUR_MS
    ids = [f"order-{number}" for number in range(8)]
    with DelayProducer(cluster.bootstrap, cluster=cluster.name) as producer:
        for number, id_ in enumerate(ids):
            producer.schedule(cluster.target(), b"", id=id_, deliver_at=begin_ms + number)
    becomes(lambda: lookup.pending(cluster.connection, {}, None, 9, None).total, Total(8, at_least=False))
    first = lookup.pending(cluster.connection, {}, None, 5, None)
    second = lookup.pending(cluster.connection, {}, first.next, 5, None)
    assert [message.id for message in (*first.messages, *second.messages)] == ids
    answers = [lookup.show(cluster.connection, id_, None, "none") for id_ in ids]
    assert {answer.message.state for answer in answers} == {"pending"}
    assert {answer.node.node for answer in answers} == {"a", "b"}


def _has_address(cluster: Cluster, node_id: str) -> bool:
    return bool(cluster.member(node_id).get("http_port"))


def test_clients_that_hang_hold_up_neither_other_answers_nor_delivery(told: Told) -> None:
    address = eventually(lambda: told.cluster.member("b").get("http_port"), "b has an address")
    with ExitStack() as ends:
        hanging: list[socket.socket] = []
        for _ in range(HANGING):
            hanging.append(ends.enter_context(socket.create_connection(("127.0.0.1", address))))
            hanging[-1].sendall(b"GET /messages HTTP/1.1\r\nHo")
        assert told.show("waits", "b").message.state == "pending"
        told.schedule("passes-by")
        told.cluster.tail.wait(
            lambda: any(got.value == b"passes-by" for got in told.cluster.delivered), "it passes by"
        )
        # Who asked is the one more that there is room for.
        assert all(_is_open(client) for client in hanging[1 - MOST_CONNECTIONS :])


def _is_open(client: socket.socket) -> bool:
    """Whether the other side has neither answered nor closed it."""
    client.setblocking(False)
    try:
        client.recv(1)
    except BlockingIOError:
        return True
    except ConnectionResetError:
        pass
    return False


def test_an_http_port_that_is_taken_is_told_in_one_line(told: Told) -> None:
    from node.http.errors import HttpPortTaken
    from node.node import Node

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config: NodeConfig = told.cluster.node_config("c", http_port=port)
        with pytest.raises(
            HttpPortTaken, match=f"cannot listen on HTTP port {port} at 127.0.0.1: Address already"
        ):
            Node(config)
