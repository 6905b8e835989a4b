"""Recovery: who leads, from which checkpoint it goes on, and how far the log is read before."""

from __future__ import annotations

import msgspec
import pytest
import structlog

from node.core.recovery import Recovered, Recovery
from node.core.steps import Process, Step, StepDown, Wait
from node.refusal import Refusal, RefusalCode, Refusing
from store.checkpoint import MOST_BEFORE, Checkpoint, Lineage, Vector
from store.view import View
from tests.support.checkpoints import sample_checkpoint
from tests.unit.core_ports import TOPIC, FakePorts
from tests.unit.view_records import at, schedule, take

NOW_MS = 1_767_225_600_000
UNREADABLE = Refusing(Refusal(RefusalCode.CHECKPOINT_UNREADABLE, "it is newer", "upgrade"))


@pytest.fixture
def ports() -> FakePorts:
    return FakePorts(NOW_MS)


@pytest.fixture
def recovery(ports: FakePorts, view: View) -> Recovery:
    return Recovery("a", 0, view, ports.outbox, ports.log, ports.election, ports.operator, ports.clock)


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


def ended(steps: Process[Recovered | StepDown]) -> Recovered | StepDown:
    """What its next step is, which is its end."""
    with pytest.raises(StopIteration) as at_end:
        next(steps)
    found: Recovered | StepDown = at_end.value.value
    return found


def run(recovery: Recovery, own: Checkpoint | None = None) -> Recovered | StepDown:
    """To its end, which it reaches without a wait."""
    steps = recovery.recover(own)
    try:
        while True:
            step = next(steps)
            assert isinstance(step, Step), step
    except StopIteration as at_end:
        found: Recovered | StepDown = at_end.value
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


def test_it_is_one_road(ports: FakePorts, recovery: Recovery) -> None:
    run(recovery)
    fencing, reading = ["drop", "confirm", "refresh", "open"], ["znode", "topic", "lineage", "stable", "ends"]
    assert ports.calls.made == fencing + reading


def test_what_is_written_back_next_is_counted_from_the_logs_ends(recovery: Recovery) -> None:
    found = run(recovery)
    assert isinstance(found, Recovered)
    assert found.counts == {0: 100, 1: 200}


def test_where_nothing_was_ever_delivered_it_begins_at_the_beginning(recovery: Recovery) -> None:
    last = gone_on_from(recovery)
    assert (last.epoch, last.position, last.seen) == (0, None, {0: 0, 1: 0})


def test_the_view_is_aligned_to_what_it_goes_on_from(
    ports: FakePorts, view: View, recovery: Recovery
) -> None:
    ports.log.checkpoints.append(of(2, 20))
    run(recovery)
    assert view.checkpoint == ports.log.checkpoints[-1]


# -- who leads


def test_who_is_not_leader_fences_nobody(ports: FakePorts, recovery: Recovery) -> None:
    ports.election.leads = False
    assert (run(recovery), ports.calls.made) == (StepDown.UNCONFIRMED, ["drop", "confirm"])


@pytest.mark.parametrize("why", StepDown)
def test_who_is_to_step_down_before_zookeeper_answers_does_so_for_that(
    ports: FakePorts, recovery: Recovery, why: StepDown
) -> None:
    ports.calls.unanswered = ["confirm"]
    steps = recovery.recover(None)
    next(steps)
    ports.election.to_step_down = lambda: why
    assert ended(steps) is why


def test_who_resigns_while_zookeeper_is_asked_is_not_superseded(ports: FakePorts, recovery: Recovery) -> None:
    ports.election.leads = False
    ports.election.to_step_down = lambda: StepDown.RESIGNED if "confirm" in ports.calls.made else None
    assert run(recovery) is StepDown.RESIGNED


@pytest.mark.parametrize("call", ["confirm", "refresh"])
def test_before_zookeeper_has_said_who_leads_and_what_is_paused_nobody_is_fenced(
    ports: FakePorts, recovery: Recovery, call: str
) -> None:
    ports.calls.unanswered = [call]
    wait = first_wait(recovery)
    assert wait.until_ms is not None
    assert (wait.until_ms > NOW_MS, "open" in ports.calls.made) == (True, False)


