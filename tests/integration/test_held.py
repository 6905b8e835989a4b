"""What waits for the end of a target's pause, as nodes and commands tell it, on real nodes."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from functools import partial
from urllib.request import urlopen

import pytest

from delayline import DelayProducer
from delayline.names import parse_source
from election.operators import PauseState
from node.http.answers import Message
from ops.cli.main import run
from ops.message import lookup
from store.checkpoint import Checkpoint
from store.holds import tag_of
from store.keys import RowKey
from store.lookup import Total
from tests.logging_state import restored_logging
from tests.stacks import Stack
from tests.support.cluster import TARGET, Cluster
from tests.support.operators import AUTHOR, say
from tests.support.requests import now_ms
from tests.support.waiting import becomes, eventually

HELD = "held"
IDS = ["held-0", "held-1", "held-2"]


class Paused:
    """A cluster of which one target is paused, and three messages to it have come up; `b` follows."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.target = cluster.target(HELD)
        for count, node in enumerate("ab", 1):
            cluster.start_here(node)
            cluster.wait_candidates(count)
        say(cluster, PauseState(paused_targets={self.target: AUTHOR}))
        self.keys = dict(self._sent())
        for node in "ab":
            becomes(partial(self.states, node), ["parked"] * 3)

    def _sent(self) -> Iterator[tuple[str, RowKey]]:
        with DelayProducer(self.cluster.bootstrap, cluster=self.cluster.name) as producer:
            # First, since it takes longest: what comes when it is due already is due when it comes.
            producer.schedule(self.target, b"", id="held-later", deliver_at=now_ms() + 3_600_000).result(10)
            begin_ms = now_ms() + 1_000
            for number, id_ in enumerate(IDS):
                due_ms = begin_ms + 10 * number
                source = producer.schedule(self.target, b"", id=id_, deliver_at=due_ms).result(10)
                _, partition, offset = parse_source(source)
                yield id_, (due_ms, partition, offset)
            producer.schedule(self.cluster.target(), b"").result(10)
        self.cluster.wait_delivered(1)

    def message(self, id_: str, node: str | None = None) -> Message:
        return lookup.show(self.cluster.connection, id_, node, "none").message

    def states(self, node: str) -> list[str]:
        return [self.message(id_, node).state for id_ in IDS]

    def first(self, id_: str, *, done: bool) -> Checkpoint:
        """The first of all committed checkpoints under which the row is done, or else passed."""
        key, tag = self.keys[id_], tag_of(self.target) if done else tag_of("another")
        return next(one for one in self.cluster.checkpoints() if one.frontier.done(key, tag))


@pytest.fixture(scope="module")
def paused(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Paused]:
    name = f"t-held-{uuid.uuid4().hex[:8]}"
    cluster = Cluster(stack, name, tmp_path_factory.mktemp("held"), targets=(TARGET, HELD))
    yield Paused(cluster)
    cluster.close()


def typed(
    paused: Paused, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> str:
    connection = paused.cluster.connection
    for name in ("bootstrap_servers", "zookeeper", "cluster"):
        monkeypatch.setenv(f"DELAYLINE_{name.upper()}", getattr(connection, name))
    capsys.readouterr()
    with restored_logging():
        run(list(arguments))
    return capsys.readouterr().out


@pytest.mark.parametrize("node", ["a", "b"])
def test_every_node_shows_for_what_a_held_message_waits_and_since_when(paused: Paused, node: str) -> None:
    message, passed = paused.message("held-1", node), paused.first("held-1", done=False)
    assert (message.state, message.code) == ("parked", "target-paused")
    assert (message.at_ms, message.epoch, message.due_ms) == (
        passed.at_ms,
        passed.epoch,
        paused.keys["held-1"][0],
    )


@pytest.mark.parametrize("node", ["a", "b"])
def test_every_node_lists_what_is_held_before_what_is_not_due(paused: Paused, node: str) -> None:
    listing = lookup.pending(paused.cluster.connection, {"target": paused.target}, None, 2, node)
    more = lookup.pending(paused.cluster.connection, {"target": paused.target}, listing.next, 9, node)
    found = [(one.id, one.state) for one in (*listing.messages, *more.messages)]
    assert found == [*((id_, "parked") for id_ in IDS), ("held-later", "pending")]
    assert listing.total == Total(4, at_least=False)


def test_the_status_counts_what_waits_for_each_target(
    paused: Paused, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = json.loads(typed(paused, monkeypatch, capsys, "cluster", "status", "-o", "json"))
    assert [lane["held"][paused.target]["rows"] for lane in said["lanes"]] == [3]


def test_the_checkpoint_is_shown_with_its_holds(
    paused: Paused, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"{paused.target}: 3 due since" in typed(paused, monkeypatch, capsys, "checkpoint", "show")


def test_what_waits_is_no_part_of_what_is_overdue(
    paused: Paused, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = json.loads(typed(paused, monkeypatch, capsys, "due", "-o", "json"))
    assert (said["overdue"], said["held"][paused.target]["rows"]) == (0, 3)


def test_a_forecast_says_it_in_words(
    paused: Paused, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "besides, 3 at most wait since their targets were paused" in typed(
        paused, monkeypatch, capsys, "due"
    )


def test_the_doctor_says_how_many_wait(
    paused: Paused, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = typed(paused, monkeypatch, capsys, "doctor", "-o", "json")
    assert "3 messages at most wait for it" in said


@pytest.mark.parametrize("node", ["a", "b"])
def test_the_metrics_count_what_waits(paused: Paused, node: str) -> None:
    port = paused.cluster.member(node)["http_port"]

    def counted() -> str | None:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        found = [line for line in lines if line.startswith("delayline_paused_messages{")]
        return found[0].rpartition(" ")[2] if found else None

    becomes(counted, "3.0")


def test_once_the_pause_is_over_it_is_delivered_by_the_transaction_that_let_it_go(paused: Paused) -> None:
    """The last of these tests: nothing is held behind it."""
    say(paused.cluster, PauseState())
    for node in "ab":
        becomes(partial(paused.states, node), ["delivered"] * 3)
    let_go = eventually(lambda: [paused.first(id_, done=True) for id_ in IDS], "it is let go")
    told = [paused.message(id_) for id_ in IDS]
    assert [(one.at_ms, one.epoch) for one in told] == [(one.at_ms, one.epoch) for one in let_go]
