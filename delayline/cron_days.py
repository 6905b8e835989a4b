"""Cron expressions whose next day is found by the calendar: CronSim tries one day after the other, for fifty
years if none is like that, and anybody may send such an expression.

A month is of one of 28 kinds: its length, and the weekday that it begins with. Which days of a month match
depends on its kind alone, so no kind is looked at twice. Where no kind has any, there is none.
"""

from __future__ import annotations

from calendar import monthrange
from datetime import date, datetime, time
from typing import Final

from cronsim import CronSim

LONGEST_SEARCH_YEARS: Final = 50
"""CronSim's own: what fires at no time in so many years does not fire."""

_LENGTHS: Final = ((31,), (28, 29), (31,), (30,), (31,), (30,), (31,), (31,), (30,), (31,), (30,), (31,))
_WEEKDAYS: Final = 7
_FIRST_THAT_MAY_BE_LAST: Final = 26  # the 28th of a February, a Sunday, is behind its last weekday


class Cron(CronSim):
    """Fires when `CronSim` does, in the same steps but for the one from day to day."""

    def __init__(self, expression: str, after: datetime) -> None:
        """Raises `CronSimError`."""
        super().__init__(expression, after)
        self._kinds = _WEEKDAYS * len({days for month in self.months for days in _LENGTHS[month - 1]})
        self._matching: dict[tuple[int, int], list[int]] = {}  # days, by first weekday and length of a month

    def fires(self) -> bool:
        """Whether it does at all: at each time of a day that matches, and on no other."""
        return self._first_day(self.dt.date()) is not None

    def advance_day(self) -> bool:
        """See `CronSim`: False if the day matches; else goes on to the next one that does."""
        today = self.dt.date()
        if self.match_day(today):
            return False
        day = self._first_day(today)
        if day is None:
            raise StopIteration
        self.dt = datetime.combine(day, time(), tzinfo=self.dt.tzinfo)
        return True

    def _first_day(self, begin: date) -> date | None:
        """The first day from `begin` on that matches; None: there is none, in fifty years or ever."""
        least = begin.day
        for year in range(begin.year, begin.year + LONGEST_SEARCH_YEARS + 1):
            for month in range(begin.month if year == begin.year else 1, 13):
                if month in self.months:
                    for day in self._days(year, month):
                        if day >= least:
                            return date(year, month, day)
                    if len(self._matching) == self._kinds and not any(self._matching.values()):
                        return None
                least = 1
        return None

    def _days(self, year: int, month: int) -> list[int]:
        kind = monthrange(year, month)
        days = self._matching.get(kind)
        if days is None:
            possible = [day for day in range(1, kind[1] + 1) if self._may_match(day)]
            days = self._matching[kind] = [day for day in possible if self.match_day(date(year, month, day))]
        return days

    def _may_match(self, day: int) -> bool:
        """By its number alone. What stands for the last day, or weekday, of a month is a negative one."""
        return not self.day_and or day in self.days or (day >= _FIRST_THAT_MAY_BE_LAST and min(self.days) < 0)
