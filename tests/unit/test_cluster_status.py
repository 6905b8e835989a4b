"""How `delayline cluster status` looks."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from delayline.settings import ClusterSettings
from election.operators import Author, PauseState
from ops.cli.cluster_status import show
from ops.cli.output import Format
from ops.clients.members import Health, Member
from ops.cluster.status import ClusterStatus, LaneStatus
from store.holds import Hold
from tests.support.checkpoints import sample_checkpoint

AUTHOR = Author("ann", "it is moved", 1_767_225_600_000)
MEMBER = {"node": "node-1", "lane": 0, "state": "leader", "at_ms": 1, "clock_offset_ms": 3, "version": "1"}


def member(said: dict[str, Any]) -> Member:
    """Whose clock is that of ZooKeeper's server."""
    return Member.decode(json.dumps(said).encode(), said["at_ms"])


def status(pauses: PauseState, read_ms: int = 60_000, **said: object) -> ClusterStatus:
    lane = LaneStatus(0, ("node-1",), None)
    members = {"node-1": member(MEMBER | said)}
    return ClusterStatus(ClusterSettings("delay"), (lane,), members, None, pauses, read_ms)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Rich takes what is captured for a terminal of 200 columns."""
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "200"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("pauses", "what"),
    [
        (PauseState(paused=AUTHOR), "the whole cluster"),
        (PauseState(paused_targets={"orders": AUTHOR}), "orders"),
    ],
)
def test_what_is_paused_stands_first_in_red(
    pauses: PauseState, what: str, terminal: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    show("table", status(pauses))

    assert f"\x1b[1;31m{what}" in capsys.readouterr().out.splitlines()[2]


def held(pauses: PauseState) -> ClusterStatus:
    """Of `orders` 1,234 messages wait."""
    checkpoint = sample_checkpoint(holds=(Hold("orders", (1, 0, 0), (AUTHOR.at_ms, 0, 0), None, 1_234),))
    return replace(status(pauses), lanes=(LaneStatus(0, ("node-1",), checkpoint),))


@pytest.mark.parametrize(
    ("output", "pauses"),
    [
        ("table", PauseState(paused_targets={"orders": AUTHOR})),
        ("table", PauseState()),
        ("json", PauseState()),
    ],
    ids=["paused", "resumed", "data"],
)
def test_what_waits_since_its_target_was_paused_stands_beside_it(
    output: Format, pauses: PauseState, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    show(output, held(pauses))

    assert capsys.readouterr().out == snapshot


def test_where_nothing_is_paused_nothing_is_said_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    show("table", status(PauseState()))

    assert "paused" not in capsys.readouterr().out


def test_sixty_columns_hold_every_line(
    terminal: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    terminal.setenv("COLUMNS", "60")

    show("table", status(PauseState(paused=AUTHOR)))

    assert re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out) == snapshot


def two_lanes(*candidates: str) -> ClusterStatus:
    """Each with these candidates."""
    lanes = tuple(LaneStatus(lane, candidates, None, lanes=2) for lane in range(2))
    return replace(status(PauseState()), lanes=lanes)


def test_who_is_preferred_is_shown_where_another_one_leads(
    capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    show("table", two_lanes("node-1", "node-2"))

    assert capsys.readouterr().out.partition("\n\n")[0] == snapshot


@pytest.mark.parametrize(
    "shown",
    [status(PauseState()), replace(two_lanes(), lanes=two_lanes("b", "a").lanes[1:])],
    ids=["one lane", "the preferred one leads"],
)
def test_else_it_is_not(shown: ClusterStatus, capsys: pytest.CaptureFixture[str]) -> None:
    show("table", shown)

    assert "preferred" not in capsys.readouterr().out


def test_for_programs_who_is_preferred_is_always_there(capsys: pytest.CaptureFixture[str]) -> None:
    shown = two_lanes("b", "a")
    show(
        "json", replace(shown, lanes=(*shown.lanes, LaneStatus(2, (), None, 2), LaneStatus(0, ("a",), None)))
    )

    lanes = json.loads(capsys.readouterr().out)["lanes"]
    assert [one["preferred"] for one in lanes] == ["a", "b", None, None]


def test_why_there_is_no_lag_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    show("table", replace(status(PauseState()), no_ends="Kafka at k:9092 refuses: who?"))

    assert "warning: no lag is known: Kafka at k:9092 refuses: who?\n" in capsys.readouterr().err


def test_the_clock_is_a_leader_s_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """What another node says of it is of when it was one."""
    once = member(MEMBER | {"node": "node-2", "state": "follower", "clock_offset_ms": 700})
    snapshot = replace(status(PauseState(), read_ms=1), members={"node-1": member(MEMBER), "node-2": once})

    assert snapshot.health("node-2") == Health.OK
    show("table", snapshot)
    leader, other = capsys.readouterr().out.splitlines()[-2:]
    assert ("+3 ms" in leader, " ms" in other) == (True, False)
    show("json", snapshot)
    members = json.loads(capsys.readouterr().out)["members"]
    assert [one["clock_offset_ms"] for one in members] == [3, None]


def test_what_waits_behind_an_open_transaction_stands_beside_what_is_delivered(
    capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    whose = {"transactional_id": "sink-1", "producer_id": 7}
    held = {"partition": 3, "end": 41, "records": 820, "since_ms": 0, **whose}
    show("table", status(PauseState(), at_ms=60_000, blocked=[held]))

    assert capsys.readouterr() == snapshot
