"""What became of the requests of one producer, as far as anybody still wants to know."""

from __future__ import annotations

import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Final
from weakref import WeakValueDictionary

from delayline.errors import NoOutcomeError
from delayline.outcome_kinds import PARKS

_log = logging.getLogger(__name__)

# Outcomes kept while they may be of requests whose acknowledgement is still to come; then reading pauses.
UNCLAIMED_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one request, as the leader of its lane decided and wrote it down.

    `outcome`: equal to one of `OutcomeKind`: `cancelled`, `replaced`, `rescheduled`, `too-late`, `overtaken`
    (a reschedule: a later request of its id stands), `unknown`, `duplicate`, `skipped`, or `dead-lettered`
    and `expired`, with the `code` (a `RejectCode`) and `detail` of why. (`parked` is none: what becomes of
    the message is decided later.) Both are the strings that were read: what only a newer service knows raises
    nothing, and is equal to none of these. `message`: the source of the message that was cancelled, replaced,
    moved or found too late; `root`: the user's own request behind that. `epoch`: the leader's. `at_ms`: when,
    epoch milliseconds by the leader's clock.
    """

    outcome: str
    code: str | None
    detail: str | None
    epoch: int
    at_ms: int
    message: str | None
    root: str | None

    @classmethod
    def decode(cls, raw: bytes) -> Outcome:
        """Read a record's value; ValueError if it is no outcome."""
        try:
            said = json.loads(raw)
            if not isinstance(said["outcome"], str) or not isinstance(said["root"], str | None):
                raise TypeError("its outcome, or its root, is no text")
            return cls(*[said[name] for name in _FIELDS])
        except (KeyError, TypeError) as error:
            raise ValueError(f"no outcome: {error!r}") from None


_FIELDS: Final = tuple(field.name for field in fields(Outcome))


class PendingOutcome:
    """The outcome of one request, once there is one.

    Its receipt holds it, the others only know of it: who drops the receipt has lost interest.
    """

    __slots__ = ("__weakref__", "_outcomes", "outcome")

    def __init__(self, outcomes: Outcomes) -> None:
        self._outcomes = outcomes
        self.outcome: Outcome | None = None

    @property
    def trouble(self) -> str | None:
        """What the client has last said of its difficulties in reading outcomes."""
        return self._outcomes.trouble

    def acknowledged(self, source: str) -> None:
        """From now on it is known which record of the outcomes topic answers the request."""
        self._outcomes.acknowledged(self, source)

    def failed(self) -> None:
        """The request is not in the buffer, or nobody knows where."""
        self._outcomes.failed(self)

    def wait(self, timeout_s: float) -> None:
        """Return when there may be an outcome; NoOutcomeError if there will be none."""
        self._outcomes.wait(self, timeout_s)


class Outcomes:
    """Brings outcomes to those who await them. Any thread may call any method.

    An outcome can be read before the request's own acknowledgement has been taken from the client: nothing
    says then whose it is. It is kept until every request is acknowledged that had been sent when it was read.
    """

    def __init__(self) -> None:
        self.trouble: str | None = None
        self._changed = threading.Condition()
        self._ended: str | None = None
        self._cause: Exception | None = None
        self._sent = 0
        # In the order of sending, each with its number; the oldest one says what need not be kept.
        self._in_flight: OrderedDict[PendingOutcome, int] = OrderedDict()
        # By key, in the order of reading, each with the number of requests sent by then.
        self._unclaimed: OrderedDict[bytes, tuple[int, bytes]] = OrderedDict()
        self._awaited: WeakValueDictionary[bytes, PendingOutcome] = WeakValueDictionary()
        # By the user's own request: what was written back for it has another source.
        self._parked: WeakValueDictionary[str, PendingOutcome] = WeakValueDictionary()

    def expect(self) -> PendingOutcome:
        """To be called before a request is sent."""
        awaited = PendingOutcome(self)
        with self._changed:
            self._sent += 1
            self._in_flight[awaited] = self._sent
        return awaited

    def acknowledged(self, awaited: PendingOutcome, source: str) -> None:
        """The request is in the buffer, at `source`."""
        key = source.encode()
        with self._changed:
            _, raw = self._unclaimed.pop(key, (0, None))
            if raw is None:
                self._awaited[key] = awaited
            else:
                self._give(awaited, key, raw)
                self._changed.notify_all()
            self._landed(awaited)

    def failed(self, awaited: PendingOutcome) -> None:
        """The request has no source that anybody knows."""
        with self._changed:
            self._landed(awaited)

    def take(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        """Keys and values that were read from the outcomes topic, in its order."""
        with self._changed:
            for key, raw in records:
                self._take(key, raw)
            self._changed.notify_all()

    def wait_for_room(self, timeout_s: float) -> bool:
        """Whether more can be taken, now or within the time."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._unclaimed) < UNCLAIMED_MAX, timeout_s)

    def wait(self, awaited: PendingOutcome, timeout_s: float) -> None:
        """Wait until something was read, unless the outcome is there; NoOutcomeError if reading has ended."""
        with self._changed:
            if awaited.outcome is not None:
                return
            if self._ended is not None:
                raise NoOutcomeError(self._ended) from self._cause
            self._changed.wait(timeout_s)

    def end(self, reason: str, cause: Exception | None = None) -> None:
        """Nothing more will be read."""
        with self._changed:
            self._ended, self._cause = reason, cause
            self._changed.notify_all()

    def _take(self, key: bytes, raw: bytes) -> None:
        awaited = self._awaited.pop(key, None)
        if awaited is not None:
            self._give(awaited, key, raw)
            return
        if self._parked:
            self._follow(key, raw)
        if self._in_flight:
            self._unclaimed.setdefault(key, (self._sent, raw))

    def _give(self, awaited: PendingOutcome, key: bytes, raw: bytes) -> None:
        outcome = _decoded(key, raw)
        if outcome is not None and outcome.outcome in PARKS:
            self._parked[key.decode()] = awaited
        else:
            awaited.outcome = outcome

    def _follow(self, key: bytes, raw: bytes) -> None:
        """Whether the record says what became of a message that was parked: it then names itself."""
        outcome = _decoded(key, raw)
        if outcome is None or outcome.root is None or outcome.message != key.decode("utf-8", "replace"):
            return
        awaited = self._parked.get(outcome.root)
        if awaited is not None and outcome.outcome not in PARKS:
            awaited.outcome = outcome
            del self._parked[outcome.root]

    def _landed(self, awaited: PendingOutcome) -> None:
        self._in_flight.pop(awaited, None)
        oldest = next(iter(self._in_flight.values()), self._sent + 1)
        was_full = len(self._unclaimed) >= UNCLAIMED_MAX
        while self._unclaimed and next(iter(self._unclaimed.values()))[0] < oldest:
            self._unclaimed.popitem(last=False)
        if was_full:
            self._changed.notify_all()


def _decoded(key: bytes, raw: bytes) -> Outcome | None:
    try:
        return Outcome.decode(raw)
    except ValueError as error:
        _log.warning("the record of %r in the outcomes topic is none: %s", key, error)
        return None
