"""Recovery: who leads, from which checkpoint it goes on, and how far the log is read before."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
import structlog

from node.core.ports import Doubtful, Unconfirmed
from node.core.recovery import Recovered, Recovery
from node.core.steps import Step, StepDown, Wait
from node.refusal import Refusal, RefusalCode, Refusing
from store.checkpoint import Checkpoint, Lineage, Vector
from store.view import View
from tests.support.checkpoints import sample_checkpoint
from tests.unit.view_records import at, schedule, take

NOW_MS = 1_767_225_600_000
TOPIC = Lineage("topic", 3)
UNREADABLE = Refusing(Refusal(RefusalCode.CHECKPOINT_UNREADABLE, "it is newer", "upgrade"))


class World:
    """The ports of recovery. `calls`: what was asked, in order."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.leads = True
        self.asked_to_resign = False
        self.in_topic: Checkpoint | None = None
        self.in_znode: Checkpoint | Refusing | None = None
        self.stands_on = TOPIC
        self.stable: Vector = {0: 0, 1: 0}
        self.fails: list[str] = []  # calls that get no answer, each once
        self.while_read: Callable[[], None] = lambda: None

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name in self.fails:
            self.fails.remove(name)
            raise Unconfirmed

    def now_ms(self) -> int:
        return NOW_MS

    def steady_ms(self) -> int:
        return 0

    def drop(self) -> None:
        self._call("drop")

    def open(self) -> None:
        self._call("open")

    def confirm(self) -> bool:
        self._call("confirm")
        return self.leads

    def refresh(self) -> None:
        self._call("refresh")

    def resigning(self) -> bool:
        return self.asked_to_resign

    def mirrored(self) -> Checkpoint | None:
        self._call("znode")
        if isinstance(self.in_znode, Refusing):
            raise self.in_znode
        return self.in_znode

    def last_checkpoint(self) -> Checkpoint | None:
        self._call("topic")
        self.while_read()
        return self.in_topic

    def lineage(self) -> Lineage:
        self._call("lineage")
        return self.stands_on

    def last_stable_offsets(self) -> Vector:
        self._call("stable")
        return self.stable

    def high_watermarks(self) -> Vector:
        self._call("ends")
        return {0: 100, 1: 200}


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def recovery(world: World, view: View) -> Recovery:
    return Recovery("a", 0, view, *[world] * 5)  # type: ignore[arg-type]


def of(epoch: int, number: int, node: str = "b", lineage: Lineage = TOPIC) -> Checkpoint:
    """One that nothing has been delivered under."""
    nowhere = {0: 0, 1: 0}
    return sample_checkpoint(
        epoch=epoch,
        number=number,
        node=node,
        lineage=lineage,
        position=(NOW_MS, 0, 0),
        applied=nowhere,
        seen=nowhere,
        read=nowhere,
        written_back=nowhere,
    )


def run(recovery: Recovery, own: Checkpoint | None = None) -> Recovered | StepDown:
    """To its end, which it reaches without a wait."""
    steps = recovery.recover(own)
    try:
        while True:
            step = next(steps)
            assert isinstance(step, Step), step
    except StopIteration as ended:
        found: Recovered | StepDown = ended.value
        return found


def gone_on_from(recovery: Recovery) -> Checkpoint:
    """The checkpoint that it goes on from."""
    found = run(recovery)
    assert isinstance(found, Recovered), found
    return found.last


def said(recovery: Recovery) -> list[tuple[str, str]]:
    with structlog.testing.capture_logs() as lines:
        run(recovery)
    return [(line["event"], line["log_level"]) for line in lines if line["event"].startswith("checkpoint-")]


def first_wait(recovery: Recovery) -> Wait:
    return next(step for step in recovery.recover(None) if isinstance(step, Wait))


def test_it_is_one_road(world: World, recovery: Recovery) -> None:
    run(recovery)
    fencing, reading = ["drop", "confirm", "refresh", "open"], ["znode", "topic", "lineage", "stable", "ends"]
    assert world.calls == fencing + reading