@pytest.mark.parametrize(
    ("last", "superseded"),
    [
        pytest.param(of(2, 21, "a"), False, id="its own last one"),
        pytest.param(of(3, 21, "a"), False, id="a later epoch of its own"),
        pytest.param(of(3, 21, "b"), True, id="a later epoch of another node"),
    ],
)
def test_a_fenced_leader_steps_down(
    ports: FakePorts, recovery: Recovery, last: Checkpoint, *, superseded: bool
) -> None:
    ports.log.checkpoints.append(last)
    assert (run(recovery, of(2, 20, "a")) is StepDown.SUPERSEDED) == superseded


def test_a_fenced_leader_leaves_its_view_as_it_is(ports: FakePorts, view: View, recovery: Recovery) -> None:
    ports.log.checkpoints.append(of(3, 21, "b"))
    run(recovery, of(2, 20, "a"))
    assert view.checkpoint is None


# -- which checkpoint


def test_a_topic_that_has_lost_its_end_does_not_decide_and_it_is_said(
    ports: FakePorts, view: View, recovery: Recovery
) -> None:
    view.align(of(2, 22))
    ports.log.checkpoints.append(of(2, 20))
    assert said(recovery) == [("checkpoint-topic-truncated", "error")]
    assert (recovery.lost, view.checkpoint) == (True, of(2, 22))


def test_a_topic_that_has_lost_all_it_had_does_not_decide(
    ports: FakePorts, view: View, recovery: Recovery
) -> None:
    view.align(of(2, 22))
    assert said(recovery) == [("checkpoint-topic-truncated", "error")]
    assert view.checkpoint == of(2, 22)


def test_a_topic_made_anew_decides_as_soon_as_somebody_has_gone_on_in_it(
    ports: FakePorts, view: View, recovery: Recovery
) -> None:
    view.align(of(2, 22))
    ports.log.stands_on = anew = Lineage("anew", 0)
    ports.log.checkpoints.append(of(1, 1, lineage=anew))
    assert said(recovery) == [("checkpoint-topic-lost", "error")]
    assert view.checkpoint == ports.log.checkpoints[-1]


def test_the_znodes_decides_where_it_is_the_latest_one_of_the_topic(
    ports: FakePorts, recovery: Recovery
) -> None:
    ports.log.checkpoints.append(of(2, 20))
    ports.election.in_znode = of(2, 99)
    assert gone_on_from(recovery).number == 99


def test_a_topic_that_has_all_is_not_called_lost(ports: FakePorts, view: View, recovery: Recovery) -> None:
    view.align(of(2, 20))
    ports.log.checkpoints.append(of(2, 20))
    ports.election.in_znode = of(2, 19)
    assert (said(recovery), recovery.lost) == ([], False)


def test_what_was_lost_once_is_not_lost_at_the_next_recovery(
    ports: FakePorts, view: View, recovery: Recovery
) -> None:
    view.align(of(2, 22))
    ports.log.checkpoints.append(of(2, 20))
    run(recovery)
    ports.log.checkpoints.append(of(2, 22))
    run(recovery)
    assert not recovery.lost


def test_the_znode_is_waited_for_before_the_topic_is_read(ports: FakePorts, recovery: Recovery) -> None:
    ports.calls.unanswered = ["znode"]
    wait = first_wait(recovery)
    assert wait.until_ms is not None
    assert (wait.until_ms > NOW_MS, "topic" in ports.calls.made) == (True, False)


def test_a_node_that_is_to_step_down_waits_for_no_znode(ports: FakePorts, recovery: Recovery) -> None:
    steps = recovery.recover(None)
    assert next(step for step in steps if step is Step.OPENED)
    ports.election.to_step_down = lambda: StepDown.RESIGNED
    assert ended(steps) is StepDown.RESIGNED


def test_a_znode_that_cannot_be_read_does_not_matter_where_the_topic_has_one(
    ports: FakePorts, recovery: Recovery
) -> None:
    ports.log.checkpoints.append(of(2, 20))
    ports.election.in_znode = UNREADABLE
    assert gone_on_from(recovery) == of(2, 20)


def test_it_does_where_the_topic_has_none(ports: FakePorts, recovery: Recovery) -> None:
    ports.election.in_znode = UNREADABLE
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
def test_the_log_is_read(
    ports: FakePorts, view: View, recovery: Recovery, seen: Vector, stable: Vector
) -> None:
    ports.log.checkpoints.append(msgspec.structs.replace(of(2, 20), seen=seen))
    ports.log.stable = stable
    steps = recovery.recover(None)
    waits = (step for step in steps if isinstance(step, Wait))
    assert next(waits) == next(waits) == Wait(None)
    take(view, at(0, 0, schedule(NOW_MS)))
    assert next(waits, None) is None


