"""What the lanes have to deliver in the next days: what waits, what follows from it, what is still to come.

`count` makes small tables of frames, in Spark; `forecast` makes the forecast of them, in Python alone.
"""

from __future__ import annotations

from pipeline.forecast.counts import Counts as Counts
from pipeline.forecast.counts import count as count
from pipeline.forecast.forecast import Asked as Asked
from pipeline.forecast.forecast import Forecast as Forecast
from pipeline.forecast.forecast import Room as Room
from pipeline.forecast.forecast import forecast as forecast
from pipeline.forecast.horizon import Horizon as Horizon
