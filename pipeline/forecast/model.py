"""What is still to come, from what came in earlier stretches: an expected count for each minute, and a band.

An hour's expectation is the median of the samples' hours, each brought to the present level; a burst or an
outage of one week does not move it far. Within the hour its messages are spread over the minutes as the
samples had them, and, by one sample's weight, as all hours had them together.

The band is as wide as the samples themselves say: each is forecast from the others, and what that was off
by, in units of `_scale`, is what the band's quantiles are taken from. Nothing is assumed of how counts are
distributed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from statistics import median
from typing import Final

from pipeline.forecast.horizon import DAY_MINUTES, HOUR_MINUTES, Horizon

BAND: Final = 0.8
"""The share of minutes that should lie within the band."""
_PRIOR: Final = 1.0
"""Samples' worth of the minutes that all hours have together."""
_LEAST: Final = 0.25
_CLASSES: Final = (2.0, 20.0)
"""Small counts are off in other ways than large ones: quantiles are taken in classes of the expectation."""
_FEW: Final = 150
_MEDIAN_OF_SQUARE: Final = 0.455
"""Of a normal variable of variance 1."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One earlier stretch: counts by minute, of which the first `covered` are whole; `levels`: what each of
    its days has to be multiplied by to be of the level that is expected; none: nothing.
    """

    counts: Mapping[int, int]
    covered: int
    levels: Sequence[float] = ()

    def at(self, minute: int) -> float:
        """How many there were, brought to that level."""
        count = self.counts.get(minute, 0)
        return count * self.levels[minute // DAY_MINUTES] if count and self.levels else float(count)


@dataclass(frozen=True, slots=True)
class Band:
    """An expectation, and between what 80 of 100 should lie."""

    expected: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


@dataclass(frozen=True, slots=True)
class Foretold:
    """What nobody has asked for yet."""

    minutes: Band
    hours: Band


def foretold(samples: Sequence[Sample], horizon: Horizon) -> Foretold:
    """From two samples or more; from none: nothing is expected, which is no forecast."""
    if not samples:
        return Foretold(_none(horizon.minutes), _none(horizon.hours))
    minutes = expectation(samples, horizon)
    missed_minutes, missed_hours = _Missed(), _Missed()
    for number, left_out in enumerate(samples):
        others = [*samples[:number], *samples[number + 1 :]]
        expected = expectation(others, horizon)
        came = [left_out.at(minute) for minute in range(left_out.covered)]
        within = [
            minute for minute in range(left_out.covered) if any(other.covered > minute for other in others)
        ]
        missed_minutes.add([(expected[minute], came[minute]) for minute in within])
        if within:
            whole = within[-1] + 1
            missed_hours.add(
                list(zip(by_hour(expected[:whole], horizon), by_hour(came[:whole], horizon), strict=True))
            )
    return Foretold(missed_minutes.band(minutes), missed_hours.band(by_hour(minutes, horizon)))


def expectation(samples: Sequence[Sample], horizon: Horizon) -> list[float]:
    """Of each minute."""
    hours = [_Hour(minutes, samples) for minutes in _hours(horizon)]
    profile = _profile(hours, horizon)
    return [
        value
        for hour in hours
        for value in hour.spread([profile[_in_hour(horizon, minute)] for minute in hour.minutes])
    ]


def by_hour(counts: Sequence[float], horizon: Horizon) -> list[float]:
    """Sums of minutes from the horizon's beginning, by clock hours."""
    sums = [0.0] * (horizon.hour_of(len(counts) - 1) + 1)
    for minute, value in enumerate(counts):
        sums[horizon.hour_of(minute)] += value
    return sums


class _Hour:
    """One hour as the samples have it: `rows` by minute. `weights`: one that had far more than the others is
    not to say alone how the hour is spread over its minutes.
    """

    def __init__(self, minutes: range, samples: Sequence[Sample]) -> None:
        self.minutes = minutes
        there = [sample for sample in samples if sample.covered >= minutes.stop]
        self.rows = [[sample.at(minute) for minute in minutes] for sample in there]
        totals = [sum(row) for row in self.rows]
        self.centre = median(totals) if totals else 0.0
        if self.centre <= 0 and totals:
            # Most of them had nothing here: what there was may come again, thinly.
            self.centre = sum(totals) / len(totals)
        self.weights = [min(1.0, self.centre / total) if total > 0 else 0.0 for total in totals]

    def weighted(self, place: int) -> float:
        """What they have in one of its minutes."""
        return sum(weight * row[place] for weight, row in zip(self.weights, self.rows, strict=True))

    def spread(self, profile: Sequence[float]) -> list[float]:
        """What is expected of each of its minutes."""
        of_prior = [_PRIOR * self.centre * share for share in _shares(profile)]
        shares = _shares([self.weighted(place) + prior for place, prior in enumerate(of_prior)])
        return [self.centre * share for share in shares]


def _shares(values: Sequence[float]) -> list[float]:
    total = sum(values)
    return [value / total for value in values] if total > 0 else [1 / len(values)] * len(values)


def _profile(hours: Sequence[_Hour], horizon: Horizon) -> list[float]:
    """How all hours together are spread over their minutes; none is without a share."""
    sums = [0.0] * HOUR_MINUTES
    for hour in hours:
        for place, minute in enumerate(hour.minutes):
            sums[_in_hour(horizon, minute)] += hour.weighted(place)
    return [value + 0.01 * sum(sums) / HOUR_MINUTES for value in sums]


def _in_hour(horizon: Horizon, minute: int) -> int:
    return (horizon.first_minute + minute) % HOUR_MINUTES


def _hours(horizon: Horizon) -> list[range]:
    """The minutes of each of its clock hours."""
    edges = [0, *range(HOUR_MINUTES - _in_hour(horizon, 0), horizon.minutes, HOUR_MINUTES), horizon.minutes]
    return [range(begin, end) for begin, end in pairwise(edges) if begin < end]


def _none(length: int) -> Band:
    zeros = [0.0] * length
    return Band(zeros, zeros, zeros)


class _Missed:
    """What forecasts of samples were off by."""

    def __init__(self) -> None:
        self._pairs: list[tuple[float, float]] = []

    def add(self, pairs: Sequence[tuple[float, float]]) -> None:
        """Pairs of what was expected and what came."""
        self._pairs += pairs

    def band(self, expected: Sequence[float]) -> Band:
        """Round the expectation."""
        relative = self._relative()
        classes: list[list[float]] = [[] for _ in range(len(_CLASSES) + 1)]
        for mean, came in self._pairs:
            classes[_class(mean)].append((came - mean) / _scale(mean, relative))
        together = [one for each in classes for one in each]
        quantiles = [_quantiles(each if len(each) >= _FEW else together) for each in classes]
        low, high = [], []
        for mean in expected:
            below, above = quantiles[_class(mean)]
            scale = _scale(mean, relative)
            low.append(max(0.0, mean + min(0.0, below) * scale))
            high.append(mean + max(0.0, above) * scale)
        return Band(list(expected), low, high)

    def _relative(self) -> float:
        """How far large counts are off, as a share of them, beyond what chance alone does to counts."""
        beyond = [((came - mean) ** 2 - mean) / mean**2 for mean, came in self._pairs if mean >= _CLASSES[0]]
        return sqrt(max(0.0, median(beyond) / _MEDIAN_OF_SQUARE)) if beyond else 0.0


def _class(mean: float) -> int:
    return sum(mean >= edge for edge in _CLASSES)


def _scale(mean: float, relative: float) -> float:
    """How far a count may be off its expectation, up to a factor: chance, and a share of it."""
    floor = max(mean, _LEAST)
    return sqrt(floor + (relative * floor) ** 2)


def _quantiles(values: list[float]) -> tuple[float, float]:
    """Between which the band's share of the values lies."""
    if not values:
        return 0.0, 0.0
    ordered = sorted(values)
    outside = (1 - BAND) / 2
    # As far out as there are values to tell: of few, the outermost.
    low = max(0, int(outside * (len(ordered) + 1)) - 1)
    return ordered[low], ordered[len(ordered) - 1 - low]
