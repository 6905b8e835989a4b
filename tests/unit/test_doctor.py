"""What the doctor makes of what servers and nodes say."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest
from syrupy.assertion import SnapshotAssertion

from delayline.settings import ClusterSettings
from delayline.settings_versions import SettingsVersions
from election.operators import Author, PauseState
from ops.clients.members import Member
from ops.cluster.status import ClusterStatus, LaneStatus
from ops.doctor.examine import judge_size
from ops.doctor.finding import Finding, Level
from ops.doctor.keepers import ZooKeeperStatus, judge
from ops.doctor.nodes import judge_cluster
from store.holds import Hold
from store.overrun import Overrun
from tests.support.checkpoints import sample_checkpoint

NOW_MS = 1_800_000_000_000
WELL = {
    "node": "a",
    "lane": 0,
    "state": "leader",
    "version": "1",
    "at_ms": NOW_MS,
    "applied": {"0": 10},
    "disk_free_bytes": 1 << 40,
    "disk_total_bytes": 1 << 41,
}
FOLLOWER = WELL | {"node": "b", "state": "follower"}
CONF = {"minSessionTimeout": "4000", "maxSessionTimeout": "40000"}
SRVR = {"Zookeeper version": "3.9.3-abc, built on", "Mode": "leader"}


def member(said: dict[str, Any]) -> Member:
    """Whose clock is that of ZooKeeper's server."""
    return Member.decode(msgspec.json.encode(said), said["at_ms"])


def cluster(
    candidates: tuple[str, ...] = ("a", "b"),
    pauses: PauseState | None = None,
    behind_ms: int = 0,
    end: int = 10,
    **said: Any,
) -> ClusterStatus:
    """One that is well, but for what is said."""
    checkpoint = msgspec.structs.replace(
        sample_checkpoint(lane=0, epoch=1), delivered_up_to_ms=NOW_MS - behind_ms
    )
    lane = LaneStatus(0, candidates, checkpoint)
    members = {"a": member(WELL | said), "b": member(FOLLOWER)}
    return ClusterStatus(
        ClusterSettings("delay", partitions=1), (lane,), members, {0: end}, pauses or PauseState(), NOW_MS
    )


def wrong(findings: list[Finding]) -> list[tuple[str, str, str]]:
    return [(one.check, one.found, one.mend) for one in findings if one.level == Level.PROBLEM]


def test_a_cluster_that_is_well_has_no_problem() -> None:
    assert [one.level for one in judge_cluster(cluster())] == [Level.OK] * 5


def test_a_node_that_was_leader_is_not_judged_by_the_clock_of_then() -> None:
    assert wrong(judge_cluster(cluster(state="follower", clock_offset_ms=300))) == []


@pytest.mark.parametrize(("trails_ms", "problems"), [(14_000, 0), (16_000, 1)])
def test_a_follower_that_reads_no_more_checkpoints_is_a_problem(trails_ms: int, problems: int) -> None:
    status = cluster()
    members = {**status.members, "b": member(FOLLOWER | {"delivered_up_to_ms": NOW_MS - trails_ms})}
    found = wrong(judge_cluster(dataclasses.replace(status, members=members)))
    assert [check for check, _, _ in found] == ["b"] * problems


HELD = {"partition": 0, "end": 41, "records": 820, "since_ms": NOW_MS - 60_000}
KNOWN = {
    "producer_id": 7,
    "transactional_id": "sink-1",
    "open_since_ms": NOW_MS - 61_000,
    "timeout_ms": 900_000,
}


def test_what_has_been_held_back_for_a_moment_is_worth_knowing_and_no_problem() -> None:
    held = [one for one in judge_cluster(cluster(blocked=[HELD | {"since_ms": NOW_MS - 9_000}])) if one.mend]
    assert [(one.level, one.check) for one in held] == [(Level.NOTE, "lane 0")]


