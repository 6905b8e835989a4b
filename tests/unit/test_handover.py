"""What a leader asks ZooKeeper for, and writes there, when another candidate is the preferred one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from election.candidacy import ElectionState, Role
from election.candidates import MOST_CANDIDACIES, Candidate
from election.errors import ElectionError, Forbidden, Malformed, Unavailable
from election.operators import BY_PREFERENCE, SWITCHOVER, Author, HistoryEntry, Switchover
from node import handover, preference
from node.core.ports import Pauses
from node.handover import Handovers
from node.preference import Business
from node.status import NodeState, NodeStatus
from node.zookeeper.operator_watch import READ_TIMEOUT_S
from store.operations import Operation
from store.overdue import Overdue

EPOCH = 7
LEARNS = ["member a", "history"]
MINE = "x-0000000001"
OTHER = "x-0000000002"
QUIET = Business(Pauses(), None, Operation(), Overdue(0, 0))


class ZooKeeper:
    """Has a lane whose leader is a, and whose preferred candidate is b. Implements what is asked of a
    `Registry`.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.trouble: ElectionError | None = None
        self.queue = {MINE: "a", OTHER: "b"}
        self.has_heard_of = {"a", "b"}
        self.epoch = EPOCH  # which b follows
        self.ahead_ms = 0  # by which the clock of a is
        self.read = 0  # of the history
        self.takes = True  # a switchover: nobody has asked for another one
        self.history: list[tuple[HistoryEntry, int]] = []
        self.stands: Switchover | None = None

    def few_candidates(self, lane: int, most: int, timeout_s: float) -> dict[str, Candidate]:
        self._called(f"candidates of {lane}", timeout_s)
        assert most == MOST_CANDIDACIES
        return {name: Candidate(node, "", 1, 0) for name, node in self.queue.items()}

    def written_member(self, node: str, timeout_s: float) -> tuple[bytes, int] | None:
        self._called(f"member {node}", timeout_s)
        now_ms = time.time_ns() // 1_000_000
        at_ms = now_ms + self.ahead_ms if node == "a" else now_ms
        said = NodeStatus(node, 1, NodeState.FOLLOWER, epoch=self.epoch, at_ms=at_ms, delivered_up_to_ms=1)
        return (said.encode(), now_ms) if node in self.has_heard_of else None

    def history_since(self, since_ms: int, timeout_s: float) -> Iterator[tuple[HistoryEntry, int]]:
        self._called("history", timeout_s)
        for one in self.history:
            if one[1] >= since_ms:
                self.read += 1
                yield one

    def hand_over(self, lane: int, wanted: Switchover, entry: HistoryEntry) -> bool:
        self._called(f"hand over {lane}")
        if self.takes:
            self.history.insert(0, (entry, time.time_ns() // 1_000_000))
            self.stands = wanted
        return self.takes

    def take_back(self, lane: int, wanted: Switchover) -> None:
        self._called(f"take back {lane}")
        assert wanted == self.stands
        self.stands = None

    def _called(self, what: str, timeout_s: float | None = None) -> None:
        self.calls.append(what)
        assert timeout_s in {None, READ_TIMEOUT_S}
        if self.trouble is not None:
            raise self.trouble


class Stage(SimpleNamespace):
    """A leader, and what it sees."""

    zookeeper: ZooKeeper
    handovers: Handovers
    candidacy: SimpleNamespace
    contender: SimpleNamespace
    checkpoint: SimpleNamespace

    def look(self, times: int = 1, wanted: Switchover | None = None) -> list[str]:
        """What is asked of ZooKeeper meanwhile."""
        self.zookeeper.calls.clear()
        for _ in range(times):
            self.handovers.look(wanted)
        return self.zookeeper.calls

    def leads_by(self, znode: str, epoch: int) -> None:
        """From now on."""
        self.zookeeper.queue = {znode: "a", OTHER: "b"}
        self.candidacy.state = ElectionState("leader", znode, time.time_ns() // 1_000_000)
        self.checkpoint.epoch = self.zookeeper.epoch = epoch


def staged(
    lanes: int = 2, *, role: Role = "leader", begun: bool = True, znode: str = MINE, last: str = "a"
) -> Stage:
    """`begun`: whether it has begun to lead. `znode`: its candidacy. `last`: whose the last checkpoint is."""
    zookeeper, now_ms = ZooKeeper(), time.time_ns() // 1_000_000
    state = ElectionState(role, znode, now_ms - 600_000)
    checkpoint = SimpleNamespace(node=last, epoch=EPOCH, delivered_up_to_ms=1)
    view = SimpleNamespace(checkpoint=checkpoint, reached=lambda: SimpleNamespace(applied={}))
    candidacy = SimpleNamespace(state=state)
    contender = SimpleNamespace(has_begun=begun, has_withdrawn=False)
    parts: list[Any] = [zookeeper, candidacy, contender, view, lambda: QUIET]
    return Stage(
        zookeeper=zookeeper,
        handovers=Handovers("a", 1, lanes, *parts),
        candidacy=candidacy,
        contender=contender,
        checkpoint=checkpoint,
    )


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader looks as often as it is called, and what is so in two looks has been so for long enough."""
    monkeypatch.setattr(handover, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(preference, "FIT_S", 0.0)


def switchover(ago_s: float, **fields: Any) -> tuple[HistoryEntry, int]:
    known: dict[str, Any] = {"what": SWITCHOVER, "lane": 1, "before": "b", "after": "a"}
    at_ms = time.time_ns() // 1_000_000 - int(1000 * ago_s)
    return HistoryEntry(author=Author("somebody", "to see it", at_ms), **known | fields), at_ms


def test_it_hands_over_by_what_an_operator_would_write() -> None:
    stage = staged()
    stage.look(2)
    wanted, (entry, _) = stage.zookeeper.stands, stage.zookeeper.history[0]
    assert wanted is not None
    assert (wanted.epoch, wanted.to, wanted.author.by, wanted.by_preference) == (EPOCH, "b", "a", True)
    assert (entry.what, entry.lane, entry.before, entry.after) == (BY_PREFERENCE, 1, "a", "b")
    assert entry.epoch == EPOCH
    assert wanted.author == entry.author
    assert wanted.author.reason == "b is the preferred leader of lane 1"


def test_with_one_lane_and_for_who_does_not_lead_nothing_is_asked() -> None:
    assert staged(lanes=1).look(3) == []
    assert staged(role="follower").look(3) == []
    assert staged(begun=False).look(3) == []


def test_who_finds_that_another_one_leads_asks_no_further() -> None:
    assert staged(znode="x-0000000009").look(3) == [*LEARNS, *["candidates of 1"] * 3]
    assert staged(last="c").look(3) == []


def test_it_asks_now_and_then_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "LOOK_EVERY_S", 60.0)
    assert staged().look(5) == [*LEARNS, "candidates of 1", "member b"]


def test_where_zookeeper_does_not_answer_nothing_is_known() -> None:
    stage = staged()
    stage.look()
    stage.zookeeper.trouble = Unavailable("it is away")
    with capture_logs() as logs:
        assert stage.look() == ["candidates of 1"]
    assert [one["log_level"] for one in logs] == ["debug"]
    stage.zookeeper.trouble = None
    assert stage.look() == ["candidates of 1", "member b"]
    assert stage.look()[-1] == "hand over 1"


def test_whom_an_operator_has_chosen_leads_on_and_asks_for_the_history_once() -> None:
    stage = staged()
    stage.zookeeper.history = [switchover(ago_s=600.1)]
    with capture_logs() as logs:
        calls = stage.look(8)
    assert [calls.count(what) for what in ("hand over 1", "history")] == [0, 1]
    assert calls[:2] == LEARNS
    assert [one["event"] for one in logs] == ["preference-waived"]


def test_a_choice_that_could_not_be_read_is_read_later() -> None:
    stage = staged()
    stage.zookeeper.history = [switchover(ago_s=600.1)]
    stage.zookeeper.trouble = Unavailable("it is away")
    assert stage.look() == ["member a"]
    stage.zookeeper.trouble = None
    calls = stage.look(8)
    assert [calls.count(what) for what in ("hand over 1", "history")] == [0, 1]


def test_it_is_read_once_the_node_has_told_of_itself() -> None:
    stage = staged()
    stage.zookeeper.history = [switchover(ago_s=600.1)]
    stage.zookeeper.has_heard_of = {"b"}
    assert stage.look(4) == ["member a"] * 4
    stage.zookeeper.has_heard_of = {"a", "b"}
    assert stage.look(8).count("hand over 1") == 0


@pytest.mark.parametrize(
    ("znode", "epoch", "counts"),
    [
        ("x-0000000009", EPOCH, True),
        (MINE, EPOCH + 1, True),
        ("x-0000000009", EPOCH + 1, True),
        ("x-0000000009", EPOCH + 2, False),
    ],
    ids=["its session was lost", "it had to recover", "both", "it leads anew"],
)
def test_an_operator_s_choice_counts_as_long_as_the_leadership_does(
    znode: str, epoch: int, counts: object
) -> None:
    stage = staged()
    stage.zookeeper.history = [switchover(ago_s=600.1)]
    stage.look(2)
    stage.leads_by(znode, epoch)
    handed_over = "hand over 1" in stage.look(4)
    stage.leads_by(znode, max(epoch, EPOCH + 1))
    assert (handed_over or "hand over 1" in stage.look(4)) is not counts


def test_a_node_with_a_wrong_clock_knows_its_choice_by_that_of_zookeeper_s_server() -> None:
    stage = staged()
    stage.zookeeper.history = [switchover(ago_s=600.1)]
    stage.zookeeper.ahead_ms = hour_ms = 3_600_000
    since_ms = stage.candidacy.state.since_ms
    stage.candidacy.state = ElectionState("leader", MINE, since_ms + hour_ms)
    assert stage.look(8).count("hand over 1") == 0


def test_of_the_history_no_more_is_read_than_is_needed() -> None:
    stage = staged()
    stage.zookeeper.history = [switchover(ago_s=600.1 + number) for number in range(9)]
    stage.look(8)
    assert stage.zookeeper.read == 1


def test_a_look_is_over_once_the_node_ends() -> None:
    stage = staged()
    stage.zookeeper.history = [switchover(ago_s=600.1 + number, lane=0) for number in range(9)]
    stage.contender.has_withdrawn = True
    assert stage.look() == LEARNS
    assert stage.zookeeper.read == 1


@pytest.mark.parametrize(("hours_ago", "hands_over"), [(23.9, False), (24.1, True)])
def test_of_the_history_a_day_counts(hours_ago: float, hands_over: object) -> None:
    """The last one was an hour and a half ago."""
    stage = staged()
    hours = 1.5, hours_ago
    stage.zookeeper.history = [switchover(3600 * ago, what=BY_PREFERENCE, after="b") for ago in hours]
    assert ("hand over 1" in stage.look(2)) is hands_over


def test_what_does_not_pass_by_itself_is_said_once_for_each_cause() -> None:
    stage = staged()
    with capture_logs() as logs:
        for trouble in (Malformed("x is no switchover"), Forbidden("y may not be read")):
            stage.zookeeper.trouble = trouble
            stage.look(5)
    assert [one["event"] for one in logs] == ["preference-unknown"] * 2
    assert [one["log_level"] for one in logs] == ["warning"] * 2
    assert [one["detail"] for one in logs] == ["x is no switchover", "y may not be read"]
    assert all("zkCli.sh" in one["way_out"] for one in logs)


def test_who_is_to_stay_asks_for_the_history_after_another_while_alone() -> None:
    """Two looks are a while here."""
    stage = staged()
    stage.zookeeper.history = [switchover(ago_s=60, what=BY_PREFERENCE, after="b")]
    calls = stage.look(8)
    assert [calls.count(what) for what in ("hand over 1", "history")] == [0, 1 + 8 // 2]


def test_who_finds_that_it_is_to_step_down_tries_again_after_another_while_alone() -> None:
    stage = staged()
    stage.zookeeper.takes = False
    assert stage.look(8).count("hand over 1") == 8 // 2


def by_preference(of: str, to: str, epoch: int = EPOCH) -> Switchover:
    return Switchover(epoch, to, Author(of, f"{to} is the preferred leader of lane 1", 1), by_preference=True)


def test_what_has_not_come_to_pass_is_taken_back_and_not_tried_again() -> None:
    stage = staged()
    stage.look(2)
    with capture_logs() as logs:
        assert stage.look(wanted=stage.zookeeper.stands)[0] == "take back 1"
    assert [one["event"] for one in logs] == ["switchover-failed"]
    assert stage.zookeeper.stands is None
    assert stage.look(20).count("hand over 1") == 0


@pytest.mark.parametrize("of", ["a", "c"])
def test_what_has_come_to_pass_is_taken_back_by_whoever_leads_now(of: str) -> None:
    stage = staged()
    stage.zookeeper.stands = by_preference(of, "a", EPOCH - 1)
    with capture_logs() as logs:
        assert stage.look(wanted=stage.zookeeper.stands)[0] == "take back 1"
    assert logs == []


def test_what_a_follower_has_not_written_it_leaves_to_the_leader() -> None:
    stage = staged(role="follower", begun=False, last="c")
    assert stage.look(wanted=by_preference("c", "b")) == []
    stage.zookeeper.stands = by_preference("a", "b", EPOCH - 1)
    assert stage.look(wanted=stage.zookeeper.stands) == ["take back 1"]


@pytest.mark.parametrize("epoch", [EPOCH - 1, EPOCH, EPOCH + 1_000_000])
def test_an_operator_s_switchover_that_nobody_heeds_any_more_does_not_keep_it(epoch: int) -> None:
    stage = staged()
    calls = stage.look(2, Switchover(epoch, "c", Author("somebody", "to see it", 1)))
    assert "hand over 1" in calls
    assert "take back 1" not in calls
