"""The delivery core against ports that do what they are asked at once; the simulation does the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec
import pytest

from delayline.names import ClusterNames
from delayline.rejects import Code, RejectCode
from delayline.signing import Keyring
from delayline.wire import H_ERROR
from node.core.delivery import HEARTBEAT_MS, Config, Delivery
from node.core.ports import UNKNOWN, Doubtful, Offsets, Outgoing, Pauses, RecordRefused, SelectionTargets
from node.core.steps import Step, Wait
from store.checkpoint import Checkpoint, Lineage, Vector
from store.holds import MOST_HOLDS
from store.selection import Limits
from store.view import View
from tests.support.keys import KEYRING
from tests.unit.view_records import MANY, at, reschedule, schedule, take

NAMES = ClusterNames("delay")
SKEW_MS = 500
HOUR_MS = 3_600_000
ONE = Limits(1, 1 << 20)


class World:
    """Every port but the store: nothing fails, and commits are known at once."""

    def __init__(self) -> None:
        self.now = 1_000_000
        self.set_by = self.off_ms = self.shown_off_ms = 0
        self.sent: list[Outgoing] = []
        self.checkpoints: list[Checkpoint] = []
        self.ends: Vector = {}
        self.found = Lineage("topic", 3)
        self.paused = Pauses()
        self.calls: list[str] = []  # of the transactions
        self.buffer_takes_bytes = 1 << 20
        self.clock_offset_ms = 0
        self.while_sent: Callable[[], None] = lambda: None
        self.while_flushed: Callable[[], None] = lambda: None
        self.doubts = 0
        self.looks = self.knows_at_look = 0

    def now_ms(self) -> int:
        return self.now

    def steady_ms(self) -> int:
        return self.now - self.set_by

    def set_clock(self, by_ms: int, *, off_ms: int) -> None:
        """And how far ahead of the brokers' clock it is then, as its next checkpoint shows."""
        self.now += by_ms
        self.set_by += by_ms
        self.off_ms = off_ms

    # the election
    def confirm(self) -> bool:
        return True

    def resigning(self) -> bool:
        return abs(self.clock_offset_ms) > SKEW_MS

    def mirrored(self) -> None:
        """There is no mirror."""

    def mirror(self, checkpoint: Checkpoint) -> None:
        """There is no mirror."""

    # the log
    def last_checkpoint(self) -> Checkpoint | None:
        return self.checkpoints[-1] if self.checkpoints else None

    def lineage(self) -> Lineage:
        return self.found

    def last_stable_offsets(self) -> Vector:
        return self.ends

    def high_watermarks(self) -> Vector:
        return {0: 100, 1: 100}

    @property
    def ring(self) -> Keyring:
        return KEYRING

    # the operators
    def refresh(self) -> None:
        """They have said nothing."""

    def asked(self) -> None:
        """Nothing."""

    def pauses(self) -> Pauses:
        return self.paused

    # the targets
    is_complete = True

    def learn(self, wanted: SelectionTargets, *, waits: bool) -> World:
        self.looks += 1
        return self

    def require(self, topics: frozenset[str]) -> None:
        """All are there."""

    def invalidate(self) -> None:
        """They still are."""

    def ask_anew(self) -> None:
        """They still are."""
        self.doubts += 1

    def takes_any(self, topic: str, size_bytes: int) -> bool:
        return self.looks >= self.knows_at_look

    def problem(
        self, topic: str, partition: int, key: bytes | None, size_bytes: int
    ) -> tuple[Code, str] | None:
        if topic not in NAMES.own_topics and self.looks < self.knows_at_look:
            return UNKNOWN, f"nobody has said what {topic} is"
        fits = topic != NAMES.buffer or size_bytes <= self.buffer_takes_bytes
        return None if fits else (RejectCode.TOO_LARGE, f"{topic} takes less")

    # the outbox, its transaction, and its commit
    def drop(self) -> None:
        """There is nothing to drop."""

    def open(self) -> None:
        """It is open."""

    def begin(self) -> World:
        return self

    def send(self, records: Sequence[Outgoing]) -> None:
        self.calls.append("send")
        self.sent += records
        self.while_sent()

    def flush(self) -> Offsets:
        self.calls.append("flush")
        self.while_flushed()
        return {}

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        self.calls.append("first checkpoint" if checkpoint.first else "checkpoint")
        self.shown_off_ms = self.off_ms
        self.checkpoints.append(checkpoint)

    def commit(self) -> World:
        self.calls.append("commit")
        return self

    def done(self) -> bool:
        return True

    def result(self) -> None:
        self.clock_offset_ms = -self.shown_off_ms


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def delivery(world: World, view: View) -> Delivery:
    return new_delivery(world, view, MANY)


