"""A Spark of one's own, here or where it is told: here, enough for a cluster's worth of topics on a laptop.

An audit of a large cluster runs just as well in a session of one's own making: `pipeline.audit.audit` takes
any.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socketserver import BaseServer
from typing import Any

from confluent_kafka import KafkaError
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.accumulators import AccumulatorServer
from pyspark.errors import AnalysisException, PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession

import delayline
import pipeline
from ops.errors import ConfigError, OperatorError, from_kafka
from ops.setup.cache import SetupError
from ops.setup.jars import spark_connector_jars
from ops.setup.java import java_home
from ops.setup.memory import free_bytes
from pipeline.errors import WrongInput
from pipeline.plans import are_few, heap_bytes


def audit_session(master: str = "local[2]", *, records: int | None = None) -> SparkSession:
    """Start Spark in this process, or have it work there, for an audit of so many; None: nobody knows.

    Raises SetupError if there is no Java that it runs on, or the connector's jars cannot be had.
    """
    if records is not None and are_few(records):
        # It is over before the optimising compiler has paid for itself. Without that, Java has room for 48 MB
        # of code: less than Spark's, and once it is full nothing is compiled any more.
        options = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
        own = {"spark.driver.extraJavaOptions": options}
    else:
        # What is kept of many fills the heap: no core is to wait while one cleans up. That this takes long is
        # no reason to end: what has no room goes to disk.
        collector = "-XX:+UseParallelGC -XX:-UseGCOverheadLimit"
        own = {"spark.driver.extraJavaOptions": collector} | _heap(records)
    return _session(master, "delayline audit", _AUDIT | own)


def bulk_session(master: str) -> SparkSession:
    """Start Spark in this process, or have it work there, for a bulk load. Raises SetupError as above."""
    return _session(master, "delayline bulk", _BULK | _BULK_SQL)


@contextmanager
def set_for_bulk(spark: SparkSession) -> Iterator[None]:
    """In this block, a bulk load in a Spark of this machine means what it means in its own."""
    before = {key: str(spark.conf.get(key)) for key in _BULK_SQL}
    for key, value in _BULK_SQL.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)


def watch_session(master: str) -> SparkSession:
    """The same for an audit that does not end."""
    return _session(master, "delayline audit watch", _WATCH)


def tables_session(master: str) -> SparkSession:
    """The same for an export of tables, which is of rounds, too."""
    return _session(master, "delayline tables", _WATCH)


def forecast_session(master: str) -> SparkSession:
    """The same for a forecast."""
    return _session(master, "delayline forecast", _ANALYSIS)


def _heap(records: int | None) -> dict[str, str]:
    """Room for so many, unless the user's environment says how much there is."""
    if "SPARK_DRIVER_MEMORY" in os.environ:
        return {}
    return {"spark.driver.memory": f"{heap_bytes(records, free_bytes()) >> 20}m"}


@contextmanager
def stopped_after(session: SparkSession) -> Iterator[SparkSession]:
    """The session, for this block alone."""
    try:
        yield session
    finally:
        with suppress(Exception):  # after Ctrl-C there may be nothing left of it to stop
            session.stop()


def has_ended(session: SparkSession) -> bool:
    """Whether nothing can be done with it any more: it was stopped, or its JVM is gone."""
    try:
        return bool(session.sparkContext._jsc.sc().isStopped())  # noqa: SLF001  # there is no other way to ask
    except _NO_JVM:
        return True


def _session(master: str, name: str, own: dict[str, str]) -> SparkSession:
    """With the Kafka connector; its log goes to a file in the temporary folder."""
    found = {
        "spark.jars": ",".join(map(str, spark_connector_jars())),
        "spark.executorEnv.PYTHONPATH": _paths(),
    }
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName(name)
    here = _ON_LOOPBACK if master.startswith("local") else {}
    AccumulatorServer.handle_error = _say_unless_gone  # type: ignore[method-assign, assignment]
    for key, value in (_QUIET | here | found | own).items():
        builder = builder.config(key, value)
    with _stderr_to_file() as log:
        try:
            return builder.getOrCreate()
        except PySparkRuntimeError as error:
            java = os.environ["JAVA_HOME"]
            raise SetupError(f"Spark does not start on the Java at {java}: {log} says why") from error
        except Py4JJavaError as error:
            raise SetupError(
                f"Spark does not start at {master}: {_first_line(error)}; {log} says more"
            ) from error


