"""How far Spark is, for whoever waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from rich.progress import Progress, TaskID

from ops.setup.progress import progress_bar

EVERY_S: Final = 0.5


@contextmanager
def shown(spark: SparkSession, what: str) -> Iterator[None]:
    """A bar on stderr while the block runs: of the parts that Spark works at, how many are done. Without a
    terminal it is one line, at the end.
    """
    with progress_bar() as progress, _watched(spark, progress, what):
        yield


@contextmanager
def _watched(spark: SparkSession, progress: Progress, what: str) -> Iterator[None]:
    task, ended = progress.add_task(what, total=None), threading.Event()
    thread = threading.Thread(target=_watch, args=(spark, progress, task, ended), name="bulk", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _watch(spark: SparkSession, progress: Progress, task: TaskID, ended: threading.Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    while not ended.wait(EVERY_S):
        try:
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        except Py4JError:
            return  # Spark has ended, and whoever waits for it will hear why
        there = [stage for stage in stages if stage is not None]
        if there:
            done, total = sum(one.numCompletedTasks for one in there), sum(one.numTasks for one in there)
            progress.update(task, completed=done, total=total)