def new_delivery(world: World, view: View, limits: Limits) -> Delivery:
    config = Config("a", 0, NAMES, limits, SKEW_MS, 0, world)
    return Delivery(config, view, world, world, world, world, world, world)


def run_to_wait(leadership: Iterator[Step | Wait]) -> Wait:
    """Goes on until there is nothing to do."""
    return next(step for step in leadership if isinstance(step, Wait))


def test_a_leader_that_lacks_a_partition_of_which_the_last_one_has_read_waits_for_it(
    world: World, view: View, delivery: Delivery
) -> None:
    """It was added to the buffer, and this node has not heard of it yet."""
    leadership = delivery.run()
    run_to_wait(leadership)
    last = world.checkpoints[-1]
    world.checkpoints.append(msgspec.structs.replace(last, seen=last.seen | {2: 1}, applied={2: 1}))
    take(view, at(0, 0, schedule(world.now - 1)))
    leadership = new_delivery(world, view, MANY).run()
    for _ in range(3):
        assert run_to_wait(leadership).until_ms is None
    assert (world.sent, world.checkpoints[-1].seen[2]) == ([], 1)


def test_a_leader_whose_clock_is_set_back_a_little_waits_for_it(
    world: World, view: View, delivery: Delivery
) -> None:
    leadership = delivery.run()
    take(view, at(0, 0, schedule(world.now)))
    run_to_wait(leadership)
    take(view, at(0, 1, schedule(world.now)))
    world.now -= SKEW_MS
    assert run_to_wait(leadership).until_ms == world.now + SKEW_MS
    assert (len(world.sent), world.checkpoints[-1].overruns) == (1, ())


def test_what_the_buffer_would_refuse_is_a_dead_letter_and_nothing_of_it_is_tried(
    world: World, view: View, delivery: Delivery
) -> None:
    world.buffer_takes_bytes = 100
    leadership = delivery.run()
    run_to_wait(leadership)
    ids = "abc"
    take(view, *(at(0, n, schedule(world.now + HOUR_MS, id_)) for n, id_ in enumerate(ids)))
    take(view, *(at(0, 3 + n, reschedule(id_, world.now)) for n, id_ in enumerate(ids)))
    run_to_wait(leadership)
    found = [one.topic for one in world.sent if one.topic != NAMES.outcomes]
    assert (found, world.checkpoints[-1].epoch) == ([NAMES.dead_letter] * 3, 1)


def test_it_is_so_where_the_transaction_before_is_being_sent(world: World, view: View) -> None:
    """Then it was planned ahead: what is in flight is known before it is selected anew."""
    world.buffer_takes_bytes = 100
    delivery = new_delivery(world, view, Limits(2, 1 << 20))
    leadership = delivery.run()
    run_to_wait(leadership)
    take(view, at(0, 0, schedule(world.now + HOUR_MS, "a")))
    take(view, *(at(0, 1 + n, schedule(world.now - 1)) for n in range(2)))
    take(view, at(0, 3, reschedule("a", world.now), world.now))
    run_to_wait(leadership)
    found = [one.topic for one in world.sent if one.topic != NAMES.outcomes]
    assert (found, delivery.epoch) == (["orders", "orders", NAMES.dead_letter], 1)


