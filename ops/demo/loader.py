"""The rows that the demo loads with Spark, as `delayline bulk schedule --from parquet:` does."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from delayline.settings import ClusterSettings
from delayline.times import now_ms
from election.operators import Author
from node.config import ConnectionConfig
from ops.bulk.files import read
from ops.bulk.load import Load
from ops.bulk.run import Run
from ops.demo.errors import DemoError
from ops.spark import set_for_bulk

JOB: Final = "demo"
_SCHEMA: Final = pa.schema(
    [
        ("target", pa.string()),
        ("partition", pa.int32()),
        ("due", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


def load_rows(
    spark: SparkSession,
    config: ConnectionConfig,
    settings: ClusterSettings,
    rows: list[dict[str, Any]],
    folder: Path,
) -> int:
    """Writes the rows to a file, and loads that; how many messages that has made. DemoError: not all."""
    file = folder / "loaded.parquet"
    pq.write_table(pa.Table.from_pylist(rows, _SCHEMA), file)
    author = Author("demo", "a bulk load", now_ms())
    with set_for_bulk(spark), Run(config, JOB, author) as run:
        load = Load(config, settings, JOB, read(spark, f"parquet:{file}"), {}, op="schedule")
        loaded = load.send(load.check(), None, run)
    if loaded.sent != len(rows):
        raise DemoError(f"of {len(rows)} rows {loaded.sent} were loaded")
    return loaded.sent
