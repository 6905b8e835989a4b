"""The delivery core against ports that do what they are asked at once; the simulation does the rest."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import msgspec
import pytest

from delayline.rejects import Code, RejectCode
from delayline.settings import ClusterSettings
from delayline.settings_versions import SettingsVersions
from delayline.times import DAY_MS
from delayline.wire import H_ERROR, Cancel
from node.core.delivery import HEARTBEAT_MS, Config, Delivery
from node.core.ports import Doubtful, Pauses, RecordRefused
from node.core.steps import Step, StepDown, Wait
from store.carrying import MOST_WALKED
from store.holds import MOST_HOLDS
from store.rocks import RocksStore
from store.selection import Limits
from store.told import Look, Told
from store.view import View
from tests.unit.core_ports import NAMES, FakePorts
from tests.unit.view_records import MANY, at, reschedule, schedule, take

NOW_MS = 1_000_000
SKEW_MS = 500
HOUR_MS = 3_600_000
ONE = Limits(1, 1 << 20)


@pytest.fixture
def ports() -> FakePorts:
    """Who is asked to step down by a wrong clock does so."""
    ports = FakePorts(NOW_MS)
    ports.election.to_step_down = lambda: (
        StepDown.RESIGNED if abs(ports.outbox.clock_offset_ms) > SKEW_MS else None
    )
    return ports


@pytest.fixture
def delivery(ports: FakePorts, view: View) -> Delivery:
    return new_delivery(ports, view, MANY)


def new_delivery(ports: FakePorts, view: View, limits: Limits) -> Delivery:
    config = Config("a", 0, NAMES, limits, SKEW_MS, 0, ports.keys, ports.age)
    return Delivery(
        config, view, ports.outbox, ports.log, ports.election, ports.targets, ports.operator, ports.clock
    )


def run_to_wait(leadership: Iterator[Step | Wait]) -> Wait:
    """Goes on until there is nothing to do."""
    return next(step for step in leadership if isinstance(step, Wait))


def test_a_leader_that_lacks_a_partition_of_which_the_last_one_has_read_waits_for_it(
    ports: FakePorts, view: View, delivery: Delivery
) -> None:
    """It was added to the buffer, and this node has not heard of it yet."""
    leadership = delivery.run()
    run_to_wait(leadership)
    last = ports.log.checkpoints[-1]
    ports.log.checkpoints.append(msgspec.structs.replace(last, seen=last.seen | {2: 1}, applied={2: 1}))
    take(view, at(0, 0, schedule(ports.clock.now - 1)))
    leadership = new_delivery(ports, view, MANY).run()
    for _ in range(3):
        assert run_to_wait(leadership).until_ms is None
    assert (ports.outbox.sent, ports.log.checkpoints[-1].seen[2]) == ([], 1)


def test_checkpoints_say_what_is_known_of_the_outcomes_topic_and_the_next_leaders_go_on_from_it(
    ports: FakePorts, view: View, delivery: Delivery
) -> None:
    leadership = delivery.run()
    run_to_wait(leadership)
    ports.age.look = Look("topic", 0, 5, 1, 900, NOW_MS)
    take(view, at(0, 0, schedule(ports.clock.now)))
    run_to_wait(leadership)
    ports.age.look = None
    leadership = new_delivery(ports, view, MANY).run()
    run_to_wait(leadership)
    ports.age.look = Look("anew", 0, 0, 1, None, NOW_MS + 1)
    take(view, at(0, 1, schedule(ports.clock.now)))
    run_to_wait(leadership)
    found = [told for told, _ in groupby(one.told for one in ports.log.checkpoints)]
    whole, anew = Told("topic", 0, 5, 1, NOW_MS, 0), Told("anew", 0, 0, 1, NOW_MS + 1, NOW_MS + 1)
    assert found == [None, whole, anew]


def test_a_lane_that_has_seen_something_does_not_believe_the_first_topic_that_it_finds(
    ports: FakePorts, view: View, delivery: Delivery
) -> None:
    leadership = delivery.run()
    run_to_wait(leadership)
    take(view, at(0, 0, schedule(ports.clock.now)))
    run_to_wait(leadership)
    ports.age.look = Look("topic", 0, 5, 1, 900, NOW_MS)
    take(view, at(0, 1, schedule(ports.clock.now)))
    run_to_wait(leadership)
    assert [one.told for one in ports.log.checkpoints[-2:]] == [None, Told("topic", 0, 5, 1, NOW_MS, NOW_MS)]


def test_a_checkpoint_goes_by_a_look_from_before_what_its_transaction_tells(
    ports: FakePorts, view: View, delivery: Delivery
) -> None:
    leadership = delivery.run()
    run_to_wait(leadership)
    ports.age.look = Look("topic", 0, 0, 1, None, NOW_MS)

    def made_anew() -> None:
        ports.age.look = Look("anew", 0, 0, 1, None, NOW_MS)

    ports.outbox.while_sent = made_anew
    take(view, at(0, 0, schedule(ports.clock.now)))
    run_to_wait(leadership)
    assert ports.log.checkpoints[-1].told == Told("topic", 0, 0, 1, NOW_MS, 0)


def test_a_leader_whose_clock_is_set_back_a_little_waits_for_it(
    ports: FakePorts, view: View, delivery: Delivery
) -> None:
    leadership = delivery.run()
    take(view, at(0, 0, schedule(ports.clock.now)))
    run_to_wait(leadership)
    take(view, at(0, 1, schedule(ports.clock.now)))
    ports.clock.now -= SKEW_MS
    assert run_to_wait(leadership).until_ms == ports.clock.now + SKEW_MS
    assert (len(ports.outbox.sent), ports.log.checkpoints[-1].overruns) == (1, ())


def test_what_the_buffer_would_refuse_is_a_dead_letter_and_nothing_of_it_is_tried(
    ports: FakePorts, view: View, delivery: Delivery
) -> None:
    ports.targets.buffer_takes_bytes = 100
    leadership = delivery.run()
    run_to_wait(leadership)
    ids = "abc"
    take(view, *(at(0, n, schedule(ports.clock.now + HOUR_MS, id_)) for n, id_ in enumerate(ids)))
    take(view, *(at(0, 3 + n, reschedule(id_, ports.clock.now)) for n, id_ in enumerate(ids)))
    run_to_wait(leadership)
    found = [one.topic for one in ports.outbox.sent if one.topic != NAMES.outcomes]
    assert (found, ports.log.checkpoints[-1].epoch) == ([NAMES.dead_letter] * 3, 1)


def test_it_is_so_where_the_transaction_before_is_being_sent(ports: FakePorts, view: View) -> None:
    """Then it was planned ahead: what is in flight is known before it is selected anew."""
    ports.targets.buffer_takes_bytes = 100
    delivery = new_delivery(ports, view, Limits(2, 1 << 20))
    leadership = delivery.run()
    run_to_wait(leadership)
    take(view, at(0, 0, schedule(ports.clock.now + HOUR_MS, "a")))
    take(view, *(at(0, 1 + n, schedule(ports.clock.now - 1)) for n in range(2)))
    take(view, at(0, 3, reschedule("a", ports.clock.now), ports.clock.now))
    run_to_wait(leadership)
    found = [one.topic for one in ports.outbox.sent if one.topic != NAMES.outcomes]
    assert (found, delivery.epoch) == (["orders", "orders", NAMES.dead_letter], 1)


def test_what_was_too_large_to_be_parked_is_delivered_once_its_target_is_known(
    ports: FakePorts, view: View, delivery: Delivery
) -> None:
    ports.targets.buffer_takes_bytes = 100
    ports.targets.knows_at_look = 2
    take(view, at(0, 0, schedule(ports.clock.now)))
    run_to_wait(delivery.run())
    assert ([one.topic for one in ports.outbox.sent], delivery.epoch) == (["orders"], 1)


def test_what_is_too_large_to_be_written_back_stays_held(
    ports: FakePorts, view: View, delivery: Delivery
) -> None:
    ports.targets.buffer_takes_bytes = 100
    ports.operator.paused = Pauses(targets=frozenset({"orders"}))
    leadership = delivery.run()
    take(view, at(0, 0, schedule(ports.clock.now)))
    run_to_wait(leadership)
    ports.clock.pass_by(26 * HOUR_MS)
    run_to_wait(leadership)
    ports.operator.paused = Pauses()
    run_to_wait(leadership)
    assert [one.topic for one in ports.outbox.sent] == ["orders"]


def test_what_comes_late_behind_a_plan_that_is_given_up_goes_out_once(
    ports: FakePorts, view: View, delivery: Delivery
) -> None:
    """It was late by the position of what was given up, and is due by the one that there is then."""
    problem, came = ports.targets.problem, list[int]()

    def meanwhile(topic: str, partition: int, key: bytes | None, size_bytes: int) -> tuple[Code, str] | None:
        found = problem(topic, partition, key, size_bytes)
        if found and topic == NAMES.buffer and not came:
            came.append(2)
            take(view, at(0, 2, schedule(ports.clock.now - 10, target="bills"), ports.clock.now - 10))
        return found

    ports.targets.buffer_takes_bytes = 100
    ports.targets.problem = meanwhile  # type: ignore[method-assign]
    leadership = delivery.run()
    run_to_wait(leadership)
    take(view, at(0, 0, schedule(ports.clock.now + HOUR_MS, "a")))
    take(view, at(0, 1, reschedule("a", ports.clock.now), ports.clock.now))
    run_to_wait(leadership)
    assert [one.topic for one in ports.outbox.sent].count("bills") == 1


def test_who_goes_on_moving_what_is_too_large_keeps_nobody_waiting(
    ports: FakePorts, view: View, delivery: Delivery
) -> None:
    """Each plan that is given up gives a client the time for one more."""
    problem, given_up = ports.targets.problem, list[int]()

    def meanwhile(topic: str, partition: int, key: bytes | None, size_bytes: int) -> tuple[Code, str] | None:
        found = problem(topic, partition, key, size_bytes)
        if found and topic == NAMES.buffer and not ports.outbox.sent:
            given_up.append(2 + len(given_up))
            take(view, at(0, 1 + len(given_up), reschedule("a", ports.clock.now + HOUR_MS), ports.clock.now))
        return found

    ports.targets.buffer_takes_bytes = 100
    ports.targets.problem = meanwhile  # type: ignore[method-assign]
    leadership = delivery.run()
    run_to_wait(leadership)
    take(
        view,
        at(0, 0, schedule(ports.clock.now + HOUR_MS, "a")),
        at(0, 1, schedule(ports.clock.now, target="bills")),
    )
    given_up.append(2)
    take(view, at(0, 2, reschedule("a", ports.clock.now + HOUR_MS), ports.clock.now))
    run_to_wait(leadership)
    assert (ports.outbox.sent[0].topic, len(given_up) < 6) == ("bills", True)


def test_if_it_is_refused_then_its_dead_letter_says_so_and_is_whole(
    ports: FakePorts, view: View, delivery: Delivery
) -> None:
    def refuse() -> None:
        ports.outbox.while_sent = lambda: None
        raise RecordRefused(
            "it takes no such message", {(ports.clock.now, 0, 0): (RejectCode.UNDELIVERABLE, "it takes none")}
        )

    ports.targets.buffer_takes_bytes = 100
    ports.targets.knows_at_look = 2
    ports.outbox.while_sent = refuse
    take(view, at(0, 0, schedule(ports.clock.now)))
    run_to_wait(delivery.run())
    letters = [one for one in ports.outbox.sent if one.topic == NAMES.dead_letter]
    assert [(one.value, dict(one.headers)[H_ERROR]) for one in letters] == [(b"value", b"undeliverable")]


def ahead_together(ports: FakePorts, view: View, delivery: Delivery) -> Iterator[Step | Wait]:
    """The leader's clock and the brokers' are an hour ahead, one message is delivered, both are set back; a
    heartbeat is to show that.
    """
    leadership = delivery.run()
    ports.set_clock(HOUR_MS, off_ms=0)
    take(view, at(0, 0, schedule(ports.clock.now), ports.clock.now))
    run_to_wait(leadership)
    assert len(ports.outbox.sent) == 1
    ports.set_clock(-HOUR_MS, off_ms=0)
    run_to_wait(leadership)
    ports.clock.pass_by(HEARTBEAT_MS)
    return leadership


def test_what_is_due_by_a_clock_that_is_right_again_is_delivered(
    ports: FakePorts, view: View, delivery: Delivery
) -> None:
    leadership = ahead_together(ports, view, delivery)
    take(view, at(0, 1, schedule(ports.clock.now - 1)), at(0, 2, schedule(ports.clock.now + 1_000)))
    run_to_wait(leadership)
    assert len(ports.outbox.sent) == 2
    ports.clock.pass_by(HEARTBEAT_MS)
    run_to_wait(leadership)
    assert len(ports.outbox.sent) == 3


def test_what_was_delivered_by_a_clock_that_was_ahead_is_not_delivered_again(
    ports: FakePorts, view: View, delivery: Delivery
) -> None:
    leadership = ahead_together(ports, view, delivery)
    run_to_wait(leadership)
    for _ in range(2):
        ports.clock.pass_by(HOUR_MS)
        run_to_wait(leadership)
    assert len(ports.outbox.sent) == 1
    assert ports.log.checkpoints[-1].overruns == ()


def test_a_new_leader_goes_on_behind_what_a_clock_that_was_ahead_has_delivered(
    ports: FakePorts, view: View, delivery: Delivery
) -> None:
    run_to_wait(ahead_together(ports, view, delivery))
    take(view, at(0, 1, schedule(ports.clock.now)))
    run_to_wait(new_delivery(ports, view, MANY).run())
    assert (len(ports.outbox.sent), len(ports.log.checkpoints[-1].overruns)) == (2, 1)


def test_what_a_clock_that_is_wrong_has_selected_is_not_committed(
    ports: FakePorts, view: View, delivery: Delivery
) -> None:
    """It was sent beside the first checkpoint, whose commit shows that the clock is wrong."""
    take(view, at(0, 0, schedule(ports.clock.now + HOUR_MS)))
    ports.set_clock(HOUR_MS, off_ms=HOUR_MS)
    list(delivery.run())
    assert len(ports.outbox.sent) == 1
    assert [checkpoint.first for checkpoint in ports.log.checkpoints] == [True]


def test_a_clock_that_was_set_ahead_is_shown_to_the_brokers_before_anything_is_selected(
    ports: FakePorts, view: View, delivery: Delivery
) -> None:
    take(view, at(0, 0, schedule(ports.clock.now + HOUR_MS)))
    leadership = delivery.run()
    run_to_wait(leadership)
    ports.outbox.steps.clear()
    ports.set_clock(HOUR_MS, off_ms=0)
    run_to_wait(leadership)
    assert ports.outbox.steps == ["send", "checkpoint", "commit", "send", "checkpoint", "commit"]
    assert len(ports.outbox.sent) == 1


def test_a_clock_that_was_set_ahead_wrongly_ends_the_leadership_with_nothing_delivered(
    ports: FakePorts, view: View, delivery: Delivery
) -> None:
    take(view, at(0, 0, schedule(ports.clock.now + HOUR_MS)))
    leadership = delivery.run()
    run_to_wait(leadership)
    ports.set_clock(HOUR_MS, off_ms=HOUR_MS)
    list(leadership)
    assert ports.outbox.sent == []


@pytest.mark.parametrize("due_in_ms", [HOUR_MS, 2 * HOUR_MS], ids=["due by then", "nothing due by then"])
def test_a_checkpoint_that_was_sent_before_the_clock_was_set_ahead_does_not_prove_it(
    ports: FakePorts, view: View, delivery: Delivery, due_in_ms: int
) -> None:
    begun_ms = ports.clock.now
    take(view, at(0, 0, schedule(begun_ms + due_in_ms)))
    leadership = delivery.run()
    next(step for step in leadership if step == Step.AFTER_CHECKPOINT_RECORD)
    ports.set_clock(HOUR_MS, off_ms=HOUR_MS)
    list(leadership)
    assert {checkpoint.position for checkpoint in ports.log.checkpoints} == {None}
    assert max(checkpoint.delivered_up_to_ms for checkpoint in ports.log.checkpoints) <= begun_ms


def test_a_commit_that_shows_a_wrong_clock_is_followed_by_none(ports: FakePorts, view: View) -> None:
    """Nobody has set the clock: other brokers tell the time."""
    take(view, *(at(0, offset, schedule(ports.clock.now)) for offset in range(4)))
    ports.outbox.while_sent = lambda: ports.set_clock(0, off_ms=HOUR_MS)
    list(new_delivery(ports, view, ONE).run())
    assert ports.log.checkpoints[-1].position == (ports.clock.now, 0, 0)


def test_a_leader_that_another_node_has_succeeded_is_superseded(ports: FakePorts, delivery: Delivery) -> None:
    leadership = delivery.run()
    run_to_wait(leadership)
    ports.election.to_step_down = lambda: StepDown.SUPERSEDED
    with pytest.raises(StopIteration) as ended:
        next(leadership)
    assert ended.value.value is StepDown.SUPERSEDED


def test_what_was_planned_anew_by_a_clock_that_was_set_ahead_is_given_up(
    ports: FakePorts, view: View
) -> None:
    """By that clock the second message has expired; it is asked again, once it is proven."""
    take(
        view,
        at(0, 0, schedule(ports.clock.now)),
        at(0, 1, schedule(ports.clock.now, expire_at_ms=ports.clock.now + 60_000)),
    )
    leadership = new_delivery(ports, view, ONE).run()
    begun = (step for step in leadership if step == Step.DURING_COMMIT)
    assert (next(begun), next(begun)) == (Step.DURING_COMMIT, Step.DURING_COMMIT)
    ports.set_clock(HOUR_MS, off_ms=0)
    run_to_wait(leadership)
    assert [checkpoint.first for checkpoint in ports.log.checkpoints] == [True, False, True, False]


def test_what_a_checkpoint_covers_that_the_topic_has_lost_is_not_delivered_again(
    ports: FakePorts, view: View, delivery: Delivery
) -> None:
    take(view, at(0, 0, schedule(ports.clock.now - 1)))
    leadership = delivery.run()
    run_to_wait(leadership)
    leadership.close()
    del ports.log.checkpoints[1:]
    run_to_wait(delivery.run())
    assert (len(ports.outbox.sent), delivery.lost) == (1, True)


def test_a_leadership_stands_on_the_topic_that_it_has_found(
    ports: FakePorts, view: View, delivery: Delivery
) -> None:
    take(view, at(0, 0, schedule(ports.clock.now - 1)))
    run_to_wait(delivery.run())
    assert {one.lineage for one in ports.log.checkpoints} == {ports.log.stands_on}


LEADER = ["first checkpoint", "commit"]


def test_what_could_not_be_sent_in_time_is_tried_as_less(
    ports: FakePorts, view: View, delivery: Delivery
) -> None:
    take(view, *(at(0, number, schedule(ports.clock.now)) for number in range(4)))
    failed: list[int] = []

    def fail_once() -> None:
        if not failed:
            failed.append(len(ports.outbox.sent))
            raise Doubtful("it takes too long")

    ports.outbox.while_sent = fail_once
    leadership = delivery.run()
    next(step for step in leadership if step is Step.AFTER_PRODUCE)
    assert (failed, len(ports.outbox.sent)) == ([4], 6)


def test_what_comes_next_is_sent_once_all_before_it_is_acknowledged(ports: FakePorts, view: View) -> None:
    take(view, *(at(0, offset, schedule(ports.clock.now - 1)) for offset in range(3)))
    run_to_wait(new_delivery(ports, view, ONE).run())
    transaction = ["send", "flush", "checkpoint", "commit"]
    assert ports.outbox.steps == LEADER + transaction * 3


def test_a_small_transaction_that_leaves_nothing_due_is_flushed_with_its_checkpoint(
    ports: FakePorts, view: View, delivery: Delivery
) -> None:
    leadership = delivery.run()
    run_to_wait(leadership)
    ports.outbox.steps.clear()
    take(view, at(0, 0, schedule(ports.clock.now - 1)))
    run_to_wait(leadership)
    assert ports.outbox.steps == ["send", "checkpoint", "commit"]


def test_what_is_written_back_is_acknowledged_before_the_checkpoint(
    ports: FakePorts, view: View, delivery: Delivery
) -> None:
    leadership = delivery.run()
    take(view, at(0, 0, schedule(ports.clock.now + 1_000, "order-17")))
    run_to_wait(leadership)
    ports.outbox.steps.clear()
    take(view, at(0, 1, reschedule("order-17", ports.clock.now + 2_000)))
    run_to_wait(leadership)
    assert ports.outbox.sent[-1].topic == NAMES.buffer
    assert ports.outbox.steps == ["send", "flush", "checkpoint", "commit"]


def test_nothing_is_selected_ahead_while_the_clock_is_behind_the_position(
    ports: FakePorts, view: View
) -> None:
    def set_back_and_late() -> None:
        ports.outbox.while_sent = lambda: None
        ports.clock.now -= 500
        take(view, at(0, 2, schedule(ports.clock.now + 400)))  # below the position, and not due yet

    take(view, *(at(0, offset, schedule(ports.clock.now)) for offset in range(2)))
    ports.outbox.while_sent = set_back_and_late
    run_to_wait(new_delivery(ports, view, ONE).run())
    assert len(ports.outbox.sent) == 1


def test_a_plan_that_was_made_long_before_it_is_sent_is_made_anew(ports: FakePorts, view: View) -> None:
    def slowly() -> None:
        ports.clock.pass_by(10_000)

    take(
        view,
        at(0, 0, schedule(ports.clock.now)),
        at(0, 1, schedule(ports.clock.now, expire_at_ms=ports.clock.now + 5_000)),
    )
    ports.outbox.while_flushed = slowly
    run_to_wait(new_delivery(ports, view, ONE).run())
    assert [record.topic for record in ports.outbox.sent[:2]] == ["orders", NAMES.dead_letter]


def test_what_was_selected_before_a_pause_was_known_goes_out_though_it_is_planned_anew(
    ports: FakePorts, view: View
) -> None:
    """Parked, it would be written back: up to a whole selection of what a hold could have held."""

    def slowly() -> None:
        ports.clock.pass_by(10_000)
        ports.operator.paused = Pauses(targets=frozenset({"orders"}))

    take(view, *(at(0, offset, schedule(ports.clock.now)) for offset in range(3)))
    ports.outbox.while_flushed = slowly
    run_to_wait(new_delivery(ports, view, ONE).run())
    assert [record.topic for record in ports.outbox.sent] == ["orders"] * 2
    assert [hold.rows for hold in ports.log.checkpoints[-1].holds] == [1]


def test_once_a_pause_is_over_targets_are_looked_up_anew(
    ports: FakePorts, view: View, delivery: Delivery
) -> None:
    """Whoever has paused a target may have made it meanwhile: by no older answer is it missing."""
    leadership = delivery.run()
    ports.operator.paused = Pauses(targets=frozenset({"orders", "bills"}))
    take(view, at(0, 0, schedule(ports.clock.now)))
    run_to_wait(leadership)
    assert ports.targets.doubts == 0
    ports.operator.paused = Pauses(targets=frozenset({"bills"}))
    ports.outbox.while_sent = lambda: doubts_when_sent.append(ports.targets.doubts)
    doubts_when_sent: list[int] = []
    run_to_wait(leadership)
    assert (doubts_when_sent, ports.targets.doubts) == ([1], 1)


OTHERS = frozenset(f"target-{number}" for number in range(MOST_HOLDS))  # as many as are held


@pytest.mark.parametrize(
    ("paused", "then"),
    [
        (Pauses(everything=True), Pauses()),
        (Pauses(targets=OTHERS | {"orders"}), Pauses(targets=OTHERS)),
    ],
    ids=["of the cluster", "of one target too many"],
)
def test_it_is_so_where_the_pause_has_left_no_hold(
    ports: FakePorts, view: View, delivery: Delivery, paused: Pauses, then: Pauses
) -> None:
    leadership = delivery.run()
    run_to_wait(leadership)
    for ports.operator.paused in (then, paused, then):
        run_to_wait(leadership)
    take(view, at(0, 0, schedule(ports.clock.now)))
    ports.outbox.while_sent = lambda: doubts_when_sent.append(ports.targets.doubts)
    doubts_when_sent: list[int] = []
    run_to_wait(leadership)
    assert doubts_when_sent == [1]


def test_it_is_so_where_the_pause_was_known_to_another_leader_only(
    ports: FakePorts, view: View, delivery: Delivery
) -> None:
    ports.operator.paused = Pauses(targets=frozenset({"orders"}))
    take(view, at(0, 0, schedule(ports.clock.now)))
    leadership = delivery.run()
    run_to_wait(leadership)
    leadership.close()
    ports.operator.paused = Pauses()
    ports.outbox.while_sent = lambda: doubts_when_sent.append(ports.targets.doubts)
    doubts_when_sent: list[int] = []
    run_to_wait(new_delivery(ports, view, MANY).run())
    assert doubts_when_sent == [1]


def test_a_walk_for_what_is_to_be_carried_goes_on_before_the_next_heartbeat(
    ports: FakePorts, tmp_path: Path
) -> None:
    settings = SettingsVersions.of(ClusterSettings(partitions=2, dedup_window_ms=0, retention_ms=DAY_MS))
    view = View(RocksStore(tmp_path / "carries"), [0, 1], HOUR_MS, settings)
    last = 6 * MOST_WALKED
    for n in range(0, last, 2):
        take(view, at(0, n, schedule(NOW_MS + HOUR_MS)), at(0, n + 1, Cancel(None, n)))
    take(view, at(0, last, schedule(NOW_MS + HOUR_MS)))
    leadership = new_delivery(ports, view, MANY).run()
    run_to_wait(leadership)
    ports.age.offsets = {0: last + 1}
    carried_at_ms = 0
    while not carried_at_ms and ports.clock.now < NOW_MS + HOUR_MS // 2:
        wait = run_to_wait(leadership)
        carried = any(record.topic == NAMES.buffer for record in ports.outbox.sent)
        carried_at_ms = ports.clock.now if carried else 0
        assert wait.until_ms is not None
        ports.clock.pass_by(wait.until_ms - ports.clock.now)
    view.close()
    assert NOW_MS <= carried_at_ms < NOW_MS + 2 * HEARTBEAT_MS
