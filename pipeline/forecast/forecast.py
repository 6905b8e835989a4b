"""The forecast itself: what waits, what follows, what is still to come, held against lanes and disks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, Literal

from delayline.times import MINUTE_MS
from pipeline.forecast.backlog import Backlog, backlog
from pipeline.forecast.counts import BUSY_MS, LEADS_MS, Counts, Target
from pipeline.forecast.disk import Disk, full_hour, log_growth, view_growth
from pipeline.forecast.horizon import (
    DAY_HOURS,
    DAY_MINUTES,
    HOUR_MINUTES,
    HOUR_MS,
    WEEK_MS,
    Horizon,
)
from pipeline.forecast.model import Band, Foretold, Sample, by_hour, foretold

MOST_PEAKS: Final = 5
VIEW_BYTES: Final = 120
"""What a node's view has of a message beside its key, value and headers (docs/benchmarks.md)."""
RECORD_BYTES: Final = 70
"""The same of the log, about, where no broker says how large it is."""
_LEVEL: Final = 3.0
"""A level is at most so many times another: what is beyond that is no season and no trend."""
_BUSY: Final = 3.0
"""What an hour counts for at most, when levels are compared, in medians of its time of day."""
_ENOUGH: Final = 30

Basis = Literal["weeks", "days", "none"]


@dataclass(frozen=True, slots=True)
class Room:
    """A disk that fills: `used_bytes` of it are the log's; None: nobody has told."""

    part: Literal["log", "view"]
    where: str
    free_bytes: int
    used_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """What a forecast is held against. `per_s`: what the lanes deliver, if that is known better than they
    have shown; `rooms`: the disks; `retention_ms` of the log: None: for ever.
    """

    per_s: float | None = None
    rooms: Sequence[Room] = ()
    retention_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the lanes deliver in a second, all together; `given` by an operator, or the most that was seen."""

    per_s: float
    given: bool


@dataclass(frozen=True, slots=True)
class Peak:
    """An hour, its busiest minute by the band's upper edge, and the targets behind the hour."""

    hour: int
    minute: int
    targets: Sequence[tuple[Target, float]]


@dataclass(frozen=True, slots=True)
class Forecast:
    """By minute and by clock hour, from the horizon's beginning.

    `known`: what waits and falls due then; of that `chains`, with what follows; both exact. `fresh`: what is
    expected of what nobody has asked for yet. `minutes`, `hours`: all together, less what will be cancelled
    or moved away. `came`: which share of what was known came, in earlier stretches, by how long it had to
    wait yet (`LEADS_MS`). `targets`: of each hour. `over`: the minutes whose upper edge is above what the
    lanes can do. `late`, `late_at_most`: the queue of what is expected, and of the upper edge.
    """

    cluster: str
    horizon: Horizon
    counts: Counts
    known: Sequence[int]
    chains: Sequence[int]
    fresh: Sequence[float]
    minutes: Band
    hours: Band
    came: Sequence[float]
    targets: Mapping[tuple[int, Target], float]
    peaks: Sequence[Peak]
    capacity: Capacity | None
    over: Sequence[int]
    late: Backlog | None
    late_at_most: Backlog | None
    disks: Sequence[Disk]

    @property
    def basis(self) -> Basis:
        """What the part is made from that is not known."""
        back = self.counts.shifts
        return "none" if back is None else "weeks" if back.period_ms == WEEK_MS else "days"


def forecast(cluster: str, counts: Counts, horizon: Horizon, asked: Asked) -> Forecast:
    """From counts alone."""
    fresh = foretold(samples(counts, horizon), horizon)
    came = [_came(counts, lead) for lead in range(len(LEADS_MS) + 1)]
    plain, chains = (_by_minute(part, horizon) for part in (counts.plain, counts.chains))
    minutes = _together(plain, chains, fresh.minutes, came)
    hours = _of_hours(plain, chains, fresh, came, horizon)
    capacity = _capacity(counts, asked)
    bursts = [counts.bursts.get(minute, 0) + chains[minute] for minute in range(horizon.minutes)]
    targets = _targets(counts, fresh, came, horizon)
    return Forecast(
        cluster=cluster,
        horizon=horizon,
        counts=counts,
        known=[one + other for one, other in zip(plain, chains, strict=True)],
        chains=chains,
        fresh=fresh.minutes.expected,
        minutes=minutes,
        hours=hours,
        came=[share for share, _, _ in came],
        targets=targets,
        peaks=_peaks(minutes, targets, horizon),
        capacity=capacity,
        over=[]
        if capacity is None
        else [at for at, high in enumerate(minutes.high) if high > capacity.per_s * HOUR_MINUTES],
        late=_queue(minutes.expected, bursts, capacity, counts),
        late_at_most=_queue(minutes.high, bursts, capacity, counts),
        disks=_disks(counts, _leaving(hours, chains, horizon), horizon, asked),
    )


