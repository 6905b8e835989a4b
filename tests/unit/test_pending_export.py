"""The rounds of an export: when they end, and what stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from delayline.names import ClusterNames
from ops.errors import ConflictError
from ops.pending import export
from ops.pending.export import Exported
from ops.pending.line import Found
from ops.pending.listing import Listing, Rows
from ops.pending.pace import Pace
from tests.unit.test_pending_journal import CONFIG
from tests.unit.test_pending_line import line

SMALL = 100
LARGE = 13 << 20  # in base64, more than 16 MiB


class Cluster:
    """What waits, each message at its offset with the size of its value, and what becomes of cancels. Stands
    in for the log, the nodes and the taker.
    """

    def __init__(
        self, waiting: dict[int, int], outcome: str = "cancelled", *, ends_them: bool = True
    ) -> None:
        self.waiting = waiting
        self.gone = set[int]()  # whose requests are not in the log
        self.moving: list[int] = []  # in the next list one is missing, for each of these
        self._outcome, self._ends_them = outcome, ends_them
        self.config = CONFIG

    @property
    def names(self) -> Any:
        return ClusterNames("delay")

    def list_pending(self, *_: Any) -> Listing:
        listed = set(self.waiting)
        if self.moving:
            listed.discard(self.moving.pop())
        listing = Listing(messages=len(listed))
        for offset in listed:
            listing.rows.add(0, offset)
        listing.rows.sort()
        return listing

    def rows(self, wanted: Rows) -> Iterator[Found]:
        for offset, size in list(self.waiting.items()):
            if offset not in self.gone and wanted.meet(0, offset):
                yield Found((0, offset), offset, None, line(value=bytes(size)))

    def ask(self, number: int, found: Sequence[Found]) -> Sequence[Found]:
        return found

    def settle(self, found: Sequence[Found]) -> list[str]:
        for one in found if self._ends_them else ():
            del self.waiting[one.root]
        return [self._outcome for _ in found]


def run(
    cluster: Any, monkeypatch: pytest.MonkeyPatch, refuses: Callable[[Any], bool] | None = None
) -> Exported:
    monkeypatch.setattr(export, "list_pending", cluster.list_pending)
    return export._Mover(cluster, cluster, 0, Pace(1e9, print), refuses).run({0: 99})


def test_it_ends_once_nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster({1: SMALL, 2: SMALL})
    done = run(cluster, monkeypatch)
    assert (done.outcomes, done.too_large, cluster.waiting) == ({"cancelled": 2}, 0, {})


def test_what_is_on_its_way_while_a_list_is_made_is_taken_by_the_next_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster({1: SMALL})
    cluster.moving = [1]
    assert run(cluster, monkeypatch).outcomes == {"cancelled": 1}


def test_what_is_too_large_for_a_line_stays_and_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster({1: SMALL, 2: LARGE, 3: SMALL})
    done = run(cluster, monkeypatch)
    assert (done.outcomes, done.too_large, set(cluster.waiting)) == ({"cancelled": 2}, 1, {2})


def test_what_would_be_refused_by_now_stays_and_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster({1: SMALL, 2: SMALL + 1})
    done = run(cluster, monkeypatch, lambda message: len(message.value) == SMALL)
    assert (done.outcomes, done.would_be_refused, set(cluster.waiting)) == ({"cancelled": 1}, 1, {1})


def test_that_users_have_cancelled_all_that_was_left_is_no_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(Cluster({1: SMALL, 2: SMALL}, "unknown"), monkeypatch).outcomes == {"unknown": 2}


def test_what_waits_on_and_on_and_cannot_be_cancelled_is_a_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConflictError, match="1 messages wait and cannot be taken out"):
        run(Cluster({1: SMALL}, "unknown", ends_them=False), monkeypatch)


def test_that_a_request_is_not_in_the_log_is_said_once_all_else_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster({1: SMALL, 2: SMALL})
    cluster.gone = {2}
    with pytest.raises(ConflictError, match=r"1 messages wait whose requests .* delay.buffer/0/2:"):
        run(cluster, monkeypatch)
    assert set(cluster.waiting) == {2}
