"""What can be wrong with the parking of a message whose target is unavailable, unknown or paused.

A parked row ends with its park; what is written back for it, to be tried later, ends in its own way.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from delayline.rejects import ParkCode, RejectCode
from delayline.wire import H_ATTEMPT, H_SCHEDULED_FOR
from pipeline.audit.bounds import Bounds
from pipeline.audit.classes import recurs
from pipeline.audit.content import last_header
from pipeline.audit.flaw import Checks, said
from pipeline.audit.meaning import SCHEDULE

_NO_ATTEMPT: Final = tuple(ParkCode)
_CODES: Final = (RejectCode.TARGET_UNAVAILABLE, RejectCode.BAD_TIME_ZONE, *_NO_ATTEMPT)


def park_checks(bounds: Bounds) -> Checks:
    """The checks, for the columns of `pipeline.audit.cases`."""
    parks = F.col("own_park_count")
    return [
        ("duplicated", F.when(parks > 1, said("parked ", parks, " times"))),
        ("false_outcome", _false_park()),
        ("false_outcome", _untold(bounds)),
    ]


def was_parked() -> Column:
    """Whether what a message is delivered by was parked itself: its later try is missing."""
    return F.coalesce(F.col("park.keyed_by") == F.col("row.source"), F.lit(False))


def by_parked_try() -> Column:
    """Whether the delivery was made by a try that was parked: by its number, not the last one."""
    headers, row = F.col("delivered.headers"), F.col("row")
    attempt = last_header(headers, H_ATTEMPT).try_cast("long")
    # A reschedule begins the count anew.
    same_time = last_header(headers, H_SCHEDULED_FOR) == row["scheduled_for_ms"].cast("string")
    earlier = F.coalesce((attempt < row["attempt"]) & (same_time | recurs()), F.lit(False))
    return F.col("delivered").isNotNull() & (earlier | was_parked())


def _false_park() -> Column:
    kind, park, later = F.col("kind"), F.col("own_park"), F.col("following")
    # An operator's pause is no failed attempt.
    wanted = F.col("attempt") + F.when(park["code"].isin(*_NO_ATTEMPT), 0).otherwise(1)
    text = (
        F.when(kind != SCHEDULE, said("parked, and it is a ", kind))
        .when(
            ~F.coalesce(park["code"].isin(*_CODES), F.lit(False)), said("parked with the code ", park["code"])
        )
        .when(
            later["attempt"] != wanted,
            said(later["source"], " is attempt ", later["attempt"], " instead of ", wanted),
        )
    )
    return F.when(kind.isNotNull() & park.isNotNull(), text)


def _untold(bounds: Bounds) -> Column:
    """For a schedule nothing is written back but its later try and the next occurrence."""
    later = F.col("following")
    is_try = ~recurs() | (later["attempt"] > 1)
    untold = (F.col("kind") == SCHEDULE) & (F.col("own_park_count") == 0) & is_try
    recent = F.col("settled_at_ms") > bounds.outcomes_edge_ms
    return F.when(
        later.isNotNull() & untold & recent,
        said(later["source"], " is to be tried later, and no outcome says that this one was parked"),
    )
