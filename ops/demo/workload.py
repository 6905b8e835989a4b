"""What the demo sends: requests of every kind, seeded, so that the same moment gives the same requests. Pure.

Most messages are scheduled ahead, due evenly over the window: some as rows of a table, `rows`, and the
others one by one, `ahead`. The rest come while those fall due, `live`, in rounds of a few seconds; after the
window the rounds carry the whole rate, for as long as somebody asks for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from delayline import requests
from delayline.headers import KEEP, Header
from delayline.recurrence import MISSED, SHORTEST_MS
from delayline.requests import BufferRecord
from delayline.times import HOUR_MS
from ops.demo.rejects import WRONG

KIND_HEADER: Final = "demo-kind"
TARGETS: Final = {"demo.orders": 2, "demo.reminders": 2}
"""Target topics and their partitions."""
MISSING_TARGET: Final = "demo.nowhere"
TIMED: Final = frozenset({"deliver-at", "loaded", "after", "level"})
"""Kinds that are due later than they are asked for, and that nothing is done to: they can be on time."""

WINDOW_MS: Final = 60_000
ROUND_MS: Final = 5_000
LIVE_SHARE: Final = 0.4
LOADED_SHARE: Final = 0.2
"""Of what is scheduled ahead: as rows."""
_LEVELS_MS: Final = {1: 1_000, 2: 5_000}

_WEIGHTS: Final = {
    "deliver-at": 28, "after": 28, "level": 19, "at-once": 13, "past-due": 5, "cancelled": 4, "replaced": 2,
    "rescheduled": 1, "run-now": 1, "expired": 1, "rejected": 1.5, "no-target": 1, "unknown-id": 0.5,
    "far": 0.5, "kept": 1, "interval": 1, "cron": 0.5, "ended": 0.5,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Planned:
    """A request to send at `send_ms`. What it asks for is due at `due_ms`, the last time if it recurs; None:
    far off, or never.
    """

    send_ms: int
    due_ms: int | None
    kind: str
    request: BufferRecord
    is_message: bool = True  # False: a cancel, reschedule, run-now or duplicate


class Workload:
    """Requests around `start_ms`, at a rate of `messages` a window.

    `partitions`: the buffer's, needed to put a request into the wrong one.
    """

    def __init__(self, seed: int, start_ms: int, messages: int, partitions: int) -> None:
        self.start_ms = start_ms
        self._seed = seed
        self._messages = messages
        self._partitions = partitions

    def ahead(self) -> list[Planned]:
        """What is scheduled ahead one by one: send it before `start_ms`."""
        maker = _Maker(Random(f"{self._seed}/ahead"), "ahead", self._partitions)
        return [maker.deliver_at(0, due_ms) for due_ms in self._dues(maker.random, 1 - LOADED_SHARE)]

    def rows(self) -> list[dict[str, Any]]:
        """What is scheduled ahead as rows, in the columns of a bulk load: load it before `start_ms`."""
        maker = _Maker(Random(f"{self._seed}/rows"), "rows", self._partitions)
        return [maker.row(due_ms) for due_ms in self._dues(maker.random, LOADED_SHARE)]

    def _dues(self, random: Random, share: float) -> list[int]:
        """Of this share of what is scheduled ahead, in no order."""
        count = max(1, round(self._messages * (1 - LIVE_SHARE) * share))
        dues = [self.start_ms + WINDOW_MS * number // count for number in range(count)]
        random.shuffle(dues)
        return dues

    def live(self, number: int) -> list[Planned]:
        """The requests of a round, in the order in which they are to be sent."""
        begin_ms = self.start_ms + number * ROUND_MS
        # The last round of the window already has the whole rate: what it asks for is due after the window.
        share = LIVE_SHARE if begin_ms + 2 * ROUND_MS <= self.start_ms + WINDOW_MS else 1.0
        count = max(1, round(self._messages * share * ROUND_MS / WINDOW_MS))
        random = Random(f"{self._seed}/{number}")
        maker = _Maker(random, str(number), self._partitions)
        kinds = random.choices(list(_WEIGHTS), list(_WEIGHTS.values()), k=count)
        planned = [
            request
            for index, kind in enumerate(kinds)
            for request in maker.make(kind, begin_ms + ROUND_MS * index // count, begin_ms + ROUND_MS)
        ]
        return sorted(planned, key=lambda request: request.send_ms)


class _Maker:
    """Makes the requests of one message; `name` sets its ids apart from those of other makers."""

    def __init__(self, random: Random, name: str, partitions: int) -> None:
        self.random = random
        self._name = name
        self._partitions = partitions
        self._made = 0
        self._kinds: dict[str, Callable[[int, int], list[Planned]]] = {
            "deliver-at": lambda now, _: [self.deliver_at(now, now + self._ms(1_000, 5_000))],
            "after": self._after,
            "level": self._level,
            "at-once": lambda now, _: [self._schedule("at-once", now, now)],
            "past-due": self._past_due,
            "cancelled": self._cancelled,
            "rescheduled": self._rescheduled,
            "replaced": self._replaced,
            "run-now": self._run_now,
            "expired": self._expired,
            "rejected": self._rejected,
            "no-target": self._no_target,
            "unknown-id": self._unknown_id,
            "far": self._far,
            "kept": self._kept,
            "interval": self._interval,
            "cron": self._cron,
            "ended": self._ended,
        }

    def make(self, kind: str, now_ms: int, until_ms: int) -> list[Planned]:
        """The requests of one message of `kind`, all sent in [now, until)."""
        self._made += 1
        return self._kinds[kind](now_ms, until_ms)

    def deliver_at(self, now_ms: int, due_ms: int) -> Planned:
        """One message for a moment."""
        return self._schedule("deliver-at", now_ms, due_ms, deliver_at=due_ms)

    def row(self, due_ms: int) -> dict[str, Any]:
        """The same as a row of a table."""
        headers = [
            {"key": key, "value": value.encode() if isinstance(value, str) else value}
            for key, value in self._headers("loaded")
        ]
        target = self.random.choice(list(TARGETS))
        return {
            "target": target,
            "partition": self.random.randrange(TARGETS[target]) if self.random.random() < 0.2 else None,
            "due": due_ms,
            "key": self._key(),
            "value": self._value(),
            "headers": headers,
        }

    def _after(self, now_ms: int, _: int) -> list[Planned]:
        delay_ms = self._ms(500, 5_000)
        after = delay_ms if self.random.random() < 0.5 else f"{delay_ms}ms"
        return [self._schedule("after", now_ms, now_ms + delay_ms, after=after)]

    def _level(self, now_ms: int, _: int) -> list[Planned]:
        level = self.random.choice(list(_LEVELS_MS))
        return [self._schedule("level", now_ms, now_ms + _LEVELS_MS[level], level=level)]

    def _past_due(self, now_ms: int, _: int) -> list[Planned]:
        if self.random.random() < 0.3:
            return [self._schedule("past-due", now_ms, now_ms, level=-1)]
        return [self._schedule("past-due", now_ms, now_ms, deliver_at=now_ms - self._ms(0, 100_000))]

    def _cancelled(self, now_ms: int, until_ms: int) -> list[Planned]:
        at_ms, due_ms = self._control_ms(now_ms, until_ms)
        cancel = requests.cancel(self._id())
        times = 2 if self.random.random() < 0.1 else 1  # the second one is not in time any more
        return [
            self._schedule("cancelled", now_ms, due_ms, deliver_at=due_ms, id=self._id()),
            *[Planned(at_ms, None, "cancel", cancel, is_message=False)] * times,
        ]

    def _rescheduled(self, now_ms: int, until_ms: int) -> list[Planned]:
        at_ms, due_ms = self._control_ms(now_ms, until_ms)
        new_ms = at_ms + self._ms(300, 3_000)
        # As a client that sets a timer anew with each event: the last word counts.
        moves = [requests.reschedule(self._id(), deliver_at=new_ms + more_ms) for more_ms in (20, 10, 0)]
        return [
            self._schedule("rescheduled", now_ms, due_ms, deliver_at=due_ms, id=self._id()),
            *[Planned(at_ms, new_ms, "reschedule", move, is_message=False) for move in moves],
        ]

    def _replaced(self, now_ms: int, until_ms: int) -> list[Planned]:
        at_ms, due_ms = self._control_ms(now_ms, until_ms)
        new_ms = at_ms + self._ms(300, 3_000)
        return [
            self._schedule("replaced", now_ms, due_ms, deliver_at=due_ms, id=self._id()),
            self._schedule("replacing", at_ms, new_ms, deliver_at=new_ms, id=self._id()),
        ]

    def _run_now(self, now_ms: int, until_ms: int) -> list[Planned]:
        at_ms, due_ms = self._control_ms(now_ms, until_ms)
        return [
            self._schedule("run-now", now_ms, due_ms, deliver_at=due_ms, id=self._id()),
            Planned(at_ms, at_ms, "run-now", requests.run_now(self._id()), is_message=False),
        ]

    def _expired(self, now_ms: int, _: int) -> list[Planned]:
        due_ms = now_ms + self._ms(500, 3_000)
        return [self._schedule("expired", now_ms, due_ms, deliver_at=due_ms, expire_at=due_ms - 1)]

    def _rejected(self, now_ms: int, _: int) -> list[Planned]:
        code = self.random.choice(list(WRONG))
        request = WRONG[code](self.random.choice(list(TARGETS)), self._partitions, self._value())
        return [Planned(now_ms, now_ms, "rejected", request)]

    def _no_target(self, now_ms: int, _: int) -> list[Planned]:
        if self.random.random() < 0.3:
            return [self._schedule("no-target", now_ms, now_ms, partition=64)]
        due_ms = now_ms + self._ms(500, 3_000)
        return [self._schedule("no-target", now_ms, due_ms, topic=MISSING_TARGET, deliver_at=due_ms)]

    def _unknown_id(self, now_ms: int, _: int) -> list[Planned]:
        make = self.random.choice((requests.cancel, requests.run_now))
        return [Planned(now_ms, now_ms, "unknown-id", make(self._id()), is_message=False)]

    def _far(self, now_ms: int, _: int) -> list[Planned]:
        if self.random.random() < 0.5:  # above the highest level: the highest
            return [self._schedule("far", now_ms, None, level=99)]
        return [self._schedule("far", now_ms, None, after=HOUR_MS)]

    def _kept(self, now_ms: int, until_ms: int) -> list[Planned]:
        """Asked for twice by one who is not sure of the first time; the second one changes nothing."""
        due_ms = now_ms + self._ms(500, 3_000)
        message = self._schedule(
            "kept", now_ms, due_ms, deliver_at=due_ms, id=self._id(), if_exists=KEEP.decode()
        )
        again_ms = min(now_ms + self._ms(1, 1_000), until_ms - 1)
        return [message, Planned(again_ms, None, "duplicate", message.request, is_message=False)]

    def _interval(self, now_ms: int, _: int) -> list[Planned]:
        times, first_ms = self._ms(2, 4), now_ms + self._ms(500, 2_000)
        last_ms = first_ms + (times - 1) * SHORTEST_MS
        repeat = requests.every(SHORTEST_MS, times=times, missed=self.random.choice(MISSED))
        return [self._schedule("interval", now_ms, last_ms, deliver_at=first_ms, repeat=repeat)]

    def _cron(self, now_ms: int, _: int) -> list[Planned]:
        until_ms = now_ms + self._ms(3_000, 5_000)
        zone = self.random.choice((None, "Europe/Berlin"))
        repeat = requests.cron("*/2 * * * * *", time_zone=zone, until=until_ms)
        return [self._schedule("cron", now_ms, until_ms, repeat=repeat)]

    def _ended(self, now_ms: int, until_ms: int) -> list[Planned]:
        """A cancel ends what would come again and again, often right when it does."""
        at_ms = min(now_ms + self._ms(1_500, 3_500), until_ms - 1)
        first_ms = now_ms + self._ms(300, 1_000)
        repeat = requests.every(SHORTEST_MS)
        return [
            self._schedule("ended", now_ms, at_ms, deliver_at=first_ms, repeat=repeat, id=self._id()),
            Planned(at_ms, None, "cancel", requests.cancel(self._id()), is_message=False),
        ]

    def _schedule(
        self, kind: str, now_ms: int, due_ms: int | None, topic: str | None = None, **options: object
    ) -> Planned:
        topic = topic or self.random.choice(list(TARGETS))
        if "partition" not in options and topic in TARGETS and self.random.random() < 0.2:
            options["partition"] = self.random.randrange(TARGETS[topic])
        make: Callable[..., BufferRecord] = requests.schedule
        request = make(topic, self._value(), key=self._key(), headers=self._headers(kind), **options)
        return Planned(now_ms, due_ms, kind, request)

    def _control_ms(self, now_ms: int, until_ms: int) -> tuple[int, int]:
        """When to do something to a message, and when that is due: in good time, or a close race."""
        at_ms = min(now_ms + self._ms(300, 3_000), until_ms - 1)
        if self.random.random() < 0.25:
            return at_ms, at_ms + self._ms(-40, 40)
        return at_ms, at_ms + self._ms(1_000, 4_000)

    def _id(self) -> str:
        return f"demo-{self._name}-{self._made}"

    def _ms(self, least: int, most: int) -> int:
        return self.random.randint(least, most)

    def _key(self) -> bytes | None:
        return self.random.choice((None, b"", f"customer-{self._ms(1, 500)}".encode()))

    def _value(self) -> bytes | None:
        drawn = self.random.random()
        if drawn < 0.02:
            return None
        return b"" if drawn < 0.03 else self.random.randbytes(self._ms(20, 300))

    def _headers(self, kind: str) -> list[tuple[str, bytes | str | None]]:
        """The user's own, with duplicates, empty and null values among them."""
        own: list[Header] = [("tag", b"a"), ("tag", b"b"), ("tag", b"a"), ("flag", None), ("empty", b"")]
        first = self._ms(0, len(own))
        return [
            *own[first : first + self._ms(0, 4)],
            (KIND_HEADER, kind.encode()),
            ("trace", self.random.randbytes(8)),
        ]
