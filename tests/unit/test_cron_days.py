"""A cron expression fires when CronSim says so, and what one costs is bounded, whoever has written it."""

from __future__ import annotations

from datetime import UTC, date, datetime, tzinfo
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim, CronSimError
from hypothesis import assume, given
from hypothesis import strategies as st

from delayline.cron_days import Cron
from delayline.recurrence import CRON_MAX_LENGTH

DAYS_OF_ALL_KINDS = 28 * 31
"""Of months by length and first weekday."""

NEVER = "0 0 */31,2,3,4,5,6,7 * MON#2,TUE#2,WED#2,THU#3,FRI#3,SAT#4,SUN#4,3L"

_DAYS = st.sampled_from(["*", "*/31", "*/29", "*/30", "*/31,L", "*/28,LW", "L", "LW", "31", "29", "1-6"])
_MONTHS = st.sampled_from(["*", "2", "2,4", "4,6,9,11", "*/5"])
_WEEKDAYS = st.sampled_from(["*", "*/7", "*/5,MON#2", "MON#1", "MON#5", "0L", "7", "1-5", "3#5,6#1", "1L"])
_TIMES = st.sampled_from(["0 0", "30 2", "*/7 *", "59 23", "0 30 2", "5,7 * 1"])
_EXPRESSIONS = st.builds(lambda *fields: " ".join(fields), _TIMES, _DAYS, _MONTHS, _WEEKDAYS)
_ZONES: st.SearchStrategy[tzinfo] = st.sampled_from(
    [UTC, *map(ZoneInfo, ("Europe/Berlin", "America/Havana", "Asia/Beirut", "Pacific/Apia"))]
)
_SECONDS = st.integers(0, 4_200_000_000)  # to 2103: past a year that could be a leap year, and is not


class Counted(Cron):
    """Counts the days that it looks at."""

    looked_at = 0

    def match_day(self, d: date) -> bool:
        self.looked_at += 1
        return super().match_day(d)


@given(_EXPRESSIONS, _ZONES, _SECONDS)
def test_it_fires_when_cronsim_does(expression: str, zone: tzinfo, after_s: int) -> None:
    after = datetime.fromtimestamp(after_s, zone)
    try:
        slow = CronSim(expression, after)
    except CronSimError:
        assume(False)
    assert list(islice(Cron(expression, after), 3)) == list(islice(slow, 3))


@given(_EXPRESSIONS)
def test_one_that_never_fires_for_cronsim_is_one_that_never_fires(expression: str) -> None:
    begin = datetime(2000, 1, 1, tzinfo=UTC)
    try:
        slow = CronSim(expression, begin)
    except CronSimError:
        assume(False)
    assert Cron(expression, begin).fires() == (next(slow, None) is not None)


@pytest.mark.parametrize("expression", [NEVER, "0 0 */31,L * MON#4", "0 0 L 2 */7,MON#4", "0 0 29 2 */7"])
def test_no_day_of_a_kind_of_month_is_looked_at_twice(expression: str) -> None:
    assert len(expression) <= CRON_MAX_LENGTH
    cron = Counted(expression, datetime(2000, 3, 1, tzinfo=UTC))
    fires = cron.fires()
    assert fires == (expression != NEVER)
    assert (next(cron, None) is not None) == fires
    assert cron.looked_at <= DAYS_OF_ALL_KINDS + 2  # and today's, before the search and behind it