def test_what_was_too_large_to_be_parked_is_delivered_once_its_target_is_known(
    world: World, view: View, delivery: Delivery
) -> None:
    world.buffer_takes_bytes = 100
    world.knows_at_look = 2
    take(view, at(0, 0, schedule(world.now)))
    run_to_wait(delivery.run())
    assert ([one.topic for one in world.sent], delivery.epoch) == (["orders"], 1)


def test_what_is_too_large_to_be_written_back_stays_held(
    world: World, view: View, delivery: Delivery
) -> None:
    world.buffer_takes_bytes = 100
    world.paused = Pauses(targets=frozenset({"orders"}))
    leadership = delivery.run()
    take(view, at(0, 0, schedule(world.now)))
    run_to_wait(leadership)
    world.now += 26 * HOUR_MS
    run_to_wait(leadership)
    world.paused = Pauses()
    run_to_wait(leadership)
    assert [one.topic for one in world.sent] == ["orders"]


def test_what_comes_late_behind_a_plan_that_is_given_up_goes_out_once(
    world: World, view: View, delivery: Delivery
) -> None:
    """It was late by the position of what was given up, and is due by the one that there is then."""
    problem, came = world.problem, list[int]()

    def meanwhile(topic: str, partition: int, key: bytes | None, size_bytes: int) -> tuple[Code, str] | None:
        found = problem(topic, partition, key, size_bytes)
        if found and topic == NAMES.buffer and not came:
            came.append(2)
            take(view, at(0, 2, schedule(world.now - 10, target="bills"), world.now - 10))
        return found

    world.buffer_takes_bytes = 100
    world.problem = meanwhile  # type: ignore[method-assign]
    leadership = delivery.run()
    run_to_wait(leadership)
    take(view, at(0, 0, schedule(world.now + HOUR_MS, "a")))
    take(view, at(0, 1, reschedule("a", world.now), world.now))
    run_to_wait(leadership)
    assert [one.topic for one in world.sent].count("bills") == 1


def test_who_goes_on_moving_what_is_too_large_keeps_nobody_waiting(
    world: World, view: View, delivery: Delivery
) -> None:
    """Each plan that is given up gives a client the time for one more."""
    problem, given_up = world.problem, list[int]()

    def meanwhile(topic: str, partition: int, key: bytes | None, size_bytes: int) -> tuple[Code, str] | None:
        found = problem(topic, partition, key, size_bytes)
        if found and topic == NAMES.buffer and not world.sent:
            given_up.append(2 + len(given_up))
            take(view, at(0, 1 + len(given_up), reschedule("a", world.now + HOUR_MS), world.now))
        return found

    world.buffer_takes_bytes = 100
    world.problem = meanwhile  # type: ignore[method-assign]
    leadership = delivery.run()
    run_to_wait(leadership)
    take(view, at(0, 0, schedule(world.now + HOUR_MS, "a")), at(0, 1, schedule(world.now, target="bills")))
    given_up.append(2)
    take(view, at(0, 2, reschedule("a", world.now + HOUR_MS), world.now))
    run_to_wait(leadership)
    assert (world.sent[0].topic, len(given_up) < 6) == ("bills", True)


def test_if_it_is_refused_then_its_dead_letter_says_so_and_is_whole(
    world: World, view: View, delivery: Delivery
) -> None:
    def refuse() -> None:
        world.while_sent = lambda: None
        raise RecordRefused(
            "it takes no such message", {(world.now, 0, 0): (RejectCode.UNDELIVERABLE, "it takes none")}
        )

    world.buffer_takes_bytes = 100
    world.knows_at_look = 2
    world.while_sent = refuse
    take(view, at(0, 0, schedule(world.now)))
    run_to_wait(delivery.run())
    letters = [one for one in world.sent if one.topic == NAMES.dead_letter]
    assert [(one.value, dict(one.headers)[H_ERROR]) for one in letters] == [(b"value", b"undeliverable")]


