"""What a batch asks of the store is read before the view is locked, on a real RocksDB."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from delayline.times import MINUTE_MS
from delayline.wire import Request, Schedule
from store import keys
from store.kv import Batch, Stalled
from store.pending import MOST_CACHED
from store.rocks import RocksStore
from store.view import View
from tests.unit.view_records import MANY, SETTINGS, at, cancel, deliver, reschedule, schedule, take

HOUR_MS = 3_600_000


class WatchedStore(RocksStore):
    """Notes what is looked up while the view is locked, and can be told to do something else in between."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.view: View | None = None
        self.under_lock: list[bytes] = []
        self.stalls = 0
        self.after_look_up: Callable[[], object] | None = None

    def get(self, key: bytes) -> bytes | None:
        # The control that a dropped request makes true is one entry; no user can send such a request.
        if self.view is not None and self.view.guard.lock.locked() and key[:1] != keys.PENDING_ANSWER:
            self.under_lock.append(key)
        return super().get(key)

    def get_many(self, wanted: list[bytes]) -> list[bytes | None]:
        assert self.view is None or not self.view.guard.lock.locked()
        found = super().get_many(wanted)
        if self.after_look_up is not None:
            then, self.after_look_up = self.after_look_up, None
            then()
        return found

    def write(self, batch: Batch) -> None:
        if self.stalls:
            self.stalls -= 1
            raise Stalled("Write stall")
        super().write(batch)


@pytest.fixture
def store(tmp_path: Path) -> WatchedStore:
    return WatchedStore(tmp_path / "store")


@pytest.fixture
def view(store: WatchedStore) -> View:
    store.view = View(store, [0, 1], 0, SETTINGS)
    return store.view


def test_nothing_is_looked_up_while_the_view_is_locked_for_a_batch(store: WatchedStore, view: View) -> None:
    known = [at(0, n, schedule(HOUR_MS * n, f"id-{n}")) for n in range(40)]
    take(view, *known, *(at(0, 40 + n, cancel(f"id-{n}")) for n in range(10)))
    keep: Schedule = schedule(HOUR_MS)._replace(keep=True)
    batch: list[Request] = [
        *(schedule(HOUR_MS * n, f"new-{n}") for n in range(MOST_CACHED)),
        *(schedule(HOUR_MS * n, f"id-{n}") for n in range(20)),
        *(cancel(f"id-{n}") for n in range(15, 25)),
        *(keep._replace(id=f"id-{n}") for n in range(20, 40)),
        *(schedule(HOUR_MS * n, f"id-{n}", parent=n) for n in range(5, 35)),
        *(reschedule(f"id-{n}", HOUR_MS) for n in range(5)),
        *(schedule(HOUR_MS, "twice"), schedule(HOUR_MS, "twice"), cancel("twice"), cancel("never")),
    ]
    for begin in range(2):  # what the first has put into memory is not what the second needs
        store.under_lock.clear()
        take(view, *(at(0, 50 + begin * len(batch) + n, one) for n, one in enumerate(batch)))
        assert store.under_lock == []


def test_a_batch_that_stalls_does_not_find_itself(store: WatchedStore, view: View) -> None:
    store.stalls = 2
    take(view, at(0, 0, schedule(2_000, "a")))
    assert deliver(view, 3_000).answers == []  # it replaces nothing


def test_an_id_that_is_forgotten_while_a_batch_is_looked_up_is_looked_up_again(
    store: WatchedStore, view: View
) -> None:
    take(view, at(0, 0, schedule(2_000, "a")), at(0, 1, schedule(9_000), timestamp_ms=9_000))
    deliver(view, 9_000)
    view.prune()
    expired = view.forgetting.expired(10)
    assert [entry.whose for _, entry, _ in expired] == [["a"]]
    store.after_look_up = lambda: view.forgetting.collect(expired, {0: 2})
    take(view, at(0, 2, cancel("a"), timestamp_ms=9_500))
    (answer,) = view.select(10_000, MANY).answers
    assert answer.pending.removed is None


def test_counts_that_are_read_ahead_are_those_of_before_the_batch(view: View) -> None:
    minutes = range(MOST_CACHED + 2)
    for begin in (0, 1):
        arrivals = [
            at(0, begin * len(minutes) + n, schedule(n * MINUTE_MS + 2_000, f"{begin}-{n}")) for n in minutes
        ]
        take(view, *arrivals)
    assert view.pending() == 2 * len(minutes)
