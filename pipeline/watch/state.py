"""What a watch keeps from one round to the next, as Parquet: a folder for each round, whole once it is named
by a marker.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import Final

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession

_AT_ONCE: Final = 4


@dataclass(frozen=True, slots=True)
class State:
    """`requests`, `deliveries`, `dead_letters`, `outcomes`: as they were read, each with its `family`.
    `checkpoints`: those that these need, and the last ones. `newest`: the newest timestamp of a partition at
    the offsets of some requests. `lines`: the last message of each order (pipeline/audit/order.py).
    `standing`: what is known of each request that is kept (pipeline/watch/keeping.py). `told`: the violations
    that were told. `ends`: up to where each topic was read.
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
    """A folder that Spark reads and writes: a path, or a URI that its Hadoop knows."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._path = path.rstrip("/")

    def write(self, folder: str, state: State) -> None:
        """What a round keeps, `ends` last. What an earlier try has left there goes."""
        at_most = int(str(self._spark.conf.get("spark.sql.shuffle.partitions")))  # else each round adds files

        def write(one: tuple[str, DataFrame]) -> None:
            name, frame = one
            frame.coalesce(at_most).write.mode("overwrite").parquet(f"{self._path}/{folder}/{name}")

        *others, ends = state.frames()
        with ThreadPoolExecutor(_AT_ONCE) as threads:  # what small files take is planning, not the disk
            list(threads.map(write, others))
        write(ends)

    def read(self, folder: str) -> State:
        at = f"{self._path}/{folder}"
        return State(*(self._spark.read.parquet(f"{at}/{field.name}") for field in fields(State)))

    def has(self, folder: str) -> bool:
        return bool(self._hadoop().exists(self._at(f"{self._path}/{folder}/ends/_SUCCESS")))

    def keep_only(self, folder: str) -> None:
        """All others go."""
        hadoop, root = self._hadoop(), self._at(self._path)
        for status in hadoop.listStatus(root):
            path = status.getPath()
            if path.getName().startswith("round-") and path.getName() != folder:
                hadoop.delete(path, True)

    def _at(self, path: str) -> JavaObject:
        return self._jvm().org.apache.hadoop.fs.Path(path)

    def _hadoop(self) -> JavaObject:
        return self._at(self._path).getFileSystem(self._spark._jsc.hadoopConfiguration())  # noqa: SLF001

    def _jvm(self) -> JavaObject:
        return self._spark._jvm  # noqa: SLF001 - PySpark has no other way to a file system that is Spark's
