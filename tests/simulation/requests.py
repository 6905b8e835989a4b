"""What users ask for, and what they mean by it: the simulation's own words for a request.

A `Request` is what the plain model judges by, so it does not come from the project's parser: the request is
drawn first, and its headers are written from it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from delayline.partitioner import partition_for
from delayline.rejects import RejectCode
from delayline.wire import Header
from tests.simulation.profile import Profile

if TYPE_CHECKING:
    from tests.simulation.changes import Eras

LEVELS_MS: Final = (40, 200, 900)
MAX_DELAY_MS: Final = 400 * 86_400_000
FAR_MS: Final = 86_400_000
GRID_MS: Final = 20
TARGETS: Final = {"orders": 2, "invoices": 1}
MOST_MISSED: Final = 3  # occurrences that are delivered late, in these histories
MISSING_TARGET: Final = "nowhere"
BAD_VALUE: Final = b"bad"  # brokers refuse the batch, without saying for which record
BIG_VALUE: Final = b"big"  # the client refuses the record
REFUSED: Final = frozenset((RejectCode.UNDELIVERABLE, RejectCode.TOO_LARGE))
"""The codes of those two: what is refused for what it is ends a chain."""


class Kind(Enum):
    """What is asked for."""

    SCHEDULE = "schedule"
    CANCEL = "cancel"
    RESCHEDULE = "reschedule"
    REJECT = "reject"
    COPY = "copy"  # of what the service has written back: nothing at all


@dataclass(slots=True)
class Repeat:
    """How a message comes again; times in ms."""

    every_ms: int
    factor: float = 1.0  # by which the interval grows
    cron: bool = False  # at multiples of `every_ms`
    times: int | None = None
    until_ms: int | None = None
    missed: str = "all"

    def grown(self, every_ms: int) -> int:
        """The interval after this one."""
        return -int(-every_ms * self.factor // 1)


@dataclass(slots=True)
class Request:
    """One request of a user, with what its headers say."""

    kind: Kind
    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[Header]
    id: str | None = None
    target: str = "orders"
    target_key: bytes | None = None
    target_partition: int = -1
    user_headers: list[Header] = field(default_factory=list)
    deliver_at_ms: int | None = None
    after_ms: int = 0
    level: int | None = None
    expire_at_ms: int | None = None
    repeat: Repeat | None = None
    keep: bool = False  # a duplicate, if its id is known
    error: str | None = None  # the dead-letter code to expect, of a reject or at delivery
    source: int | None = None  # of a cancel: the offset of the request whose message is meant

    def settle(self, eras: Eras, partition: int, offset: int) -> None:
        """What it means where it has come to stand."""
        if self.level is not None:
            self.after_ms = eras.after_ms(self.level, partition, offset)

    def scheduled_for_ms(self, timestamp_ms: int) -> int:
        """The time asked for by a record with that timestamp."""
        return timestamp_ms + self.after_ms if self.deliver_at_ms is None else self.deliver_at_ms


class Users:
    """Draws requests."""

    def __init__(self, rng: random.Random, profile: Profile, partitions: int, own: list[int]) -> None:
        """`own`: the partitions of the lane under test, which get all that is asked for."""
        self._rng = rng
        self._profile = profile
        self._partitions = partitions
        self._own = own
        self._number = 0
        self.ids = self._names("id", rng.randint(*profile.ids))
        self._sent: list[tuple[int, int]] = []  # the places of schedules
        self._kinds = list(profile.requests)
        self._weights = list(profile.requests.values())
        self._last_due_ms = 0

    def _names(self, prefix: str, count: int) -> list[tuple[str, int]]:
        """Ids whose partition is the lane's own."""
        found: list[tuple[str, int]] = []
        number = 0
        while len(found) < count:
            name = f"{prefix}{number}"
            partition = partition_for(name.encode(), self._partitions)
            if partition in self._own:
                found.append((name, partition))
            number += 1
        return found

    def sent(self, request: Request, offset: int) -> None:
        """Where a request has come to stand."""
        if request.kind is Kind.SCHEDULE:
            place = request.partition, offset
            self._sent += [place] * (1 if request.repeat is None else 3)  # a chain has more that can be met

    def kind(self) -> str:
        """What kind of request comes next."""
        kind: str = self._rng.choices(self._kinds, self._weights)[0]
        return kind

    def draw(self, kind: str, now_ms: int, ends: dict[int, int]) -> Request:
        """A request of a kind; `ends` are the ends of the buffer's partitions."""
        self._number += 1
        if kind in {"cancel", "reschedule", "run-now"}:
            return self._control(kind, now_ms)
        if kind == "cancel-source":
            return self._cancel_source(ends)
        if kind == "reject":
            return self._reject(now_ms, ends)
        return self._schedule(kind, now_ms)

    # ------------------------------------------------------------------ the kinds

    def _schedule(self, kind: str, now_ms: int) -> Request:
        rng = self._rng
        named = kind.startswith("id-")
        if named:
            id_, partition = rng.choice(self.ids)
        else:
            id_, partition = None, rng.choice(self._own)
        request = self._message(partition, id_)
        self._time(request, kind.removeprefix("id-"), now_ms)
        if kind.endswith(("interval", "cron")):
            self._repeat(request, kind.removeprefix("id-"), now_ms)
            if rng.random() < 0.2:
                self._spoil(request, rng.choice(("missing", "bad", "big")))
        elif kind == "id-keep":
            request.keep = True
            request.headers.append(("delay-if-exists", b"keep"))
        elif kind == "expiring":
            request.expire_at_ms = now_ms + rng.randint(-50, 1_500)
            request.headers.append((H_EXPIRE_AT, b"%d" % request.expire_at_ms))
        elif kind == "no-partition":
            request.headers = [header for header in request.headers if header[0] != H_TARGET_PARTITION]
            request.headers.append((H_TARGET_PARTITION, b"7"))
            request.target_partition, request.error = 7, RejectCode.TARGET_PARTITION
        else:
            self._spoil(request, kind)
        request.headers.append((H_TARGET_TOPIC, request.target.encode()))
        return request

    def _spoil(self, request: Request, kind: str) -> None:
        """Makes it one that cannot be delivered, if it is to be of such a kind."""
        if kind == "missing":
            request.target, request.error = MISSING_TARGET, RejectCode.TARGET_MISSING
        elif kind == "bad":
            request.value, request.error = BAD_VALUE + b"%d" % self._number, RejectCode.UNDELIVERABLE
        elif kind == "big":
            request.value, request.error = BIG_VALUE + b"%d" % self._number, RejectCode.TOO_LARGE

    def _message(self, partition: int, id_: str | None) -> Request:
        """A schedule without its time and target."""
        rng = self._rng
        key = id_.encode() if id_ is not None else rng.choice((None, b"k0", b"k1"))
        user_headers: list[Header] = []
        if rng.random() < 0.3:
            user_headers = [("trace", b"%d" % self._number), ("trace", b"again"), ("empty", None)]
        headers = list(user_headers)
        request = Request(
            Kind.SCHEDULE, partition, key, b"v%d" % self._number, headers, id_, rng.choice(list(TARGETS))
        )
        request.user_headers = user_headers
        request.target_key = key
        if rng.random() < 0.2:
            request.target_key = rng.choice((None, b"t0"))
            headers.append((H_TARGET_KEY, request.target_key))
        if rng.random() < 0.2:
            request.target_partition = 0
            headers.append((H_TARGET_PARTITION, b"0"))
        if id_ is not None:
            headers.append((H_ID, id_.encode()))
        return request

    def _time(self, request: Request, kind: str, now_ms: int) -> None:
        rng = self._rng
        if kind == "past":
            self._at(request, now_ms - rng.randint(1, 800))
        elif kind == "after":
            request.after_ms = rng.randint(0, 600)
            request.headers.append((H_AFTER, b"%dms" % request.after_ms))
        elif kind == "level":
            level = rng.randint(-1, len(LEVELS_MS) + 1)
            request.level = level
            request.headers.append((H_LEVEL, b"%d" % level))
        elif kind == "far":
            self._at(request, now_ms + FAR_MS + rng.randint(0, 1_000))
        elif kind in {"interval", "cron"}:
            if rng.random() < 0.5:
                self._at(request, now_ms + rng.randint(-1_500, 1_000))  # when it starts
        elif kind != "now":
            self._at(request, self._due(now_ms))

    def _repeat(self, request: Request, kind: str, now_ms: int) -> None:
        """How the message comes again: so often, or for so long, that it ends."""
        rng = self._rng
        repeat = Repeat(rng.choice((1_000, 2_000)), missed=rng.choice(("all", "all", "latest", "skip")))
        if kind == "cron":
            repeat.cron = True
            request.headers.append(("delay-cron", b"*/%d * * * * *" % (repeat.every_ms // 1_000)))
        else:
            request.headers.append(("delay-interval", b"%dms" % repeat.every_ms))
            if rng.random() < 0.3:
                repeat.factor = 1.5
                request.headers.append(("delay-interval-factor", b"1.5"))
        if rng.random() < 0.7:
            repeat.times = rng.randint(1, 4)
            request.headers.append(("delay-times", b"%d" % repeat.times))
        if repeat.times is None or rng.random() < 0.3:
            if request.deliver_at_ms is None and not repeat.cron:
                self._at(request, now_ms)  # what begins after it has ended is refused
            least_ms = 0 if repeat.cron else 4_000
            repeat.until_ms = max(now_ms, request.deliver_at_ms or 0) + least_ms + rng.randint(0, 4_000)
            request.headers.append(("delay-until", b"%d" % repeat.until_ms))
        if repeat.missed != "all":
            request.headers.append(("delay-missed", repeat.missed.encode()))
        request.repeat = repeat

    def _due(self, now_ms: int) -> int:
        """A time to come, often one that another message has, too."""
        rng = self._rng
        if rng.random() < 0.3 and self._last_due_ms > now_ms:
            return self._last_due_ms
        due_ms = now_ms + rng.randint(*self._profile.delay_ms)
        self._last_due_ms = due_ms - due_ms % GRID_MS
        return self._last_due_ms

    @staticmethod
    def _at(request: Request, deliver_at_ms: int) -> None:
        request.deliver_at_ms = deliver_at_ms
        request.headers.append((H_DELIVER_AT, b"%d" % deliver_at_ms))

    def _control(self, kind: str, now_ms: int) -> Request:
        rng = self._rng
        id_, partition = rng.choice(self.ids)
        op = Kind.CANCEL if kind == "cancel" else Kind.RESCHEDULE
        headers: list[Header] = [(H_OP, op.value.encode()), (H_ID, id_.encode())]
        request = Request(op, partition, id_.encode(), None, headers, id_)
        if kind == "reschedule":
            self._time(request, rng.choice(("future", "future", "after", "past", "far")), now_ms)
            if rng.random() < 0.1:
                request.expire_at_ms = now_ms + rng.randint(0, 2_000)
                headers.append((H_EXPIRE_AT, b"%d" % request.expire_at_ms))
        return request

    def _cancel_source(self, ends: dict[int, int]) -> Request:
        """Of one of the last schedules most often; of whatever stands there else."""
        rng = self._rng
        if self._sent and rng.random() < 0.85:
            partition, offset = rng.choice(self._sent[-rng.choice((3, 12, 60)) :])
        else:
            partition = rng.choice(self._own)
            offset = rng.randint(0, max(0, ends[partition] - 1))
        if ends[partition] == 0:
            return self._control("cancel", 0)
        headers: list[Header] = [(H_OP, b"cancel"), (H_SOURCE, b"delay.buffer/%d/%d" % (partition, offset))]
        return Request(Kind.CANCEL, partition, None, None, headers, source=offset)

    def _reject(self, now_ms: int, ends: dict[int, int]) -> Request:
        request = self._message(self._rng.choice(self._own), None)
        request.kind = Kind.REJECT
        request.error, spoil = self._rng.choice(self._flaws(request, now_ms, ends))
        if H_SOURCE in dict(spoil):
            request.headers = list(request.user_headers)  # a cancel has no target
        request.headers += spoil
        if request.error != RejectCode.NO_TARGET and H_SOURCE not in dict(spoil):
            request.headers.append((H_TARGET_TOPIC, b"orders"))
        return request

    def _flaws(self, request: Request, now_ms: int, ends: dict[int, int]) -> list[tuple[str, list[Header]]]:
        wrong = next(
            name
            for name in (b"w%d" % number for number in range(100))
            if self._partitions == 1 or partition_for(name, self._partitions) != request.partition
        )
        end = ends[request.partition]
        flaws: list[tuple[str, list[Header]]] = [
            (RejectCode.NO_TARGET, []),
            (RejectCode.UNKNOWN_HEADER, [("delay-crown", b"* * * * *")]),
            (RejectCode.BAD_CRON, [("delay-cron", b"61 * * * *")]),
            (RejectCode.BAD_AFTER, [(H_AFTER, b"soon")]),
            (RejectCode.BAD_OP, [(H_OP, b"explode")]),
            (
                RejectCode.BAD_SOURCE,
                [(H_OP, b"cancel"), (H_SOURCE, b"delay.buffer/%d/%d" % (request.partition, end + 99))],
            ),
            (RejectCode.BAD_PARENT, [(H_PARENT, b"%d" % (end + 1_000_000)), (H_ROOT, b"delay.buffer/0/0")]),
            (RejectCode.DELAY_TOO_LONG, [(H_DELIVER_AT, b"%d" % (now_ms + 2 * MAX_DELAY_MS))]),
            (RejectCode.TIME_CONFLICT, [(H_AFTER, b"1s"), (H_LEVEL, b"1")]),
        ]
        if self._partitions > 1:
            flaws.append((RejectCode.WRONG_PARTITION, [(H_ID, wrong)]))
            elsewhere = (request.partition + 1) % self._partitions
            flaws.append(
                (
                    RejectCode.WRONG_PARTITION,
                    [(H_OP, b"cancel"), (H_SOURCE, b"delay.buffer/%d/0" % elsewhere)],
                )
            )
        return flaws

    def pretended(self, now_ms: int) -> Request:
        """A user's request with an id, without its target: what a stranger makes a forgery of."""
        id_, partition = self._rng.choice(self.ids)
        request = self._message(partition, id_)
        self._time(request, self._rng.choice(("now", "future", "past")), now_ms)
        return request


H_OP: Final = "delay-op"
H_ID: Final = "delay-id"
H_TARGET_TOPIC: Final = "delay-target-topic"
H_TARGET_KEY: Final = "delay-target-key"
H_TARGET_PARTITION: Final = "delay-target-partition"
H_DELIVER_AT: Final = "delay-deliver-at"
H_AFTER: Final = "delay-after"
H_LEVEL: Final = "delay-level"
H_EXPIRE_AT: Final = "delay-expire-at"
H_SOURCE: Final = "delay-source"
H_PARENT: Final = "delay-parent"
H_ROOT: Final = "delay-root"
