"""A Spark of one's own, on this machine: enough for a cluster's worth of topics on a laptop.

An audit of a large cluster runs just as well in a session of one's own making: `pipeline.audit.audit` takes
any.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

import delayline
import pipeline
from ops.setup.cache import SetupError
from ops.setup.jars import spark_connector_jars
from ops.setup.java import java_home


def spark_session(cores: int = 2, *, compiled: bool = True) -> SparkSession:
    """Start Spark in this process, with the Kafka connector; its log goes to a file in the temporary folder.

    Not `compiled`: for a few thousand records, which are interpreted sooner than code for them is made.

    Raises SetupError if there is no Java that it runs on, or the connector's jars cannot be had.
    """
    own = {
        "spark.jars": ",".join(map(str, spark_connector_jars())),
        "spark.executorEnv.PYTHONPATH": _paths(),
        "spark.sql.shuffle.partitions": str(2 * cores if compiled else 1),
    }
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{cores}]").appName("delayline audit")
    for key, value in (_QUIET_AND_SMALL | own | ({} if compiled else _INTERPRETED)).items():
        builder = builder.config(key, value)
    with _stderr_to_file() as log:
        try:
            return builder.getOrCreate()
        except PySparkRuntimeError as error:
            java = os.environ["JAVA_HOME"]
            raise SetupError(f"Spark does not start on the Java at {java}: {log} says why") from error


_QUIET_AND_SMALL = {
    "spark.buffer.pageSize": "1m",  # the default, 16 MB for each sort of each task, is mostly zeroing memory
    "spark.driver.bindAddress": "127.0.0.1",
    # One audit is over before the optimising compiler has paid for itself.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    # Where in our code each column was made is told to the JVM else: a quarter of what a small audit takes.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.adaptive.enabled": "false",  # planning each query anew after each of its stages takes longest
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


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
