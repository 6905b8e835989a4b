"""The audit of a lane whose clocks were ahead: what it delivered then stays settled, and a loss is a loss."""

from __future__ import annotations

import time
from typing import Any

import pytest

from delayline.settings import ClusterSettings
from tests.integration.audited import Audited, check_accounted
from tests.integration.histories import Delivery, History, Holding, Step, Transaction


class SteppedHistory(History):
    """One message is delivered by clocks that are ahead; then they are right, and others come in time."""

    def __init__(self, settings: ClusterSettings) -> None:
        super().__init__(settings)
        self.base_ms = time.time_ns() // 1_000_000 + 60_000
        self.ahead = self._schedule("ahead", 300)
        self.late, self.next, self.last = (self._schedule(f"at {second}", second) for second in (1, 30, 400))
        self.by_clocks_ahead = Transaction(delivers=self._each(self.ahead), passes=[self.ahead])
        self.rewind = Transaction(rewinds_to_ms=self._ms(10))
        self.of_late = Transaction(delivers=self._each(self.late))
        self.of_next = Transaction(delivers=self._each(self.next), passes=[self.next])
        self.of_last = Transaction(delivers=self._each(self.last), passes=[self.last])

    @property
    def steps(self) -> list[Step]:
        return [
            Transaction(first=True),
            *(self.ahead, self.by_clocks_ahead, self.rewind),
            *(self.late, self.next, self.last),
            *(self.of_late, self.of_next, self.of_last),
        ]


class HeldHistory(SteppedHistory):
    """After the rewind the target is paused, until what is held is due behind the clock."""

    @property
    def steps(self) -> list[Step]:
        waits = [Holding(self.late, self.late)]
        return [
            Transaction(first=True),
            *(self.ahead, self.by_clocks_ahead, self.rewind),
            *(self.late, self.next, self.last, self.of_late),
            Transaction(passes=[self.next], holds=waits),
            Transaction(delivers=[Delivery(self.next, early_ms=-1_000)]),
            self.of_last,
        ]


@pytest.fixture
def history(cluster_name: str) -> SteppedHistory:
    return SteppedHistory(ClusterSettings(cluster=cluster_name, partitions=2))


def test_what_comes_in_its_time_after_a_step_back_is_accounted_for(
    history: SteppedHistory, audited: Audited
) -> None:
    check_accounted(audited(history).report, {"delivered": 4}, {})


def test_what_was_done_before_a_pause_is_none_of_its_holds(cluster_name: str, audited: Audited) -> None:
    history = HeldHistory(ClusterSettings(cluster=cluster_name, partitions=2))
    check_accounted(audited(history).report, {"delivered": 4}, {})


def test_what_is_lost_and_a_position_that_goes_back_without_a_step_are_found(
    history: SteppedHistory, audited: Audited
) -> None:
    nothing: dict[str, Any] = {"overruns": []}
    history.rewind.claims = nothing
    history.of_next.delivers = []
    found = audited(history).report.violations
    assert {one.kind for one in found} == {"checkpoint_moved_back", "lost"}
    assert [one.source for one in found if one.kind == "lost"] == [history.next.source]