def test_what_is_written_back_next_is_counted_from_the_logs_ends(recovery: Recovery) -> None:
    found = run(recovery)
    assert isinstance(found, Recovered)
    assert found.counts == {0: 100, 1: 200}


def test_where_nothing_was_ever_delivered_it_begins_at_the_beginning(recovery: Recovery) -> None:
    last = gone_on_from(recovery)
    assert (last.epoch, last.position, last.seen) == (0, None, {0: 0, 1: 0})


def test_the_view_is_aligned_to_what_it_goes_on_from(world: World, view: View, recovery: Recovery) -> None:
    world.in_topic = of(2, 20)
    run(recovery)
    assert view.checkpoint == world.in_topic


# -- who leads


def test_who_is_not_leader_fences_nobody(world: World, recovery: Recovery) -> None:
    world.leads = False
    assert (run(recovery), world.calls) == (StepDown.SUPERSEDED, ["drop", "confirm"])


@pytest.mark.parametrize("call", ["confirm", "refresh"])
def test_before_zookeeper_has_said_who_leads_and_what_is_paused_nobody_is_fenced(
    world: World, recovery: Recovery, call: str
) -> None:
    world.fails = [call]
    wait = first_wait(recovery)
    assert wait.until_ms is not None
    assert (wait.until_ms > NOW_MS, "open" in world.calls) == (True, False)


@pytest.mark.parametrize(
    ("last", "superseded"),
    [
        pytest.param(of(2, 21, "a"), False, id="its own last one"),
        pytest.param(of(3, 21, "a"), False, id="a later epoch of its own"),
        pytest.param(of(3, 21, "b"), True, id="a later epoch of another node"),
    ],
)
def test_a_fenced_leader_steps_down(
    world: World, recovery: Recovery, last: Checkpoint, *, superseded: bool
) -> None:
    world.in_topic = last
    assert (run(recovery, of(2, 20, "a")) is StepDown.SUPERSEDED) == superseded


def test_a_fenced_leader_leaves_its_view_as_it_is(world: World, view: View, recovery: Recovery) -> None:
    world.in_topic = of(3, 21, "b")
    run(recovery, of(2, 20, "a"))
    assert view.checkpoint is None


# -- which checkpoint


def test_a_topic_that_has_lost_its_end_does_not_decide_and_it_is_said(
    world: World, view: View, recovery: Recovery
) -> None:
    view.align(of(2, 22))
    world.in_topic = of(2, 20)
    assert said(recovery) == [("checkpoint-topic-truncated", "error")]
    assert (recovery.lost, view.checkpoint) == (True, of(2, 22))


def test_a_topic_that_has_lost_all_it_had_does_not_decide(
    world: World, view: View, recovery: Recovery
) -> None:
    view.align(of(2, 22))
    assert said(recovery) == [("checkpoint-topic-truncated", "error")]
    assert view.checkpoint == of(2, 22)


def test_a_topic_made_anew_decides_as_soon_as_somebody_has_gone_on_in_it(
    world: World, view: View, recovery: Recovery
) -> None:
    view.align(of(2, 22))
    world.stands_on = anew = Lineage("anew", 0)
    world.in_topic = of(1, 1, lineage=anew)
    assert said(recovery) == [("checkpoint-topic-lost", "error")]
    assert view.checkpoint == world.in_topic


def test_the_znodes_decides_where_it_is_the_latest_one_of_the_topic(world: World, recovery: Recovery) -> None:
    world.in_topic, world.in_znode = of(2, 20), of(2, 99)
    assert gone_on_from(recovery).number == 99


def test_a_topic_that_has_all_is_not_called_lost(world: World, view: View, recovery: Recovery) -> None:
    view.align(of(2, 20))
    world.in_topic, world.in_znode = of(2, 20), of(2, 19)
    assert (said(recovery), recovery.lost) == ([], False)


def test_what_was_lost_once_is_not_lost_at_the_next_recovery(
    world: World, view: View, recovery: Recovery
) -> None:
    view.align(of(2, 22))
    world.in_topic = of(2, 20)
    run(recovery)
    world.in_topic = of(2, 22)
    run(recovery)
    assert not recovery.lost


