"""The demo's verdict and what it is made of."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from rich.console import Console

from node.core.delivery import HEARTBEAT_MS
from node.status import NodeState, NodeStatus
from ops.demo.episode import Episode, longest_undisturbed_pause_ms, measured
from ops.demo.lookout import ClusterView
from ops.demo.measure import ReceivedLateness, ReceivedMessage, Stretch
from ops.demo.proof import ProofRound
from ops.demo.verdict import MEMORY_LIMIT_MB, Verdict
from ops.demo.view import LiveStatus, LiveView
from pipeline.audit import AuditReport
from pipeline.audit.classes import CLASSES, ENDS
from pipeline.audit.report import by_field

NOW_MS = 1_700_000_000_000
EPISODE = Episode("kill", NOW_MS, NOW_MS + 400, NOW_MS + 3_000, "n1", "n2", 2)
CLEAN = AuditReport(requests=10, classes={"delivered": 9, "cancelled": 1}, ledger=10)


def received(*at_ms: int) -> list[ReceivedMessage]:
    return [ReceivedMessage(NOW_MS + ms, NOW_MS + ms - 5, "after") for ms in at_ms]


PROVEN = ProofRound(1, NOW_MS, NOW_MS, 9.0, CLEAN.classes, CLEAN.occurrences, violations=0)


def verdict(audited: AuditReport = CLEAN, peak_mb: int = 100, proven: ProofRound = PROVEN) -> Verdict:
    failover = measured(EPISODE, received(-500, 80, 500, 3_050))
    return Verdict(
        audited,
        (proven,),
        (failover,),
        ReceivedLateness(3, 5, 9, 9),
        20.0,
        24.0,
        {"n1": peak_mb},
        90.0,
        {"nodes": 3},
    )


def status(node: str, state: NodeState, **changes: Any) -> NodeStatus:
    said = NodeStatus(node, 0, state, None, None, 2, {}, NOW_MS - 20, 5, 0, ord(node[1]), NOW_MS)
    return msgspec.structs.replace(said, **changes)


def view(*members: NodeStatus, leader: str = "n1") -> ClusterView:
    return ClusterView(leader, {member.node: member for member in members})


LEADER, FOLLOWER = status("n1", NodeState.LEADER), status("n2", NodeState.FOLLOWER)
PIDS = {"n1": ord("1"), "n2": ord("2")}


def test_an_episode_is_measured_by_the_receipts_round_it() -> None:
    failover = measured(EPISODE, received(-500, 80, 500, 3_100))
    assert (failover.gap_ms, failover.due_within_1s, failover.healthy_after_ms) == (580, 3, 3_000)


def test_the_pause_until_all_are_back_counts_what_came_after_the_fault() -> None:
    assert measured(EPISODE, received(-500, 80, 500, 3_100)).pause_until_healthy_ms == 2_600


def test_the_longest_undisturbed_pause_is_that_of_the_worst_stretch() -> None:
    stretches = [Stretch(NOW_MS, NOW_MS + 100), Stretch(NOW_MS + 500, NOW_MS + 600)]
    assert longest_undisturbed_pause_ms(stretches, received(50, 580)) == 80


def test_a_clean_audit_and_bounded_memory_hold() -> None:
    assert verdict().holds


def test_a_violation_that_stands_at_the_end_of_the_watch_does_not_hold() -> None:
    assert not verdict(proven=replace(PROVEN, violations=1)).holds


def test_what_was_pending_for_the_watch_may_have_ended_since() -> None:
    before = {"delivered": 7, "cancelled": 1, "pending": 2}
    assert verdict(proven=replace(PROVEN, classes=before)).holds


@pytest.mark.parametrize(
    ("changed", "differences"),
    [
        ({"classes": {"delivered": 10}}, 1),
        ({"classes": {"delivered": 9}}, 1),
        ({"occurrences": {"delivered": 1}}, 1),
    ],
)
def test_a_watch_that_comes_to_something_else_does_not_hold(
    changed: dict[str, Any], differences: int
) -> None:
    found = verdict(proven=replace(PROVEN, **changed))
    assert (found.differences, found.holds) == (differences, False)


@pytest.mark.parametrize("name", ["lost", "early", "overdue", "epochs_overlapping", "false_outcomes"])
def test_one_violation_is_enough(name: str) -> None:
    found: dict[str, Any] = {name: 1}
    assert not verdict(replace(CLEAN, **found)).holds


def test_a_node_that_took_too_much_memory_breaks_a_promise() -> None:
    assert not verdict(peak_mb=MEMORY_LIMIT_MB + 1).holds


def test_the_json_has_counts_classes_failovers_lateness_settings_and_versions() -> None:
    told = verdict().as_dict()
    assert told["lost"] == told["overdue"] == 0
    assert told["classes"] == {"delivered": 9, "cancelled": 1}
    assert (told["failovers"][0]["kind"], told["failovers"][0]["gap_ms"]) == ("kill", 580)
    assert told["lateness_ms"]["p99"] == 9
    assert told["settings"] == {"nodes": 3}
    assert {"kafka", "zookeeper", "pyspark"} <= set(told["versions"])


def test_every_kind_of_violation_has_a_row() -> None:
    assert by_field({}).keys() <= verdict().as_dict().keys()


def test_what_is_said_fits_eighty_columns() -> None:
    out = io.StringIO()
    counts = dict.fromkeys([*CLASSES], 1_234_567)
    audited = replace(CLEAN, classes=counts, occurrences=dict.fromkeys(ENDS, 1_234_567))
    verdict(audited).show(Console(file=out, width=80))
    assert max(map(len, out.getvalue().splitlines())) <= 80
    said = " ".join(out.getvalue().split())
    assert all(f"1,234,567 {name}" in said for name in (*CLASSES, *ENDS))
    assert "580 ms 3 3.0 s 2550 ms" in said


def test_a_broken_promise_is_said_loudly() -> None:
    out = io.StringIO()
    verdict(replace(CLEAN, lost=1)).show(Console(file=out))
    assert "A PROMISE WAS BROKEN." in out.getvalue()


def test_a_cluster_with_a_leader_and_followers_of_its_epoch_is_healthy() -> None:
    assert view(LEADER, FOLLOWER).healthy(PIDS, NOW_MS - 10)


def test_an_idle_leader_that_speaks_right_before_its_heartbeat_is_healthy() -> None:
    idle = msgspec.structs.replace(LEADER, delivered_up_to_ms=NOW_MS - HEARTBEAT_MS - 50)
    assert view(idle, FOLLOWER).healthy(PIDS, NOW_MS - 10)


@pytest.mark.parametrize(
    "members",
    [
        [LEADER],
        [LEADER, status("n2", NodeState.CATCHING_UP)],
        [LEADER, status("n2", NodeState.FOLLOWER, epoch=1)],
        [LEADER, status("n2", NodeState.FOLLOWER, at_ms=NOW_MS - 100)],
        [LEADER, status("n2", NodeState.FOLLOWER, pid=1)],
        [LEADER, status("n2", NodeState.LEADER)],
        [status("n1", NodeState.LEADER, delivered_up_to_ms=NOW_MS - 5_000), FOLLOWER],
        [status("n1", NodeState.FOLLOWER), FOLLOWER],
    ],
    ids=[
        "missing",
        "catching-up",
        "older-epoch",
        "silent",
        "other-process",
        "two-leaders",
        "backlog",
        "no-leader",
    ],
)
def test_it_is_not_healthy_with(members: list[NodeStatus]) -> None:
    assert not view(*members).healthy(PIDS, NOW_MS - 10)


def test_without_a_terminal_the_view_speaks_in_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ops.demo.view.LINE_EVERY_S", 0.01)
    out = io.StringIO()
    asked = iter([LiveStatus("undisturbed", leader="n1", epoch=3, pending=7)] * 1_000_000)
    with LiveView(lambda: next(asked), Console(file=out)):
        while "n1, epoch 3" not in out.getvalue():
            pass
    assert "7 pending" in out.getvalue()
