"""What a watch keeps from one round to the next, as Parquet: a folder for each round, whole once it is named
by a marker.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from pipeline.files import HALF
from pipeline.hadoop import HadoopFiles

_AT_ONCE: Final = 4


@dataclass(frozen=True, slots=True)
class State:
    """`requests`, `deliveries`, `dead_letters`, `outcomes`: as they were read, each with its `family`.
    `checkpoints`: those that these need, and the last ones. `newest`: the newest timestamp of a partition at
    the offsets of some requests. `lines`: the last message of each order (pipeline/audit/order.py).
    `standing`: what is known of each request that is kept (pipeline/watch/keeping.py). `told`: the violations
    that were told. `ends`: up to where each topic was read, and which topic of that name.
    """

    requests: DataFrame
    deliveries: DataFrame
    dead_letters: DataFrame
    outcomes: DataFrame
    checkpoints: DataFrame
    newest: DataFrame
    lines: DataFrame
    standing: DataFrame
    told: DataFrame
    ends: DataFrame

    def frames(self) -> Iterator[tuple[str, DataFrame]]:
        for field in fields(self):
            yield field.name, getattr(self, field.name)


class StateFolder:
    """A folder that Spark reads and writes: a path, or a URI that its Hadoop knows.

    Raises `WrongInput` for whatever the file system refuses, but for what Spark itself writes and reads.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._files = HadoopFiles(spark, path)

    def require_writable(self) -> None:
        """A round would find out only when it is over."""
        self._files.require_writable()

    def write(self, folder: str, state: State) -> None:
        """What a round keeps, `ends` last. What an earlier try has left there goes."""
        at_most = int(str(self._spark.conf.get("spark.sql.shuffle.partitions")))  # else each round adds files

        def write(one: tuple[str, DataFrame]) -> None:
            name, frame = one
            frame.coalesce(at_most).write.mode("overwrite").parquet(self._files.uri(f"{folder}/{name}"))

        *others, ends = state.frames()
        with ThreadPoolExecutor(_AT_ONCE) as threads:  # what small files take is planning, not the disk
            list(threads.map(write, others))
        write(ends)

    def read(self, folder: str) -> State:
        names = (f"{folder}/{field.name}" for field in fields(State))
        return State(*(self._spark.read.parquet(self._files.uri(name)) for name in names))

    def has(self, folder: str) -> bool:
        return self._files.exists(f"{folder}/ends/_SUCCESS")

    def keep_only(self, folder: str | None) -> None:
        """All others go; None: all."""
        for name in self._files.names():
            if name.startswith(("round-", HALF)) and name != folder:
                self._files.delete(name)
