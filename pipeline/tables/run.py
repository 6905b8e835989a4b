"""One run: a round of the watch's engine, and what it has found becomes part of the tables.

The rounds have a state and a marker of their own, beside the tables: they tell nothing, and neither they nor
the rounds of an `audit watch` know of each other.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession

from pipeline.audit.snapshot import Snapshot
from pipeline.errors import Conflict
from pipeline.tables.marker import Done
from pipeline.tables.place import Place
from pipeline.tables.rows import rows_of
from pipeline.watch.round import WatchConfig, first_round, next_round


def export(
    spark: SparkSession,
    config: WatchConfig,
    place: Place,
    require: Callable[[], None],
    snapshot: Snapshot | None = None,
) -> Done:
    """From where the tables have come to, up to the ends of `snapshot`, or to those that there are now.
    `require`: see `Place.commit`.

    Raises `Conflict` if Kafka has lost what was not read yet.
    """
    done = place.settle()
    if done is None:
        one = first_round(spark, config, snapshot)
    else:
        found = next_round(spark, config, done.marker, place.state(done), snapshot)
        if found is None:
            raise Conflict(
                f"Kafka has lost what was not read yet since the last export into {place.path}, by retention"
                " or since one of the cluster's own topics was made anew: keep these tables, and export into"
                " an empty folder, which begins with what there is now"
            )
        one = found
    return place.commit(done, one, rows_of(one.ground, place.open_rows(done)), require)
