"""How far Spark is, for whoever waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from rich.progress import Progress, TaskID

from delayline.names import ClusterNames
from node.config import ConnectionConfig
from ops.clients.kafka import KafkaAdmin
from ops.errors import OperatorError
from ops.setup.progress import progress_bar

EVERY_S: Final = 0.5

HowFar = Callable[[], tuple[int, int] | None]
"""How much is done, of how much; None: nothing is known now. For one thread."""


def rows_in(config: ConnectionConfig, count: int) -> HowFar:
    """How many of so many requests are in the buffer, by what it grows: others' requests count, too."""
    admin, buffer = KafkaAdmin(config), ClusterNames(config.cluster).buffer
    begin = sum(admin.ends(buffer).values())

    def how_far() -> tuple[int, int] | None:
        try:
            return min(count, sum(admin.ends(buffer).values()) - begin), count
        except OperatorError:
            return None  # whoever sends will hear why

    return how_far


@contextmanager
def shown(spark: SparkSession, what: str, how_far: HowFar | None = None) -> Iterator[None]:
    """A bar on stderr while the block runs: by `how_far`, or of the parts that Spark works at how many are
    done. Without a terminal it is one line, at the end.
    """
    with progress_bar() as progress, _watched(progress, what, how_far or _parts_of(spark)):
        yield


@contextmanager
def _watched(progress: Progress, what: str, how_far: HowFar) -> Iterator[None]:
    task, ended = progress.add_task(what, total=None), threading.Event()
    thread = threading.Thread(target=_watch, args=(progress, task, how_far, ended), name="bulk", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _watch(progress: Progress, task: TaskID, how_far: HowFar, ended: threading.Event) -> None:
    is_last = False
    while not is_last:
        is_last = ended.wait(EVERY_S)
        found = how_far()
        if found is not None:
            progress.update(task, completed=found[0], total=found[1])


def _parts_of(spark: SparkSession) -> HowFar:
    tracker = spark.sparkContext.statusTracker()

    def how_far() -> tuple[int, int] | None:
        try:
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        except Py4JError:
            return None  # Spark has ended, and whoever waits for it will hear why
        there = [stage for stage in stages if stage is not None]
        if not there:
            return None
        return sum(one.numCompletedTasks for one in there), sum(one.numTasks for one in there)

    return how_far