def samples(counts: Counts, horizon: Horizon) -> list[Sample]:
    """The earlier stretches, each with what brings its days to the level that is expected."""
    back = counts.shifts
    if back is None:
        return []
    days = _Days(counts, horizon)
    length = -(-horizon.minutes // DAY_MINUTES)
    return [
        Sample(
            counts.samples.get(shift, {}),
            back.covered(shift, horizon.minutes),
            days.trend(shift, length) if back.period_ms == WEEK_MS else days.of_the_week(shift, length),
        )
        for shift in range(1, back.count + 1)
    ]


class _Days:
    """Requests of users by day, counted in days from now. An hour that had far more than others at its time
    of day, a burst, counts as a busy one.
    """

    def __init__(self, counts: Counts, horizon: Horizon) -> None:
        asked = {hour: count for hour, (_, _, count) in counts.arrivals.items()}
        at_time: dict[int, list[int]] = {}
        for hour, count in asked.items():
            at_time.setdefault(hour % DAY_HOURS, []).append(count)
        most = {time: _BUSY * median(found) for time, found in at_time.items()}
        self._asked = {hour: min(count, most[hour % DAY_HOURS]) for hour, count in asked.items()}
        self._now = horizon.first_hour
        self._begins = min(asked, default=self._now)

    def trend(self, weeks: int, length: int) -> list[float]:
        """The last week as a multiple of that in which a sample lies, by the median of its days."""
        pairs = [(self._day(-day), self._day(-day - 7 * (weeks - 1))) for day in range(1, 8)]
        ratios = [now / then for now, then in pairs if then]
        return [_bounded(median(ratios)) if ratios else 1.0] * length

    def of_the_week(self, days: int, length: int) -> list[float]:
        """The same day of the last week as a multiple of that on which a sample's day lies, as far as the
        history goes back to it.
        """
        return [self._of_the_week(day, day - days) for day in range(length)]

    def _of_the_week(self, day: int, sample: int) -> float:
        alike = day - 7 * (day // 7 + 1)
        if self._now + alike * DAY_HOURS < self._begins or sample >= 0:
            return 1.0
        then = self._day(sample)
        return _bounded(self._day(alike) / then) if then else 1.0

    def _day(self, number: int) -> float:
        """0: the next 24 hours; -1: the last."""
        begin = self._now + number * DAY_HOURS
        return sum(self._asked.get(hour, 0) for hour in range(begin, begin + DAY_HOURS))


def _bounded(level: float) -> float:
    return min(_LEVEL, max(1 / _LEVEL, level))


def _came(counts: Counts, lead: int) -> tuple[float, float, float]:
    """The share of what was known that came, the least that it was, and the most that it can be: what was
    loaded together, such as a campaign, stays or goes together.
    """
    found = [pair for (_, of), pair in counts.known.items() if of == lead and pair[0]]
    known, there = (sum(pair[at] for pair in found) for at in (0, 1))
    if not known:
        return 1.0, 1.0, 1.0
    share = there / known
    shares = [pair[1] / pair[0] for pair in found if pair[0] >= _ENOUGH] or [share]
    return share, min(share, *shares), 1.0


def _lead(minute: int) -> int:
    return sum(minute * MINUTE_MS > at_most for at_most in LEADS_MS)


def _by_minute(part: Mapping[tuple[int, Target], int], horizon: Horizon) -> list[int]:
    sums = [0] * horizon.minutes
    for (minute, _), count in part.items():
        sums[minute] += count
    return sums


def _together(
    plain: Sequence[int], chains: Sequence[int], fresh: Band, came: Sequence[tuple[float, float, float]]
) -> Band:
    """Chains go on; of the rest some is cancelled or moved away."""
    edges = (fresh.expected, fresh.low, fresh.high)
    found = [
        [
            count * came[_lead(minute)][which] + chains[minute] + edge[minute]
            for minute, count in enumerate(plain)
        ]
        for which, edge in enumerate(edges)
    ]
    return Band(*found)


def _of_hours(
    plain: Sequence[int],
    chains: Sequence[int],
    fresh: Foretold,
    came: Sequence[tuple[float, float, float]],
    horizon: Horizon,
) -> Band:
    zeros = [0.0] * horizon.minutes
    known = _together(plain, chains, Band(zeros, zeros, zeros), came)
    pairs = (
        (known.expected, fresh.hours.expected), (known.low, fresh.hours.low), (known.high, fresh.hours.high),
    )  # fmt: skip
    return Band(
        *(
            [one + other for one, other in zip(by_hour(of_known, horizon), of_fresh, strict=True)]
            for of_known, of_fresh in pairs
        )
    )


def _targets(
    counts: Counts, fresh: Foretold, came: Sequence[tuple[float, float, float]], horizon: Horizon
) -> dict[tuple[int, Target], float]:
    """What is expected of each hour, by target."""
    found: dict[tuple[int, Target], float] = {}

    def add(hour: int, target: Target, count: float) -> None:
        found[hour, target] = found.get((hour, target), 0.0) + count

    for (minute, target), count in counts.plain.items():
        add(horizon.hour_of(minute), target, count * came[_lead(minute)][0])
    for (minute, target), count in counts.chains.items():
        add(horizon.hour_of(minute), target, count)
    totals: dict[int, int] = {}
    for (hour, _), count in counts.fresh.items():
        totals[hour] = totals.get(hour, 0) + count
    for (hour, target), count in counts.fresh.items():
        add(hour, target, fresh.hours.expected[hour] * count / totals[hour])
    return found


def _peaks(minutes: Band, targets: Mapping[tuple[int, Target], float], horizon: Horizon) -> list[Peak]:
    """The hours with the busiest minutes."""
    busiest: dict[int, int] = {}
    for minute, high in enumerate(minutes.high):
        hour = horizon.hour_of(minute)
        if high > 0 and (hour not in busiest or high > minutes.high[busiest[hour]]):
            busiest[hour] = minute
    ranked = sorted(busiest.items(), key=lambda pair: (-minutes.high[pair[1]], pair[0]))[:MOST_PEAKS]
    return [Peak(hour, minute, behind(targets, hour)) for hour, minute in ranked]


def behind(targets: Mapping[tuple[int, Target], float], hour: int) -> list[tuple[Target, float]]:
    """The targets of an hour, the largest first; the others together last."""
    there = [(target, count) for (of, target), count in targets.items() if of == hour and count > 0]
    return sorted(there, key=lambda pair: (pair[0] is None, -pair[1], pair[0] or ""))


def _capacity(counts: Counts, asked: Asked) -> Capacity | None:
    if asked.per_s is not None:
        return Capacity(asked.per_s, given=True)
    if not counts.busiest:
        return None
    return Capacity(counts.busiest * 1_000 / BUSY_MS, given=False)


def _queue(
    due: Sequence[float], bursts: Sequence[float], capacity: Capacity | None, counts: Counts
) -> Backlog | None:
    return None if capacity is None else backlog(due, bursts, capacity.per_s, counts.waiting.overdue)


def _leaving(hours: Band, chains: Sequence[int], horizon: Horizon) -> list[float]:
    """How many messages wait no more after each hour: of a chain the next occurrence takes the place."""
    of_chains = by_hour(chains, horizon)
    return [one - other for one, other in zip(hours.expected, of_chains, strict=True)]


def _disks(counts: Counts, leaving: Sequence[float], horizon: Horizon, asked: Asked) -> list[Disk]:
    if counts.since_ms is None:
        return []
    retention = None if asked.retention_ms is None else -(-asked.retention_ms // HOUR_MS)
    begins = min(counts.since_ms // HOUR_MS, horizon.first_hour)
    kept = [float(counts.arrivals.get(hour, (0, 0, 0))[1]) for hour in range(begins, horizon.first_hour)]
    in_log = sum(size for _, size, _ in counts.arrivals.values()) or 1
    records = sum(count for count, _, _ in counts.arrivals.values())
    grown = log_growth(_usual(counts, horizon, 1), kept, retention)
    waiting = view_growth(_usual(counts, horizon, 2), leaving)
    there = counts.waiting
    of_message = VIEW_BYTES + (there.bytes / there.messages if there.messages else in_log / max(1, records))
    found = []
    for room in asked.rooms:
        if room.part == "log":
            used = in_log + RECORD_BYTES * records if room.used_bytes is None else room.used_bytes
            added = [more * used / in_log for more in grown]
        else:
            added = [more * of_message for more in waiting]
        hour = full_hour(added, room.free_bytes)
        full_at_ms = None if hour is None else (horizon.first_hour + hour + 1) * HOUR_MS
        found.append(Disk(room.part, room.where, room.free_bytes, added, full_at_ms))
    return found


def _usual(counts: Counts, horizon: Horizon, which: int) -> list[float]:
    """What usually comes in each hour of the horizon: the median of the same hours before; with too little
    history, the mean of all hours. `which` of `Counts.arrivals`. Of the present hour only what is left of it.
    """
    first, back = horizon.first_hour, counts.shifts
    if back is None:
        length = max(1, first - (counts.since_ms or 0) // HOUR_MS)
        mean = sum(one[which] for one in counts.arrivals.values()) / length
        found = [mean] * horizon.hours
    else:
        period = back.period_ms // HOUR_MS
        found = []
        for hour in range(first, first + horizon.hours):
            past = [hour - shift * period for shift in range(1, back.count + 1)]
            found.append(median(counts.arrivals.get(one, (0, 0, 0))[which] for one in past if one < first))
    found[0] *= 1 - horizon.now_ms % HOUR_MS / HOUR_MS
    return found
