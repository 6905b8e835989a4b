"""What a bulk load does in a second: rows from Parquet into a buffer, beside Spark's own Kafka sink.

Both take the same rows, in turn, in one Spark. The sink writes into a topic beside the buffer, and checks
nothing: key and value, and then the records with all their headers. The first round is Spark's and the
broker's warm-up, and is shown as such.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from bench.cluster import TARGET_PARTITIONS
from delayline.settings import ClusterSettings
from election.operators import Author
from node.config import ConnectionConfig
from ops.bulk.load import Checked, Load
from ops.bulk.run import Run
from ops.clients.kafka import KafkaAdmin
from ops.clients.topic import WantedTopic
from ops.spark import bulk_session
from ops.stack import LocalStack
from ops.topics import cluster_topics
from pipeline.bulk.requests import requests

CLUSTER: Final = "bulk"
PLAIN: Final = "plain"
HOUR_MS: Final = 3_600_000
WHO: Final = Author("bench", "bulk", 0)
COLUMNS: Final = {
    "id": "concat('order-', order_id)",
    "target": "'reminders'",
    "due": "due",
    "key": "cast(customer_id as string)",
    "value": "concat('Order ', order_id, ' of ', customer_id, ' waits for ', amount, ' euros')",
}


class Round(NamedTuple):
    """In seconds: Spark's sink with key and value, and with the very records that are sent; all rows checked,
    all rows sent.
    """

    plain_s: float
    sink_s: float
    check_s: float
    send_s: float


def measure(rows: int, rounds: int) -> Iterator[Round]:
    """One round after the other, on a stack and in a Spark of its own. Raises `StackError`, `SetupError`."""
    with (
        TemporaryDirectory(prefix="delayline-bench-") as folder,
        LocalStack(Path(folder) / "stack") as stack,
    ):
        config = ConnectionConfig(
            cluster=CLUSTER, bootstrap_servers=stack.bootstrap, zookeeper=stack.zookeeper
        )
        settings = cluster_topics.create(config).settings
        KafkaAdmin(config).create(WantedTopic(PLAIN, TARGET_PARTITIONS, "exactly", ()), 1)
        spark = bulk_session("local[*]")
        try:
            frame = _written(spark, f"{folder}/rows", rows)
            for number in range(rounds + 1):
                yield _round(config, settings, frame, number)
        finally:
            spark.stop()


def _written(spark: SparkSession, folder: str, rows: int) -> DataFrame:
    later_ms = time.time_ns() // 1_000_000 + HOUR_MS
    frame = spark.range(rows).selectExpr(
        "id as order_id",
        "id % 50000 as customer_id",
        "round(rand(1) * 200, 2) as amount",
        f"timestamp_millis({later_ms} + id) as due",
    )
    frame.write.parquet(folder)
    return spark.read.parquet(folder)


def _round(config: ConnectionConfig, settings: ClusterSettings, frame: DataFrame, number: int) -> Round:
    load = Load(config, settings, f"round-{number}", frame, COLUMNS)
    plain = frame.selectExpr(f"{COLUMNS['id']} as key", f"{COLUMNS['value']} as value")
    records = requests(frame, settings, job=f"round-{number}", columns=COLUMNS).records
    checked: list[Checked] = []
    return Round(
        _seconds(lambda: _sink(config, plain)),
        _seconds(lambda: _sink(config, records)),
        _seconds(lambda: checked.append(load.check())),
        _seconds(lambda: _send(load, checked[0])),
    )


def _send(load: Load, checked: Checked) -> None:
    with Run(load.config, load.name, WHO) as run:
        load.send(checked, None, run)


def _seconds(work: Callable[[], object]) -> float:
    begun_s = time.monotonic()
    work()
    return time.monotonic() - begun_s


def _sink(config: ConnectionConfig, records: DataFrame) -> None:
    options = {"kafka.bootstrap.servers": config.bootstrap_servers, "topic": PLAIN}
    records.write.format("kafka").options(**options).save()
