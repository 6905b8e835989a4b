"""The minutes that are forecast, and the same stretch of earlier weeks or days."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from delayline.times import DAY_MS, MINUTE_MS

HOUR_MS: Final = 60 * MINUTE_MS
WEEK_MS: Final = 7 * DAY_MS
HOUR_MINUTES: Final = 60
DAY_HOURS: Final = 24
DAY_MINUTES: Final = DAY_HOURS * HOUR_MINUTES
MOST_DAYS: Final = 14
MOST_SHIFTS: Final = 8
"""Earlier weeks that are looked at; of days, two weeks of them less one."""
FEWEST_SHIFTS: Final = 2
"""From one alone nobody can say how much it may be off."""


@dataclass(frozen=True, slots=True)
class Horizon:
    """What is forecast: `minutes` of them, the first the one in which `now_ms` is."""

    now_ms: int
    minutes: int

    @property
    def first_minute(self) -> int:
        """Minutes since the epoch."""
        return self.now_ms // MINUTE_MS

    @property
    def end_ms(self) -> int:
        """Where it ends, exclusive."""
        return (self.first_minute + self.minutes) * MINUTE_MS

    @property
    def first_hour(self) -> int:
        """Hours since the epoch."""
        return self.first_minute // HOUR_MINUTES

    @property
    def hours(self) -> int:
        """Clock hours that have a minute of it: the first and the last may lack some."""
        return (self.first_minute + self.minutes - 1) // HOUR_MINUTES - self.first_hour + 1

    def hour_of(self, minute: int) -> int:
        """Which of its hours a minute of it is in; both are counted from its beginning."""
        return (self.first_minute + minute) // HOUR_MINUTES - self.first_hour


@dataclass(frozen=True, slots=True)
class Shifts:
    """Earlier stretches like the horizon: back by 1 to `count` times `period_ms`."""

    period_ms: int
    count: int

    def covered(self, shift: int, minutes: int) -> int:
        """How many of the horizon's minutes are past in the stretch that lies back by so many periods."""
        return min(minutes, shift * self.period_ms // MINUTE_MS)


def shifts(horizon: Horizon, since_ms: int | None) -> Shifts | None:
    """Weeks, if the history (from `since_ms` on) has two or more whole ones that the horizon fits in; else
    days; None: the history is too short to say anything of what is still to come.
    """
    if since_ms is None:
        return None
    length_ms = horizon.now_ms - since_ms
    for period_ms, most in ((WEEK_MS, MOST_SHIFTS), (DAY_MS, 2 * 7 - 1)):
        count = min(most, length_ms // period_ms)
        # All minutes of the horizon need as many stretches in which they are past.
        farthest = -(-horizon.minutes * MINUTE_MS // period_ms)
        if count - farthest + 1 >= FEWEST_SHIFTS:
            return Shifts(period_ms, count)
    return None