def ahead_together(world: World, view: View, delivery: Delivery) -> Iterator[Step | Wait]:
    """The leader's clock and the brokers' are an hour ahead, one message is delivered, both are set back; a
    heartbeat is to show that.
    """
    leadership = delivery.run()
    world.set_clock(HOUR_MS, off_ms=0)
    take(view, at(0, 0, schedule(world.now), world.now))
    run_to_wait(leadership)
    assert len(world.sent) == 1
    world.set_clock(-HOUR_MS, off_ms=0)
    run_to_wait(leadership)
    world.now += HEARTBEAT_MS
    return leadership


def test_what_is_due_by_a_clock_that_is_right_again_is_delivered(
    world: World, view: View, delivery: Delivery
) -> None:
    leadership = ahead_together(world, view, delivery)
    take(view, at(0, 1, schedule(world.now - 1)), at(0, 2, schedule(world.now + 1_000)))
    run_to_wait(leadership)
    assert len(world.sent) == 2
    world.now += HEARTBEAT_MS
    run_to_wait(leadership)
    assert len(world.sent) == 3


def test_what_was_delivered_by_a_clock_that_was_ahead_is_not_delivered_again(
    world: World, view: View, delivery: Delivery
) -> None:
    leadership = ahead_together(world, view, delivery)
    run_to_wait(leadership)
    for _ in range(2):
        world.now += HOUR_MS
        run_to_wait(leadership)
    assert len(world.sent) == 1
    assert world.checkpoints[-1].overruns == ()


def test_a_new_leader_goes_on_behind_what_a_clock_that_was_ahead_has_delivered(
    world: World, view: View, delivery: Delivery
) -> None:
    run_to_wait(ahead_together(world, view, delivery))
    take(view, at(0, 1, schedule(world.now)))
    run_to_wait(new_delivery(world, view, MANY).run())
    assert (len(world.sent), len(world.checkpoints[-1].overruns)) == (2, 1)


def test_what_a_clock_that_is_wrong_has_selected_is_not_committed(
    world: World, view: View, delivery: Delivery
) -> None:
    """It was sent beside the first checkpoint, whose commit shows that the clock is wrong."""
    take(view, at(0, 0, schedule(world.now + HOUR_MS)))
    world.set_clock(HOUR_MS, off_ms=HOUR_MS)
    list(delivery.run())
    assert len(world.sent) == 1
    assert [checkpoint.first for checkpoint in world.checkpoints] == [True]


def test_a_clock_that_was_set_ahead_is_shown_to_the_brokers_before_anything_is_selected(
    world: World, view: View, delivery: Delivery
) -> None:
    take(view, at(0, 0, schedule(world.now + HOUR_MS)))
    leadership = delivery.run()
    run_to_wait(leadership)
    world.calls.clear()
    world.set_clock(HOUR_MS, off_ms=0)
    run_to_wait(leadership)
    assert world.calls == ["send", "checkpoint", "commit", "send", "checkpoint", "commit"]
    assert len(world.sent) == 1


def test_a_clock_that_was_set_ahead_wrongly_ends_the_leadership_with_nothing_delivered(
    world: World, view: View, delivery: Delivery
) -> None:
    take(view, at(0, 0, schedule(world.now + HOUR_MS)))
    leadership = delivery.run()
    run_to_wait(leadership)
    world.set_clock(HOUR_MS, off_ms=HOUR_MS)
    list(leadership)
    assert world.sent == []