@pytest.mark.parametrize("why", StepDown)
def test_who_is_to_step_down_reads_no_further(ports: FakePorts, recovery: Recovery, why: StepDown) -> None:
    ports.log.stable = {0: 1, 1: 0}
    steps = recovery.recover(None)
    assert next(step for step in steps if isinstance(step, Wait)) == Wait(None)
    ports.election.to_step_down = lambda: why
    assert ended(steps) is why


# -- the first checkpoint


def test_an_epochs_first_checkpoint_repeats_the_last_one_under_the_next_epoch(
    ports: FakePorts, recovery: Recovery
) -> None:
    last = of(2, 20)
    ports.log.checkpoints.append(last)
    first = recovery.first_checkpoint(gone_on_from(recovery))
    assert (first.epoch, first.number, first.node, first.first) == (3, 20, "a", True)
    assert (first.frontier, first.write_back) == (last.frontier, last.write_back)


def test_one_that_is_tried_again_bears_another_time(ports: FakePorts, recovery: Recovery) -> None:
    last = gone_on_from(recovery)
    tried = [recovery.first_checkpoint(last).at_ms for _ in range(3)]
    assert tried == [NOW_MS, NOW_MS + 1, NOW_MS + 2]


def test_no_epoch_is_used_twice_that_is_known_anywhere(ports: FakePorts, recovery: Recovery) -> None:
    ports.log.checkpoints.append(of(2, 20))
    ports.election.in_znode = of(7, 1, lineage=Lineage("another topic", 0))
    assert recovery.first_checkpoint(gone_on_from(recovery)).epoch == 8


def test_a_lineage_names_the_topics_before_it_and_each_once(ports: FakePorts, recovery: Recovery) -> None:
    ports.log.stands_on = Lineage("anew", 0)
    ports.election.in_znode = of(7, 1, lineage=Lineage("lost", 5, ("oldest",)))
    first = recovery.first_checkpoint(gone_on_from(recovery))
    assert first.lineage == Lineage("anew", 0, ("oldest", "lost"))
    ports.log.checkpoints.append(first)
    assert recovery.first_checkpoint(gone_on_from(recovery)).lineage == first.lineage


def test_a_lineage_names_topics_that_were_passed_over(ports: FakePorts, recovery: Recovery) -> None:
    ports.log.checkpoints.append(of(2, 20))
    ports.election.in_znode = of(1, 19, lineage=Lineage("void", 0))
    assert recovery.first_checkpoint(gone_on_from(recovery)).lineage.before == ("void",)


def test_a_lineage_names_what_was_gone_on_from_last(ports: FakePorts, view: View, recovery: Recovery) -> None:
    ports.log.stands_on = Lineage("anew", 0)
    ports.election.in_znode = msgspec.structs.replace(of(2, 20, lineage=Lineage("last", 0)), at_ms=NOW_MS)
    view.align(msgspec.structs.replace(of(2, 20, lineage=Lineage("void", 0)), at_ms=NOW_MS - 1))
    assert recovery.first_checkpoint(gone_on_from(recovery)).lineage.before == ("void", "last")


def test_a_lineage_does_not_name_its_own_topic() -> None:
    """Which could be before itself only where Kafka has an id again that was gone."""
    assert Lineage("a", 0).after([Lineage("b", 0, ("a",))]) == Lineage("a", 0, ("b",))


def test_a_lineage_names_no_more_than_the_last_topics_before_it(ports: FakePorts, recovery: Recovery) -> None:
    ports.log.stands_on = Lineage("anew", 0)
    many = tuple(f"t{n}" for n in range(MOST_BEFORE))
    ports.election.in_znode = of(7, 1, lineage=Lineage("lost", 5, many))
    before = recovery.first_checkpoint(gone_on_from(recovery)).lineage.before
    assert before == (*many[1:], "lost")


def test_the_first_topic_has_none_before_it(ports: FakePorts, recovery: Recovery) -> None:
    assert recovery.first_checkpoint(gone_on_from(recovery)).lineage == TOPIC


def test_the_lineage_is_read_after_the_topic(ports: FakePorts, recovery: Recovery) -> None:
    """Should it lose its end meanwhile, who goes on without that stands on the leader that has lost it."""
    led_anew = Lineage("topic", TOPIC.leader_epoch + 1)

    def lead_anew() -> None:
        ports.log.stands_on = led_anew

    ports.log.while_read = lead_anew
    assert recovery.first_checkpoint(gone_on_from(recovery)).lineage == led_anew
