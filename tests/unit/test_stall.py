"""A write that RocksDB goes on refusing, on a real store that is told to refuse."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from store import stall
from store.kv import Batch, Stalled
from store.rocks import RocksStore
from store.view import View
from tests.unit.view_records import SETTINGS, at, schedule, take


class RefusingStore(RocksStore):
    """Refuses writes until it is told to take them; `refused` is set by the third of them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.takes = threading.Event()
        self.refused = threading.Semaphore(0)

    def write(self, batch: Batch) -> None:
        if not self.takes.is_set():
            self.refused.release()
            raise Stalled("Write stall")
        super().write(batch)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RefusingStore:
    monkeypatch.setattr(stall, "LONG_S", 0.0)
    return RefusingStore(tmp_path / "store")


def test_a_write_that_is_refused_for_long_is_given_up_by_a_node_that_is_to_end(store: RefusingStore) -> None:
    view = View(store, [0], 0, SETTINGS)
    view.guard.stopping.set()
    with pytest.raises(Stalled):
        take(view, at(0, 0, schedule(2_000)))


def test_a_write_that_is_refused_for_long_is_said_once_and_that_it_is_over(store: RefusingStore) -> None:
    view = View(store, [0], 0, SETTINGS)
    writer = threading.Thread(target=lambda: take(view, at(0, 0, schedule(2_000))))
    with capture_logs() as said:
        writer.start()
        for _ in range(4):
            assert store.refused.acquire(timeout=10)
        store.takes.set()
        writer.join()
    assert [line["event"] for line in said] == ["store-stalled", "store-stall-ended"]