@pytest.mark.parametrize("due_in_ms", [HOUR_MS, 2 * HOUR_MS], ids=["due by then", "nothing due by then"])
def test_a_checkpoint_that_was_sent_before_the_clock_was_set_ahead_does_not_prove_it(
    world: World, view: View, delivery: Delivery, due_in_ms: int
) -> None:
    begun_ms = world.now
    take(view, at(0, 0, schedule(begun_ms + due_in_ms)))
    leadership = delivery.run()
    next(step for step in leadership if step == Step.AFTER_CHECKPOINT_RECORD)
    world.set_clock(HOUR_MS, off_ms=HOUR_MS)
    list(leadership)
    assert {checkpoint.position for checkpoint in world.checkpoints} == {None}
    assert max(checkpoint.delivered_up_to_ms for checkpoint in world.checkpoints) <= begun_ms


def test_a_commit_that_shows_a_wrong_clock_is_followed_by_none(world: World, view: View) -> None:
    """Nobody has set the clock: other brokers tell the time."""
    take(view, *(at(0, offset, schedule(world.now)) for offset in range(4)))
    world.while_sent = lambda: world.set_clock(0, off_ms=HOUR_MS)
    list(new_delivery(world, view, ONE).run())
    assert world.checkpoints[-1].position == (world.now, 0, 0)


def test_what_was_planned_anew_by_a_clock_that_was_set_ahead_is_given_up(world: World, view: View) -> None:
    """By that clock the second message has expired; it is asked again, once it is proven."""
    take(view, at(0, 0, schedule(world.now)), at(0, 1, schedule(world.now, expire_at_ms=world.now + 60_000)))
    leadership = new_delivery(world, view, ONE).run()
    begun = (step for step in leadership if step == Step.DURING_COMMIT)
    assert (next(begun), next(begun)) == (Step.DURING_COMMIT, Step.DURING_COMMIT)
    world.set_clock(HOUR_MS, off_ms=0)
    run_to_wait(leadership)
    assert [checkpoint.first for checkpoint in world.checkpoints] == [True, False, True, False]


def test_what_a_checkpoint_covers_that_the_topic_has_lost_is_not_delivered_again(
    world: World, view: View, delivery: Delivery
) -> None:
    take(view, at(0, 0, schedule(world.now - 1)))
    leadership = delivery.run()
    run_to_wait(leadership)
    leadership.close()
    del world.checkpoints[1:]
    run_to_wait(delivery.run())
    assert (len(world.sent), delivery.lost) == (1, True)


def test_a_leadership_stands_on_the_topic_that_it_has_found(
    world: World, view: View, delivery: Delivery
) -> None:
    take(view, at(0, 0, schedule(world.now - 1)))
    run_to_wait(delivery.run())
    assert {one.lineage for one in world.checkpoints} == {world.found}


LEADER = ["first checkpoint", "commit"]


def test_what_could_not_be_sent_in_time_is_tried_as_less(
    world: World, view: View, delivery: Delivery
) -> None:
    take(view, *(at(0, number, schedule(world.now)) for number in range(4)))
    failed: list[int] = []

    def fail_once() -> None:
        if not failed:
            failed.append(len(world.sent))
            raise Doubtful("it takes too long")

    world.while_sent = fail_once
    leadership = delivery.run()
    next(step for step in leadership if step is Step.AFTER_PRODUCE)
    assert (failed, len(world.sent)) == ([4], 6)


def test_what_comes_next_is_sent_once_all_before_it_is_acknowledged(world: World, view: View) -> None:
    take(view, *(at(0, offset, schedule(world.now - 1)) for offset in range(3)))
    run_to_wait(new_delivery(world, view, ONE).run())
    transaction = ["send", "flush", "checkpoint", "commit"]
    assert world.calls == LEADER + transaction * 3


def test_a_small_transaction_that_leaves_nothing_due_is_flushed_with_its_checkpoint(
    world: World, view: View, delivery: Delivery
) -> None:
    leadership = delivery.run()
    run_to_wait(leadership)
    world.calls.clear()
    take(view, at(0, 0, schedule(world.now - 1)))
    run_to_wait(leadership)
    assert world.calls == ["send", "checkpoint", "commit"]


