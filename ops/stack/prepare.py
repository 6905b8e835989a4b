"""Fetches and makes what the stack and the audit need beside Python packages (``-m ops.stack.prepare``).

Costs 0.3 s when everything is there, and no network.
"""

from __future__ import annotations

import sys
from pathlib import Path

from filelock import FileLock

from ops.setup.cache import SetupError, cache_folder
from ops.setup.jars import kafka_jars, spark_connector_jars
from ops.stack.classes import archive, make_archive
from ops.stack.errors import StackError
from ops.stack.kafka import KafkaServer
from ops.stack.ports import free_port

_WRITE_LIMIT_S = 180.0  # the JVM writes its archive while it ends: 4 s on an idle machine


def prepare() -> None:
    """Make everything that is missing from the cache.

    Raises:
        SetupError: a jar did not arrive.
        StackError: the broker does not start.
    """
    kafka_jars()
    spark_connector_jars()
    if not archive().exists():
        with FileLock(cache_folder() / "classes.lock"):
            make_archive(_run_broker)


def _run_broker(folder: Path, options: list[str]) -> None:
    print("delayline: a first run of the broker (once)", file=sys.stderr, flush=True)  # noqa: T201 - progress
    broker = KafkaServer(folder, free_port(), free_port(), classes=options)
    try:
        broker.start()
    finally:
        broker.stop(_WRITE_LIMIT_S)


if __name__ == "__main__":
    try:
        prepare()
    except (SetupError, StackError) as error:
        sys.exit(f"delayline: {error}")
