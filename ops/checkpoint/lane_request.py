"""What has become of a request to a lane's leader, as far as the lane's checkpoints tell
(store/operations.py).

Each checkpoint names the last request alone. So of an earlier one it is known that it was done if it was seen
under way, and nothing has come between that could have ended it. Of all else it is not, and not claimed.
"""

from __future__ import annotations

from dataclasses import dataclass

from delayline.times import render_time
from store.operations import Operation, OperatorRequest, Replay, ReplayRequest, SkipRequest, StopReplay


@dataclass(slots=True)
class LaneRequest:
    """A request in one lane, and how far it has come. `failed`: why it was not done, in words."""

    lane: int
    number: int
    request: OperatorRequest
    news: str | None = None
    failed: str | None = None
    over: bool = False
    _seen_at: int | None = None  # the last request's number when it was last seen under way

    def look(self, operation: Operation) -> bool:
        """Looks at a checkpoint's operation how far it has come; False if it was not taken up yet."""
        if operation.number < self.number:
            return False
        if operation.number == self.number and operation.refused is not None:
            self._fail(f"lane {self.lane} refuses: {operation.refused}")
        elif self._under_way(operation):
            self._seen_at = operation.number
            self.news = None if operation.replay is None else progress(operation.replay)
        elif operation.number == self.number or self._done_before(operation):
            self.news, self.over = f"request {self.number} is done", True
        else:
            self._fail(
                f"lane {self.lane}: request {self.number} was ended or taken back by request"
                f" {operation.number}: see 'delayline checkpoint history'"
            )
        return True

    def _under_way(self, operation: Operation) -> bool:
        if isinstance(self.request, ReplayRequest):
            return operation.replay is not None and operation.replay.number == self.number
        if isinstance(self.request, SkipRequest):
            return operation.skip_to is not None and operation.skip_to[0] + 1 == self.request.to_ms
        return False

    def _done_before(self, later: Operation) -> bool:
        """Whether it was done, though another request has been taken up since."""
        if isinstance(self.request, StopReplay):
            return True  # nothing goes before it, but a later one of its kind
        if self._seen_at is None:
            return False
        return later.number == self._seen_at or (
            later.number == self._seen_at + 1 and not self._ended_by(later)
        )

    def _ended_by(self, later: Operation) -> bool:
        ends = StopReplay if isinstance(self.request, ReplayRequest) else SkipRequest
        return later.refused is None and isinstance(later.request, ends)

    def _fail(self, why: str) -> None:
        self.failed, self.over = why, True


def described(request: OperatorRequest) -> str:
    """A request in words."""
    if isinstance(request, ReplayRequest):
        only = "" if request.target is None else f" to {request.target}"
        return f"replay from {_when(request.from_ms)} to {_when(request.to_ms)}{only}"
    return f"skip to {_when(request.to_ms)}" if isinstance(request, SkipRequest) else "cancel"


def progress(replay: Replay) -> str:
    """How far a replay has come, in words."""
    only = "" if replay.target is None else f" to {replay.target}"
    return (
        f"replay{only}, at {_when(replay.next[0])} of {_when(replay.last[0])}:"
        f" {replay.carried} messages delivered again"
    )


def _when(time_ms: int) -> str:
    try:
        return render_time(time_ms)
    except ValueError:
        return str(time_ms)  # after year 9999
