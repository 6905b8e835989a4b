"""A bulk load: first all rows are checked, then what is not in the buffer yet is sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from delayline.settings import ClusterSettings
from delayline.times import now_ms
from node.config import ConnectionConfig
from ops.bulk import job
from ops.bulk.files import write
from ops.bulk.progress import HowFar, rows_in, shown
from ops.bulk.run import Run
from ops.errors import ConflictError, OperatorError
from ops.spark import spark_errors
from pipeline.bulk.first import FIRST_MS
from pipeline.bulk.lacking import lacking
from pipeline.bulk.lease import Held
from pipeline.bulk.requests import CHANGES, REJECT_CODE, REJECT_DETAIL, TARGET, judged, split
from pipeline.bulk.sink import FORMAT, KAFKA_PREFIX, DelaylineSink
from pipeline.kafka.extent import TopicExtent
from pipeline.kafka.offsets import TopicOffsets
from pipeline.kafka.source import records

MOST_SHOWN: Final = 20
MOST_WAVES: Final = 200
"""Of tasks, one after the other on each core: a driver has to remember them all."""
_TASK_S: Final = 10.0
MOST_TRIES: Final = 5
"""To send, where Spark loses what is under way."""


class Group(NamedTuple):
    """The requests for a target (None: cancels and reschedules), or the rejects of a code."""

    target: str | None
    code: str | None
    rows: int
    first_ms: int | None
    last_ms: int | None
    example: str | None


@dataclass(frozen=True, slots=True)
class Checked:
    """What a load's rows are: of targets and of codes the largest groups, `MOST_SHOWN` of each.
    `repeated_ids`: how many ids several rows have of which one replaces or reschedules what another asks for.
    """

    rows: int
    rejected: int
    repeated_ids: int = 0
    repeated_example: str | None = None
    targets: list[Group] = field(default_factory=list)
    rejects: list[Group] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a load has done, in requests."""

    sent: int
    were_there: int


