"""Schedules a reminder for each row of a frame, in a Spark job of one's own (docs/bulk.md).

spark-submit ... bulk_reminders.py kafka1:9092 zk1:2181 delay reminders PATH
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from node.config import ConnectionConfig
from ops.topics.cluster_topics import read_settings
from pipeline import DelaylineSink, requests


def main(brokers: str, zookeeper: str, cluster: str, target: str, path: str) -> None:
    """`path`: Parquet files with `order_id` and `remind_at`."""
    spark = SparkSession.builder.appName("reminders").getOrCreate()
    frame = spark.read.parquet(path)
    settings = read_settings(
        ConnectionConfig(cluster=cluster, bootstrap_servers=brokers, zookeeper=zookeeper)
    )
    asked = requests(
        frame,
        settings,
        job="reminders-05",
        columns={
            "due": "remind_at",
            "target": f"'{target}'",
            "value": "concat('order ', order_id)",
        },
    )
    if not asked.rejected.isEmpty():
        asked.rejected.show(truncate=False)  # the frame's own columns, reject_code, reject_detail
        sys.exit(5)
    spark.dataSource.register(DelaylineSink)
    options = {"bootstrap.servers": brokers, "cluster": cluster, "partitions": str(settings.partitions)}
    asked.records.write.format("delayline").mode("append").options(**options).save()


if __name__ == "__main__":
    main(*sys.argv[1:])