def test_what_is_written_back_is_acknowledged_before_the_checkpoint(
    world: World, view: View, delivery: Delivery
) -> None:
    leadership = delivery.run()
    take(view, at(0, 0, schedule(world.now + 1_000, "order-17")))
    run_to_wait(leadership)
    world.calls.clear()
    take(view, at(0, 1, reschedule("order-17", world.now + 2_000)))
    run_to_wait(leadership)
    assert world.sent[-1].topic == NAMES.buffer
    assert world.calls == ["send", "flush", "checkpoint", "commit"]


def test_nothing_is_selected_ahead_while_the_clock_is_behind_the_position(world: World, view: View) -> None:
    def set_back_and_late() -> None:
        world.while_sent = lambda: None
        world.now -= 500
        take(view, at(0, 2, schedule(world.now + 400)))  # below the position, and not due yet

    take(view, *(at(0, offset, schedule(world.now)) for offset in range(2)))
    world.while_sent = set_back_and_late
    run_to_wait(new_delivery(world, view, ONE).run())
    assert len(world.sent) == 1


def test_a_plan_that_was_made_long_before_it_is_sent_is_made_anew(world: World, view: View) -> None:
    def slowly() -> None:
        world.now += 10_000

    take(view, at(0, 0, schedule(world.now)), at(0, 1, schedule(world.now, expire_at_ms=world.now + 5_000)))
    world.while_flushed = slowly
    run_to_wait(new_delivery(world, view, ONE).run())
    assert [record.topic for record in world.sent[:2]] == ["orders", NAMES.dead_letter]


def test_what_was_selected_before_a_pause_was_known_goes_out_though_it_is_planned_anew(
    world: World, view: View
) -> None:
    """Parked, it would be written back: up to a whole selection of what a hold could have held."""

    def slowly() -> None:
        world.now += 10_000
        world.paused = Pauses(targets=frozenset({"orders"}))

    take(view, *(at(0, offset, schedule(world.now)) for offset in range(3)))
    world.while_flushed = slowly
    run_to_wait(new_delivery(world, view, ONE).run())
    assert [record.topic for record in world.sent] == ["orders"] * 2
    assert [hold.rows for hold in world.checkpoints[-1].holds] == [1]


def test_once_a_pause_is_over_targets_are_looked_up_anew(
    world: World, view: View, delivery: Delivery
) -> None:
    """Whoever has paused a target may have made it meanwhile: by no older answer is it missing."""
    leadership = delivery.run()
    world.paused = Pauses(targets=frozenset({"orders", "bills"}))
    take(view, at(0, 0, schedule(world.now)))
    run_to_wait(leadership)
    assert world.doubts == 0
    world.paused = Pauses(targets=frozenset({"bills"}))
    world.while_sent = lambda: doubts_when_sent.append(world.doubts)
    doubts_when_sent: list[int] = []
    run_to_wait(leadership)
    assert (doubts_when_sent, world.doubts) == ([1], 1)


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
    world: World, view: View, delivery: Delivery, paused: Pauses, then: Pauses
) -> None:
    leadership = delivery.run()
    run_to_wait(leadership)
    for world.paused in (then, paused, then):
        run_to_wait(leadership)
    take(view, at(0, 0, schedule(world.now)))
    world.while_sent = lambda: doubts_when_sent.append(world.doubts)
    doubts_when_sent: list[int] = []
    run_to_wait(leadership)
    assert doubts_when_sent == [1]


def test_it_is_so_where_the_pause_was_known_to_another_leader_only(
    world: World, view: View, delivery: Delivery
) -> None:
    world.paused = Pauses(targets=frozenset({"orders"}))
    take(view, at(0, 0, schedule(world.now)))
    leadership = delivery.run()
    run_to_wait(leadership)
    leadership.close()
    world.paused = Pauses()
    world.while_sent = lambda: doubts_when_sent.append(world.doubts)
    doubts_when_sent: list[int] = []
    run_to_wait(new_delivery(world, view, MANY).run())
    assert doubts_when_sent == [1]