def test_where_retention_comes_near_is_a_problem_once_whoever_tells_of_it() -> None:
    near = [{"partition": 0, "carried": 41, "old": 90}]
    status = cluster(near=near)
    members = {**status.members, "b": member(FOLLOWER | {"near": near})}
    ((check, found, mend),) = wrong(judge_cluster(dataclasses.replace(status, members=members)))
    assert check == "lane 0"
    assert "delay.buffer/0 that are needed from offset 41 on" in found
    assert "raise retention.ms of delay.buffer" in mend
    assert "delay.outcomes" in mend
    assert "replay_window_s" in mend


@pytest.mark.parametrize(("window_ms", "problems"), [(4_000, 0), (4_001, 1)])
def test_a_replay_window_that_is_too_long_for_the_retention_is_a_problem(
    window_ms: int, problems: int
) -> None:
    status = cluster(replay_window_ms=window_ms)
    settings = dataclasses.replace(status.settings, retention_ms=10_000)
    found = wrong(judge_cluster(dataclasses.replace(status, settings=settings)))
    assert [(check, "at most 4;" in said) for check, said, _ in found] == [("a", True)] * problems


def test_where_nothing_is_carried_no_replay_window_is_too_long() -> None:
    status = cluster(replay_window_ms=1 << 40)
    settings = dataclasses.replace(status.settings, retention_ms=None)
    assert wrong(judge_cluster(dataclasses.replace(status, settings=settings))) == []


@pytest.mark.parametrize(
    "known", [KNOWN, {"producer_id": 7}, {}], ids=["known", "not coordinated", "not named"]
)
def test_what_has_been_held_back_for_long_is_a_problem_with_its_holder_and_the_way_out(
    known: dict[str, Any], snapshot: SnapshotAssertion
) -> None:
    assert wrong(judge_cluster(cluster(blocked=[HELD | known]))) == snapshot


def test_the_node_that_knows_whose_transaction_it_is_is_believed() -> None:
    status = cluster(blocked=[HELD])
    members = {**status.members, "c": member(WELL | {"node": "c", "blocked": [HELD | KNOWN]})}
    ((_, found, _),) = wrong(judge_cluster(dataclasses.replace(status, members=members)))
    assert "'sink-1'" in found


AUTHOR = Author("ann", "moving", 1)


@pytest.mark.parametrize(
    "status",
    [
        pytest.param(cluster(candidates=()), id="no candidate"),
        pytest.param(cluster(candidates=("a",)), id="one candidate"),
        pytest.param(cluster(behind_ms=90_000), id="behind"),
        pytest.param(cluster(pauses=PauseState(paused=AUTHOR)), id="paused"),
        pytest.param(cluster(pauses=PauseState(paused_targets={"t": AUTHOR})), id="a target paused"),
        pytest.param(cluster(state="refusing", reason="disk-full: x", way_out="Make room"), id="refusing"),
        pytest.param(cluster(at_ms=NOW_MS - 9_000), id="silent"),
        pytest.param(cluster(clock_offset_ms=300), id="clock"),
        pytest.param(cluster(disk_free_bytes=1 << 20), id="disk"),
        pytest.param(cluster(version="2"), id="versions"),
    ],
)
def test_each_problem_has_a_way_out(status: ClusterStatus, snapshot: SnapshotAssertion) -> None:
    assert wrong(judge_cluster(status)) == snapshot


def test_a_paused_target_says_how_many_messages_wait_for_it() -> None:
    hold = Hold("t", (1, 0, 0), (1, 0, 0), None, 7)
    status = cluster(pauses=PauseState(paused_targets={"t": AUTHOR}))
    (lane,) = status.lanes
    assert lane.checkpoint is not None
    checkpoint = msgspec.structs.replace(lane.checkpoint, holds=(hold,))
    status = dataclasses.replace(status, lanes=(dataclasses.replace(lane, checkpoint=checkpoint),))
    ((_, said, _),) = wrong(judge_cluster(status))
    assert said.endswith("; 7 messages at most wait for it")


