"""The delivery core against ports that do what they are asked at once; the simulation does the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

import pytest
import structlog

from delayline.names import ClusterNames
from node.delivery import HEARTBEAT_MS, Config, Delivery, Step, Wait
from node.ports import Outgoing
from store.checkpoint import Checkpoint, Vector
from store.view import View
from tests.unit.view_records import MANY, at, new_view, schedule, take

NAMES = ClusterNames("delay")


class World:
    """Every port but the store: nothing fails, and commits are known at once."""

    def __init__(self) -> None:
        self.now = 1_000_000
        self.sent: list[Outgoing] = []
        self.checkpoints: list[Checkpoint] = []
        self.ends: Vector = {}

    def now_ms(self) -> int:
        return self.now

    # the election
    def confirm(self) -> bool:
        return True

    def resigning(self) -> bool:
        return False

    def mirrored(self) -> Checkpoint | None:
        return None

    def mirror(self, checkpoint: Checkpoint) -> None:
        """There is no mirror."""

    # the log
    def last_checkpoint(self) -> Checkpoint | None:
        return self.checkpoints[-1] if self.checkpoints else None

    def stable_ends(self) -> Vector:
        return self.ends

    # the targets
    def learn(self, topics: AbstractSet[str]) -> None:
        """All are there."""

    def require(self, topics: frozenset[str]) -> None:
        """All are there."""

    def doubt(self) -> None:
        """They still are."""

    def problem(self, topic: str, partition: int, *, keyed: bool, size_bytes: int) -> tuple[str, str] | None:
        return None

    # the outbox, its transaction, and its commit
    def drop(self) -> None:
        """There is nothing to drop."""

    def open(self) -> None:
        """It is open."""

    def begin(self) -> World:
        return self

    def send(self, records: Sequence[Outgoing]) -> None:
        self.sent += records

    def flush(self) -> Vector:
        return {}

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        self.checkpoints.append(checkpoint)

    def commit(self) -> World:
        return self

    def done(self) -> bool:
        return True

    def result(self) -> None:
        """It is committed."""


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def view(tmp_path: Path) -> Iterator[View]:
    view = new_view(tmp_path / "store")
    yield view
    view.close()


@pytest.fixture
def delivery(world: World, view: View) -> Delivery:
    return Delivery(Config("a", 0, NAMES, MANY, 500), view, world, world, world, world, world)


def run_to_wait(mastership: Iterator[Step | Wait]) -> Wait:
    """Goes on until there is nothing to do."""
    return next(step for step in mastership if isinstance(step, Wait))


def test_a_master_whose_clock_is_set_back_goes_on_with_heartbeats_and_delivers_nothing(
    world: World, view: View, delivery: Delivery
) -> None:
    mastership = delivery.run()
    take(view, at(0, 0, schedule(world.now - 1)))
    run_to_wait(mastership)
    assert len(world.sent) == 1
    take(view, at(0, 1, schedule(world.now)))
    world.now -= 600_000
    known = len(world.checkpoints)
    waits = []
    for _ in range(3):
        waits.append(run_to_wait(mastership))
        world.now += HEARTBEAT_MS
    assert len(world.checkpoints) == known + 2
    assert all(wait.until_ms is not None and wait.until_ms < world.now + HEARTBEAT_MS for wait in waits)
    assert len(world.sent) == 1


def test_a_topic_that_has_lost_its_tail_decides_and_it_is_said(
    world: World, view: View, delivery: Delivery
) -> None:
    take(view, at(0, 0, schedule(world.now - 1)))
    mastership = delivery.run()
    run_to_wait(mastership)
    mastership.close()
    world.checkpoints = world.checkpoints[:1]  # only the first of the epoch is left
    with structlog.testing.capture_logs() as said:
        run_to_wait(delivery.run())
    assert [line["log_level"] for line in said if line["event"] == "checkpoint-topic-lost"] == ["error"]
    assert len(world.sent) == 2, "again"
