"""Where the tables are.

PATH/requests/state=closed/day=2026-03-01/*.parquet    appended to
PATH/requests/state=open/day=2026-03-01/*.parquet      replaced by each run
PATH/_delayline/card.json                              whose tables these are
PATH/_delayline/marker-000000007.json                  how far they have come: the highest number counts
PATH/_delayline/intent-000000008.json                  what a run is about to do
PATH/_delayline/staging/, state/                       what it has written, and what it keeps for the next
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import msgspec
from pyspark.sql import DataFrame, SparkSession

from pipeline.errors import Conflict, WrongInput
from pipeline.hadoop import HadoopFiles
from pipeline.tables.commits import OWN, PARQUET, STATE, Commits
from pipeline.tables.marker import Card, Counts, Done, decode, encode
from pipeline.tables.rows import Split
from pipeline.tables.schema import CLOSED, DAY, OPEN, TABLES
from pipeline.watch.round import Round
from pipeline.watch.state import State, StateFolder

_CARD: Final = f"{OWN}/card.json"
_TIMESTAMPS: Final = "spark.sql.parquet.outputTimestampType"


class Place:
    """One folder of tables. Raises `PipelineError` for what cannot be gone on with."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.path = path
        self._spark = spark
        self._files = HadoopFiles(spark, path)
        self._commits = Commits(self._files)
        self._states = StateFolder(spark, self._files.uri(STATE))

    # ---- whose it is

    def card(self, cluster: str, buffer: str) -> Card | None:
        """None: there is nothing in the folder. `buffer`: the id of the cluster's buffer topic."""
        if self._files.exists(_CARD):
            card = decode(self._files.read(_CARD), Card, f"{self.path}/{_CARD}")
            _expect(card, cluster, buffer, self.path)
            return card
        others = [name for name in self._files.names() if name != OWN]
        if others:
            raise Conflict(
                f"{self.path} holds something else ({others[0]}): name an empty folder, or one that this"
                " command has made"
            )
        return None

    def claim(self, cluster: str, buffer: str) -> Card:
        """The folder is this cluster's from now on. For one at a time."""
        card = Card(cluster=cluster, buffer=buffer, place=uuid.uuid4().hex)
        self._files.write(_CARD, encode(card))
        return card

    # ---- what there is

    def settle(self) -> Done | None:
        """How far the tables have come, once what a killed run has begun is done. None: there are none."""
        return self._commits.settle()

    def state(self, done: Done) -> State:
        """What the last run has kept."""
        if not self._states.has(done.folder):
            raise WrongInput(
                f"{self.path}/{STATE}/{done.folder} is gone, which the last run has kept: export into an"
                " empty folder"
            )
        return self._states.read(done.folder)

    def open_rows(self, done: Done | None) -> dict[str, DataFrame]:
        """By table."""
        return {name: self._read(name, "" if done is None else f"{name}/state={OPEN}") for name in TABLES}

    # ---- what a run adds

    def commit(
        self, before: Done | None, one: Round, rows: Mapping[str, Split], require: Callable[[], None]
    ) -> Done:
        """All that a run has found becomes part of the tables. `before`: what it has begun from. `require`
        raises unless it is still this run's turn.
        """
        number = 0 if before is None else before.number + 1
        staging = self._commits.aside(number)
        self._states.write(one.marker.folder, one.state)
        for name, split in rows.items():
            self._stage(f"{staging}/{name}/state={CLOSED}", name, split.closed)
            if split.open is not None:
                self._stage(f"{staging}/{name}/state={OPEN}", name, split.open)
        done = Done(
            number=number,
            folder=one.marker.folder,
            proven_up_to_ms=one.marker.proven_up_to_ms,
            rows={name: self._counts(name, staging, before) for name in rows},
            round=msgspec.Raw(one.marker.encode()),
        )
        require()
        self._commits.commit(staging, before, done)
        return done

    def _stage(self, folder: str, name: str, rows: DataFrame) -> None:
        with self._timestamps():
            (
                rows.hint("rebalance", DAY)  # a file for a day, or some for one that has much
                .sortWithinPartitions(DAY, *TABLES[name].order)
                .write.partitionBy(DAY)
                .parquet(self._files.uri(folder))
            )

    @contextmanager
    def _timestamps(self) -> Iterator[None]:
        """What Spark writes by itself is a format of its own, which others read as nanoseconds."""
        before = str(self._spark.conf.get(_TIMESTAMPS))
        self._spark.conf.set(_TIMESTAMPS, "TIMESTAMP_MICROS")
        try:
            yield
        finally:
            self._spark.conf.set(_TIMESTAMPS, before)

    def _counts(self, name: str, staging: str, before: Done | None) -> Counts:
        new, still = (self._read(name, f"{staging}/{name}/state={state}").count() for state in (CLOSED, OPEN))
        return Counts(new + (0 if before is None else before.rows[name].closed), new, still)

    def _read(self, name: str, folder: str) -> DataFrame:
        """Rows of a table; none, where there are no files."""
        schema = f"{TABLES[name].ddl}, {DAY} date"
        if not folder or not self._files.walk(folder, PARQUET):
            return self._spark.createDataFrame([], schema)
        return self._spark.read.schema(schema).parquet(self._files.uri(folder))


def _expect(card: Card, cluster: str, buffer: str, path: str) -> None:
    if card.cluster != cluster:
        raise Conflict(
            f"{path} has the tables of cluster {card.cluster}, not of {cluster}: name another folder, or that"
            " cluster"
        )
    if card.buffer != buffer:
        raise Conflict(
            f"{path} has the tables of another buffer topic, {card.buffer}; that of cluster {cluster} is"
            f" {buffer}, made anew: export into an empty folder"
        )
