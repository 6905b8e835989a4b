"""One run of an export: what is new since the last one, and what is still open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import SparkSession

from delayline.names import ClusterNames
from election.operators import Author
from node.config import ConnectionConfig
from ops.clients.kafka import KafkaAdmin
from ops.tables.turn import Turn
from pipeline.tables.marker import Card, Done
from pipeline.tables.place import Place
from pipeline.tables.run import export
from pipeline.watch.round import WatchConfig

_NEW: Final = "new"
"""In place of the name of a folder that has none yet."""


def export_into(
    spark: SparkSession,
    config: ConnectionConfig,
    wanted: Callable[[], WatchConfig],
    path: str,
    author: Author,
) -> Done:
    """`wanted`: asked once it is this run's turn, since a cluster's settings change.

    Raises OperatorError, PipelineError and Spark's errors: the tables are as they were, or the next run does
    the rest.
    """
    place = Place(spark, path)
    card = _card(config, place, author)
    with Turn(config, card.place, path, author) as turn:
        return export(spark, wanted(), place, turn.require)


def _card(config: ConnectionConfig, place: Place, author: Author) -> Card:
    """The folder's, which is claimed if nothing is there."""
    cluster = config.cluster
    buffer = KafkaAdmin(config).topic_id(ClusterNames(cluster).buffer)
    card = place.card(cluster, buffer)
    if card is not None:
        return card
    with Turn(config, _NEW, place.path, author):
        return place.card(cluster, buffer) or place.claim(cluster, buffer)
