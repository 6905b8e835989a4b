"""A bulk load: first all rows are checked, then what is not in the buffer yet is sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from delayline.settings import ClusterSettings
from delayline.times import now_ms
from election.operators import Author
from node.config import ConnectionConfig
from ops.bulk import job
from ops.bulk.files import write
from ops.bulk.progress import shown
from ops.errors import ConflictError
from pipeline.bulk.first import FIRST_MS
from pipeline.bulk.lacking import lacking
from pipeline.bulk.requests import REJECT_CODE, REJECT_DETAIL, TARGET, judged, split
from pipeline.bulk.sink import FORMAT, KAFKA_PREFIX, DelaylineSink
from pipeline.kafka.extent import TopicExtent
from pipeline.kafka.offsets import TopicOffsets
from pipeline.kafka.source import records

MOST_SHOWN: Final = 20
MOST_WAVES: Final = 200
"""Of tasks, one after the other on each core: a driver has to remember them all."""
_TASK_S: Final = 10.0


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
    """What a load's rows are: of targets and of codes the largest groups, `MOST_SHOWN` of each."""

    rows: int
    rejected: int
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
    ) -> None:
        """`op`: what all rows ask for, as the job's words say.

        Raises `WrongInput`: a column that is none of a request, or cannot be read as one.
        """
        self._config, self._name, self._partitions = config, name, settings.partitions
        self._spark: SparkSession = frame.sparkSession
        self._words = job.digest_of(op, columns)
        self._rows = judged(frame, settings, name, columns, now_ms())

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
        with shown(self._spark, "checking"):
            counted = groups.localCheckpoint()
        rows, rejected = counted.agg(
            F.coalesce(F.sum("rows"), F.lit(0)),
            F.coalesce(F.sum(F.when(F.col("code").isNotNull(), F.col("rows"))), F.lit(0)),
        ).collect()[0]
        return Checked(
            rows,
            rejected,
            _largest(counted.where(F.col("code").isNull())),
            _largest(counted.where(F.col("code").isNotNull())),
        )

    def write_rejected(self, place: str) -> None:
        """The rows that the service would reject, with why (`pipeline.bulk.requests.Requests`)."""
        write(split(self._rows).rejected.drop("op"), place)

    def send(self, checked: Checked, rate: float | None, author: Author) -> Loaded:
        """Sends what is not in the buffer yet. Killed, it is begun again, with the same name.

        `rate`: requests a second at most. Raises ConflictError where nobody can tell any more what the job
        has sent.
        """
        there = job.begin(self._config, self._name, self._words, author)
        wanted, sound = split(self._rows).records, checked.rows - checked.rejected
        if there.filled():
            with shown(self._spark, "reading what is there"):
                wanted = lacking(wanted, self._sent(there), self._name).localCheckpoint()
            left = wanted.count()
        else:
            left = sound
        sent = self._write(wanted, left, rate)
        if sent != left:
            raise ConflictError(
                f"{left} requests were to be sent, and {sent} were: the rows have changed since they were"
                " checked; run it again"
            )
        return Loaded(sent, sound - sent)

    def _sent(self, there: TopicExtent) -> DataFrame:
        """All that is committed there, the job's and others'."""
        TopicOffsets(self._config).settle(there)
        return records(self._spark, self._config, there)

    def _write(self, wanted: DataFrame, count: int, rate: float | None) -> int:
        """How many were sent. `count`: how many there should be."""
        self._spark.dataSource.register(DelaylineSink)
        options: dict[str, Any] = {
            f"{KAFKA_PREFIX}{key}": value for key, value in self._config.kafka.items()
        } | {
            "bootstrap.servers": self._config.bootstrap_servers,
            "cluster": self._config.cluster,
            "partitions": self._partitions,
        }
        if rate is not None:
            side_by_side = self._spark.sparkContext.defaultParallelism
            tasks = min(MOST_WAVES, max(1, ceil(count / (rate * _TASK_S)))) * side_by_side
            wanted = wanted.repartition(tasks)
            options["rate"] = rate / side_by_side
        with shown(self._spark, "sending"):
            counted = Observation()
            observed = wanted.observe(counted, F.count(F.lit(1)).alias("sent"))
            observed.write.format(FORMAT).mode("append").options(**options).save()
        return int(counted.get["sent"])


def _largest(groups: DataFrame) -> list[Group]:
    found = groups.orderBy(F.desc("rows"), "target", "code").limit(MOST_SHOWN).collect()
    return [Group(*row) for row in found]