def test_a_node_that_is_far_behind_is_a_problem_of_its_own() -> None:
    assert {check for check, *_ in wrong(judge_cluster(cluster(end=20_000)))} == {"a", "b"}


@pytest.mark.parametrize(("targets", "notes"), [(1, 0), (12_000, 0), (14_000, 1)])
def test_settings_that_fill_half_of_their_room_are_worth_knowing(targets: int, notes: int) -> None:
    settings = ClusterSettings(targets=tuple(f"orders.{number:08}" for number in range(targets)))
    found = judge_size(SettingsVersions.of(settings))
    assert [(one.level, one.check) for one in found] == [(Level.NOTE, "settings")] * notes


def test_a_session_that_a_server_does_not_grant_is_a_problem() -> None:
    findings = judge([ZooKeeperStatus("zk:2181", None, SRVR, CONF)] * 3, {"a": 2.0, "b": 6.0})
    ((check, found, _), *_) = wrong(findings)
    assert (check, found) == ("sessions", "zk:2181 grants sessions of 4000 to 40000 ms; a asks for 2000")


def test_words_that_a_server_does_not_allow_are_no_problem() -> None:
    findings = judge([ZooKeeperStatus("zk:2181")], {"a": 6.0})
    assert wrong(findings) == []
    assert [one.found.rpartition(": ")[2] for one in findings if "does not allow" in one.found] == [
        "it does not allow srvr",
        "it does not allow conf",
    ]


def test_a_server_that_does_not_answer_is_a_problem_of_its_own() -> None:
    findings = judge(
        [ZooKeeperStatus("zk1:2181", None, SRVR, CONF), ZooKeeperStatus("zk2:2181", "Connection refused")], {}
    )
    assert [found for _, found, _ in wrong(findings)] == ["zk2:2181 does not answer: Connection refused"]


def cluster_ahead(ahead_ms: int, overrun_ms: int | None = None) -> ClusterStatus:
    """The lane's position, and that of an overrun, so far ahead of the clock."""
    status = cluster()
    (lane,) = status.lanes
    assert lane.checkpoint is not None
    overruns = () if overrun_ms is None else (Overrun((NOW_MS + overrun_ms, 0, 0), {0: 10}, NOW_MS),)
    checkpoint = msgspec.structs.replace(
        lane.checkpoint, position=(NOW_MS + ahead_ms, 0, 0), overruns=overruns
    )
    return dataclasses.replace(status, lanes=(dataclasses.replace(lane, checkpoint=checkpoint),))


@pytest.mark.parametrize(("ahead_ms", "problems"), [(4_000, 0), (86_400_000, 1)])
def test_a_lane_that_stands_ahead_of_the_clock_is_a_problem(ahead_ms: int, problems: int) -> None:
    found = [text for _, text, _ in wrong(judge_cluster(cluster_ahead(ahead_ms)))]
    assert len([text for text in found if "ahead of the clock" in text]) == problems


@pytest.mark.parametrize(("overrun_ms", "notes"), [(-1, 0), (3_600_000, 1)])
def test_what_clocks_that_were_ahead_have_delivered_early_is_said_until_it_would_have_been_due(
    overrun_ms: int, notes: int
) -> None:
    found = [one.found for one in judge_cluster(cluster_ahead(-1_000, overrun_ms)) if one.level == Level.NOTE]
    assert len([text for text in found if "2027-01-15T09:00:00" in text]) == notes


def test_a_partition_whose_records_are_ahead_of_the_clock_is_a_problem() -> None:
    ((check, found, _),) = wrong(judge_cluster(cluster(ahead={"3": NOW_MS + 3_600_000})))
    assert check == "delay.buffer/3"
    assert "2027-01-15T09:00:00" in found


def test_what_a_node_has_said_of_a_partition_long_ago_is_not_believed() -> None:
    status = cluster(ahead={"3": NOW_MS + 3_600_000}, at_ms=NOW_MS - 60_000)
    assert "delay.buffer/3" not in {check for check, _, _ in wrong(judge_cluster(status))}
