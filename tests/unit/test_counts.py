"""What waits is counted once, wherever overruns, holds and late rows lie: against a walk over all rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from delayline.times import MINUTE_MS
from store import keys
from store.keys import RowKey
from store.lookup import Lookup, Query
from store.overdue import counted, scans
from store.rows import row_tag, target_of
from store.selection import Limits, Paused
from store.view import View
from tests.unit.view_records import at, cancel, deliver, new_view, schedule, take
from tests.unit.view_steps import rewind

TARGETS = ("orders", "bills", "mails")
BEGIN_MS = 1_440 * MINUTE_MS
STEPS = 40


class Lane:
    """A view to which things happen at random."""

    def __init__(self, view: View, seed: int) -> None:
        self.view = view
        self.random = Random(seed)
        self.now_ms = BEGIN_MS
        self._next = {0: 0, 1: 0}
        self._paused = Paused()

    def live(self) -> None:
        """A step: the clock goes on, and something else happens."""
        self.now_ms += self.random.randint(1, MINUTE_MS // 2)
        happens = self.random.choice((self._ingest, self._ingest, self._deliver, self._deliver, self._pause))
        happens()
        if self.random.random() < 0.15:
            self._jump()

    def _ingest(self) -> None:
        for _ in range(self.random.randint(1, 6)):
            partition = self.random.randint(0, 1)
            due_ms = self.now_ms + self.random.randint(-MINUTE_MS, 4 * MINUTE_MS)
            id_ = self.random.choice((None, *"abcdef"))
            request = schedule(due_ms, id_, target=self.random.choice(TARGETS))
            cancels = id_ is not None and self.random.random() < 0.4
            arrives = cancel(id_) if id_ is not None and cancels else request
            take(self.view, at(partition, self._next[partition], arrives, BEGIN_MS - MINUTE_MS))
            self._next[partition] += 1

    def _deliver(self) -> None:
        limits = Limits(self.random.choice((3, 1_000)), 1 << 20, carried_ms=10 * MINUTE_MS)
        deliver(self.view, self.now_ms, limits, self._paused)

    def _pause(self) -> None:
        targets = self.random.sample(TARGETS, self.random.randint(0, 2))
        self._paused = Paused(frozenset(targets))

    def _jump(self) -> None:
        """A clock that is ahead for one selection; then the position is rewound."""
        now_ms = self.now_ms
        self.now_ms += self.random.randint(0, 3 * MINUTE_MS)
        self._deliver()
        self.now_ms = now_ms
        tip = self.view.tip
        if tip.position is not None and len(tip.overruns) < 8:
            rewind(self.view, now_ms)

    def waiting(self) -> dict[RowKey, str | None]:
        """The rows that are not done, with their targets: all of them are looked at."""
        tip = self.view.tip
        rows = self.view.snapshot(lambda kv, *_: kv.scan(keys.ROW, keys.end_of(keys.ROW)))
        found = ((keys.timed(raw_key), raw) for raw_key, raw in rows)
        return {key: target_of(raw) for key, raw in found if not tip.done(key, row_tag(raw))}

    def held(self) -> int:
        """Those of them that were passed."""
        return sum(self.view.tip.passed(key) for key in self.waiting())


@pytest.fixture(params=range(12))
def lane(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lane]:
    view = new_view(tmp_path / "view")
    yield Lane(view, request.param)
    view.close()


def test_what_is_listed_is_what_is_not_done(lane: Lane) -> None:
    for _ in range(STEPS):
        lane.live()
        page, wanted = Lookup(lane.view).page(Query(), None, 1_000), lane.waiting()
        assert [key for key, _ in page.rows] == sorted(wanted)
        assert page.total is not None
        assert page.total.count == len(wanted)


def test_so_is_what_is_listed_of_a_time_or_a_target(lane: Lane) -> None:
    for _ in range(STEPS):
        lane.live()
        begin_ms = lane.now_ms + lane.random.randint(-3 * MINUTE_MS, 3 * MINUTE_MS)
        query = Query(begin_ms, begin_ms + 2 * MINUTE_MS, lane.random.choice((None, *TARGETS)))
        wanted = [
            key
            for key, target in lane.waiting().items()
            if query.covers(key) and query.target in {None, target}
        ]
        page = Lookup(lane.view).page(query, None, 1_000)
        assert page.total is not None
        assert ([key for key, _ in page.rows], page.total.count) == (sorted(wanted), len(wanted))


def test_what_is_pending_is_what_is_not_done(lane: Lane) -> None:
    for _ in range(STEPS):
        lane.live()
        gone = sum(hold.rows for hold in lane.view.tip.holds) - lane.held()
        assert gone >= 0
        assert lane.view.pending() - gone == len(lane.waiting())


def test_what_falls_due_is_what_is_not_done(lane: Lane) -> None:
    for _ in range(STEPS):
        lane.live()
        _, _, due = Lookup(lane.view).due(lane.now_ms)
        not_held = len(lane.waiting()) - lane.held()
        assert due.overdue + sum(due.days.counts.values()) == not_held


def test_what_is_overdue_is_what_is_due_and_not_done(lane: Lane) -> None:
    for _ in range(STEPS):
        lane.live()
        found = lane.view.snapshot(lambda kv, frontier, _: scans(kv, frontier, lane.now_ms))
        tip = lane.view.tip
        wanted = [key for key in lane.waiting() if key[0] <= lane.now_ms and not tip.passed(key)]
        assert counted(found, lane.now_ms).rows == len(wanted)
