"""A forecast of a cluster, made by Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from delayline.times import DAY_MS, MINUTE_MS
from node.config import ConnectionConfig
from ops.forecast.rooms import Rooms, rooms
from ops.spark import forecast_session, spark_errors, stopped_after
from ops.topics.audited import audit_config
from pipeline.forecast import Asked, Forecast, Horizon, count, forecast
from pipeline.forecast.read import read


@dataclass(frozen=True, slots=True)
class Wish:
    """What an operator wants to know: how many `days`; what the lanes can do, and what is free for the log,
    if they know that better.
    """

    days: float
    capacity_per_s: float | None = None
    disk_bytes: int | None = None


class Made(NamedTuple):
    """The forecast, and what could not be found out."""

    forecast: Forecast
    unknown: list[str]


def made(config: ConnectionConfig, wish: Wish, master: str, say: Callable[[str], None]) -> Made:
    """Reads the cluster's topics, by the Spark at `master`.

    Raises OperatorError, SetupError, PipelineError, ElectionError.
    """
    wanted = audit_config(config)
    say("starting Spark")
    with stopped_after(forecast_session(master)) as spark, spark_errors(config.bootstrap_servers):
        log = read(spark, wanted)
        horizon = Horizon(log.taken_ms, ceil(wish.days * DAY_MS / MINUTE_MS))
        counts = count(log.messages, log.arrivals, horizon, log.since_ms)
        found: Rooms = rooms(spark, config, wish.disk_bytes)
    asked = Asked(wish.capacity_per_s, found.known, log.retention_ms)
    return Made(forecast(config.cluster, counts, horizon, asked), found.unknown)
