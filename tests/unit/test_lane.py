"""What the lane's thread does once a leadership is over."""

from __future__ import annotations

from typing import Any

import pytest

from node.core.steps import Process, StepDown
from node.lane import LaneWorker


class FakeParts:
    """All that a lane works with, as far as a leadership's end asks for it; `calls` is what it asked for."""

    def __init__(self, why: StepDown, known: StepDown | None) -> None:
        """`why` the leadership ends; `known`: what the election says then."""
        self.calls: list[str] = []
        self.epoch = 1
        self._why = why
        self._known = known

    def run(self) -> Process[StepDown]:
        yield from ()
        return self._why

    def steps_down(self) -> StepDown | None:
        return self._known

    def forget_committed(self) -> None:
        self.calls.append("forgets")

    def leadership_ended(self) -> None:
        """It stands anew, perhaps."""

    def silence(self) -> None:
        """What has changed already is no news."""

    def wait(self, timeout_s: float | None = None) -> bool:
        self.calls.append("waits")
        return False


@pytest.mark.parametrize(
    ("why", "known", "calls"),
    [
        pytest.param(StepDown.RESIGNED, StepDown.RESIGNED, [], id="it has resigned"),
        pytest.param(StepDown.SUPERSEDED, StepDown.SUPERSEDED, ["forgets"], id="another leads"),
        pytest.param(StepDown.SUPERSEDED, None, ["forgets", "waits"], id="another has led since"),
        pytest.param(StepDown.UNCONFIRMED, None, ["waits"], id="nobody is known to lead"),
    ],
)
def test_a_lane_waits_only_where_nobody_has_said_who_leads_and_forgets_once_another_has_led(
    why: StepDown, known: StepDown | None, calls: list[str]
) -> None:
    parts: Any = FakeParts(why, known)
    lane = LaneWorker(parts, parts, parts, parts, parts, lambda: parts, parts, lambda _: None)

    lane._lead()

    assert parts.calls == calls