def _say_unless_gone(server: BaseServer, request: Any, address: Any) -> None:
    """That its JVM is gone calls tell; beside them this thread would print a stack trace, at any time."""
    if not isinstance(sys.exc_info()[1], _NO_JVM):
        _SAY(server, request, address)


@contextmanager
def spark_errors(bootstrap_servers: str) -> Iterator[None]:
    """What Spark raises in this block, as an OperatorError of one line."""
    try:
        yield
    except (PySparkException, *_NO_JVM) as error:
        raise _meant(error, bootstrap_servers) from error


def _meant(error: Exception, bootstrap_servers: str) -> OperatorError:
    text = str(error)
    of_kafka = _OF_KAFKA.search(text)
    if of_kafka is not None:
        return from_kafka(KafkaError(int(of_kafka[1]), of_kafka[2]), bootstrap_servers)
    ours = _OURS.search(text)
    if ours is not None:
        return ConfigError(ours[2]) if ours[1] == WrongInput.__name__ else OperatorError(ours[2])
    of_python = _OF_PYTHON.search(text)
    if of_python is not None:
        return OperatorError(f"Spark: {of_python[1]}")
    if _LOST in text:
        return OperatorError("Spark has lost an executor, and what that had computed")
    kind = ConfigError if isinstance(error, AnalysisException) else OperatorError
    return kind(f"Spark: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    said = str(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)
    return said.strip().partition("\n")[0] or type(error).__name__


_NO_JVM = (Py4JError, ConnectionError, EOFError)
"""What a call raises whose JVM is gone: the first, where it was under way; the last, where it gave rows."""
_SAY = AccumulatorServer.handle_error
_OF_KAFKA = re.compile(
    r"pipeline\.errors\.KafkaFailed: .*KafkaError\{code=\w+,val=(-?\d+),str=\"([^\n]*)\"\}"
)
_OURS = re.compile(r"pipeline\.errors\.(WrongInput|SendingEnded): ([^\n]*)")
_OF_PYTHON = re.compile(r"Traceback \(most recent call last\):\n(?: [^\n]*\n)+(\w[^\n]*)")
"""What a task of ours has raised: Spark has its text alone, in the middle of a stack trace."""
_LOST = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"
"""What was to be computed once (`pipeline.audit.judge.kept`) was kept by an executor that is gone."""

_QUIET = {
    "spark.log.level": "ERROR",
    # Where in our code each column was made is told to the JVM else: a quarter of what a small audit takes.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_ON_LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
_AUDIT = {"spark.buffer.pageSize": "1m"}  # 16 MB for each sort of each task is mostly zeroing memory
_ANALYSIS = _AUDIT | {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC"}
_WATCH = _ANALYSIS | {
    "spark.cleaner.periodicGC.interval": "5min",  # what a round has kept in memory goes with it
}
_BULK = {
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",  # of two cores, one more is not to clean up
    "spark.dynamicAllocation.enabled": "false",  # each core has its part of the rate
    "spark.speculation": "false",  # of two that run the same task, none may send
    # A task that is run anew, because a worker was lost, may have sent before. It can tell that it is run
    # anew, but not that its whole stage is: so no stage is.
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.stage.ignoreDecommissionFetchFailure": "false",  # that would be no attempt, and the stage run anew
}
_BULK_SQL = {
    "spark.sql.ansi.enabled": "false",  # what cannot be cast is null, and rejected by itself
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",  # of requests of a megabyte, too
}


def _paths() -> str:
    """Where Spark's Python workers find the packages of this project."""
    found = {str(Path(path).parent) for package in (delayline, pipeline) for path in package.__path__}
    return os.pathsep.join(sorted(found))


@contextmanager
def _stderr_to_file() -> Iterator[str]:
    """Give the JVM, which inherits it, a file for its stderr: what it says there at start helps nobody."""
    sys.stderr.flush()
    ours = os.dup(2)
    with tempfile.NamedTemporaryFile(prefix="delayline-spark-", suffix=".log", delete=False) as log:
        os.dup2(log.fileno(), 2)
        try:
            yield log.name
        finally:
            os.dup2(ours, 2)
            os.close(ours)