def test_the_znode_is_waited_for_before_the_topic_is_read(world: World, recovery: Recovery) -> None:
    world.fails = ["znode"]
    wait = first_wait(recovery)
    assert wait.until_ms is not None
    assert (wait.until_ms > NOW_MS, "topic" in world.calls) == (True, False)


def test_a_node_that_is_to_step_down_waits_for_no_znode(world: World, recovery: Recovery) -> None:
    steps = recovery.recover(None)
    assert next(step for step in steps if step is Step.OPENED)
    world.asked_to_resign = True
    with pytest.raises(Doubtful, match="has not said what was delivered"):
        next(steps)


def test_a_znode_that_cannot_be_read_does_not_matter_where_the_topic_has_one(
    world: World, recovery: Recovery
) -> None:
    world.in_topic, world.in_znode = of(2, 20), UNREADABLE
    assert gone_on_from(recovery) == of(2, 20)


def test_it_does_where_the_topic_has_none(world: World, recovery: Recovery) -> None:
    world.in_znode = UNREADABLE
    with pytest.raises(Refusing):
        run(recovery)


# -- how far the log is read


@pytest.mark.parametrize(
    ("seen", "stable"),
    [
        pytest.param({0: 1, 1: 0}, {0: 0, 1: 0}, id="as far as the last leader had"),
        pytest.param({0: 0, 1: 0}, {0: 1, 1: 0}, id="as far as it is stable"),
    ],
)
def test_the_log_is_read(world: World, view: View, recovery: Recovery, seen: Vector, stable: Vector) -> None:
    world.in_topic = msgspec.structs.replace(of(2, 20), seen=seen)
    world.stable = stable
    steps = recovery.recover(None)
    waits = (step for step in steps if isinstance(step, Wait))
    assert next(waits) == next(waits) == Wait(None)
    take(view, at(0, 0, schedule(NOW_MS)))
    assert next(waits, None) is None


def test_who_is_asked_to_resign_reads_no_further(world: World, recovery: Recovery) -> None:
    world.stable = {0: 1, 1: 0}
    steps = recovery.recover(None)
    assert next(step for step in steps if isinstance(step, Wait)) == Wait(None)
    world.asked_to_resign = True
    with pytest.raises(StopIteration) as ended:
        next(steps)
    assert ended.value.value is StepDown.RESIGNED


# -- the first checkpoint


def test_an_epochs_first_checkpoint_repeats_the_last_one_under_the_next_epoch(
    world: World, recovery: Recovery
) -> None:
    world.in_topic = of(2, 20)
    first = recovery.first_checkpoint(gone_on_from(recovery))
    assert (first.epoch, first.number, first.node, first.first) == (3, 20, "a", True)
    assert (first.frontier, first.write_back) == (world.in_topic.frontier, world.in_topic.write_back)


def test_one_that_is_tried_again_bears_another_time(world: World, recovery: Recovery) -> None:
    last = gone_on_from(recovery)
    tried = [recovery.first_checkpoint(last).at_ms for _ in range(3)]
    assert tried == [NOW_MS, NOW_MS + 1, NOW_MS + 2]


def test_no_epoch_is_used_twice_that_is_known_anywhere(world: World, recovery: Recovery) -> None:
    world.in_topic, world.in_znode = of(2, 20), of(7, 1, lineage=Lineage("another topic", 0))
    assert recovery.first_checkpoint(gone_on_from(recovery)).epoch == 8


def test_the_lineage_is_read_after_the_topic(world: World, recovery: Recovery) -> None:
    """Should it lose its end meanwhile, who goes on without that stands on the leader that has lost it."""
    led_anew = Lineage("topic", TOPIC.leader_epoch + 1)

    def lead_anew() -> None:
        world.stands_on = led_anew

    world.while_read = lead_anew
    assert recovery.first_checkpoint(gone_on_from(recovery)).lineage == led_anew