class Load:
    """One job's requests, on their way from a frame into a cluster's buffer."""

    def __init__(
        self,
        config: ConnectionConfig,
        settings: ClusterSettings,
        name: str,
        frame: DataFrame,
        columns: Mapping[str, str],
        *,
        op: str = "",
        say: Callable[[str], None] | None = None,
    ) -> None:
        """`op`: what all rows ask for, as the job's words say. `say`: tells whoever waits, who sees how far
        it is, too; None: nobody does.

        Raises `WrongInput`: a column that is none of a request, or cannot be read as one.
        """
        self.config, self.name, self._partitions = config, name, settings.partitions
        self._say = say
        self._spark: SparkSession = frame.sparkSession
        self._words = job.digest_of(op, columns)
        self._rows = judged(frame, settings, name, columns, now_ms())
        names = {*columns, *frame.columns}
        self._may_change = "if_exists" in names or op == "reschedule" or (not op and "op" in names)

    def check(self) -> Checked:
        """Looks at every row; sends nothing."""
        example = F.first(F.when(F.col(REJECT_CODE).isNotNull(), F.col(REJECT_DETAIL)), ignorenulls=True)
        sound_target = F.when(F.col(REJECT_CODE).isNull(), F.col(TARGET))
        groups = self._rows.groupBy(sound_target.alias("target"), F.col(REJECT_CODE).alias("code")).agg(
            F.count("*").alias("rows"),
            F.min(FIRST_MS).alias("first_ms"),
            F.max(FIRST_MS).alias("last_ms"),
            example.alias("example"),
        )
        with self._shown("checking"):
            counted = groups.localCheckpoint()
        rows, rejected = counted.agg(
            F.coalesce(F.sum("rows"), F.lit(0)),
            F.coalesce(F.sum(F.when(F.col("code").isNotNull(), F.col("rows"))), F.lit(0)),
        ).collect()[0]
        return Checked(
            rows,
            rejected,
            *self._repeated_ids(),
            _largest(counted.where(F.col("code").isNull())),
            _largest(counted.where(F.col("code").isNotNull())),
        )

    def _repeated_ids(self) -> tuple[int, str | None]:
        """Where no row can replace or reschedule, nothing is read for it."""
        if not self._may_change:
            return 0, None
        ids = self._rows.where(F.col(REJECT_CODE).isNull()).groupBy("key")
        found = ids.agg(F.count("*").alias("rows"), F.bool_or(CHANGES).alias(CHANGES))
        repeated = found.where((F.col("rows") > 1) & F.col(CHANGES))
        with self._shown("looking for ids that occur twice"):
            count, example = repeated.agg(F.count("*"), F.min(F.col("key").cast("string"))).collect()[0]
        return count, example

    def write_rejected(self, place: str) -> None:
        """The rows that the service would reject, with why (`pipeline.bulk.requests.Requests`)."""
        write(split(self._rows).rejected.drop("op"), place)

    def send(self, checked: Checked, rate: float | None, run: Run) -> Loaded:
        """Sends what is not in the buffer yet. Killed, it is begun again, with the same name.

        `rate`: requests a second at most. `run`: has the job. Raises ConflictError where nobody can tell any
        more what the job has sent, or another run has the job meanwhile; KafkaFailed and the like by
        `ops.spark.spark_errors`.
        """
        sound = checked.rows - checked.rejected
        were_there, tries = None, 0
        while True:
            try:
                with spark_errors(self.config.bootstrap_servers):
                    wanted, left = self._lacking(sound, run)
                    were_there = sound - left if were_there is None else were_there
                    self._write(wanted, left, rate, run.held)
                return Loaded(sound - were_there, were_there)
            except OperatorError as error:
                tries += 1
                if type(error) is not OperatorError or tries == MOST_TRIES:
                    raise
                if self._say is not None:
                    self._say(f"{error}; what is there is looked for, and the rest is sent")
            run.take_anew()

    def _lacking(self, sound: int, run: Run) -> tuple[DataFrame, int]:
        """The records that are not in the buffer, of so many, and how many they are."""
        there = job.begin(self.config, run, self._words)
        wanted = split(self._rows).records
        if not there.filled():
            return wanted, sound
        with self._shown("reading what is there"):
            wanted = lacking(wanted, self._sent(there), self.name).localCheckpoint()
        return wanted, wanted.count()

    def _shown(self, what: str, how_far: HowFar | None = None) -> AbstractContextManager[None]:
        return nullcontext() if self._say is None else shown(self._spark, what, how_far)

    def _sent(self, there: TopicExtent) -> DataFrame:
        """All that is committed there, the job's and others'."""
        TopicOffsets(self.config).settle(there)
        return records(self._spark, self.config, there)

    def _write(self, wanted: DataFrame, count: int, rate: float | None, held: Held) -> None:
        """Raises ConflictError if they are not so many."""
        self._spark.dataSource.register(DelaylineSink)
        options: dict[str, Any] = {
            f"{KAFKA_PREFIX}{key}": value for key, value in self.config.kafka.items()
        } | {
            "bootstrap.servers": self.config.bootstrap_servers,
            "cluster": self.config.cluster,
            "partitions": self._partitions,
            "held": held.to_json(),
        }
        if rate is not None:
            side_by_side = self._spark.sparkContext.defaultParallelism
            tasks = min(MOST_WAVES, max(1, ceil(count / (rate * _TASK_S)))) * side_by_side
            wanted = wanted.repartition(tasks)
            options["rate"] = rate / side_by_side
        with self._shown("sending", rows_in(self.config, count)):
            counted = Observation()
            observed = wanted.observe(counted, F.count(F.lit(1)).alias("sent"))
            observed.write.format(FORMAT).mode("append").options(**options).save()
        sent = int(counted.get["sent"])
        if sent != count:
            raise ConflictError(
                f"{count} requests were to be sent, and {sent} were: the rows have changed since they were"
                " checked; run it again"
            )


def _largest(groups: DataFrame) -> list[Group]:
    found = groups.orderBy(F.desc("rows"), "target", "code").limit(MOST_SHOWN).collect()
    return [Group(*row) for row in found]
