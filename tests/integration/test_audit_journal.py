"""The audit topic: what a watch tells is there once, whatever its size, and whatever became of a try."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ops.topics.audited import audit_config
from pipeline.watch.journal import MOST_TOLD, ROUND, Journal, TakenOver
from pipeline.watch.marker import Marker
from tests.support.cluster import Cluster
from tests.support.tail import Got, Tail


def marker(number: int) -> Marker:
    return Marker(
        number=number,
        folder=f"round-{number}",
        taken_ms=1,
        proven_up_to_ms=1,
        begins={},
        serials={},
        newest_ms={},
        edges_ms={},
        last={},
        closed=(),
        standing=(),
        found={},
        open={},
    )


@pytest.fixture
def begun(cluster: Cluster) -> Journal:
    found = Journal(audit_config(cluster.connection))
    found.begin()
    return found


@pytest.fixture
def tail(cluster: Cluster, begun: Journal) -> Iterator[Tail]:
    found = Tail(cluster.bootstrap, [cluster.names.audit])
    yield found
    found.close()


def wrong(spark: SparkSession, *sources: str) -> DataFrame:
    rows = [("unexplained", source, f"{source} is of nothing") for source in sources]
    return spark.createDataFrame(rows, "kind string, source string, detail string")


def told(tail: Tail) -> list[Got]:
    tail.catch_up()
    [records] = tail.records.values()
    return [got for got in records if got.key != ROUND]


def test_a_violation_of_any_size_is_told(begun: Journal, spark: SparkSession, tail: Tail) -> None:
    source = "buffer/" + "\ufffd" * 500_000
    begun.commit(wrong(spark, source, "buffer/0/1"), wrong(spark), marker(0))
    one, other = told(tail)
    assert (other.key, json.loads(other.value or b"")["source"]) == (b"unexplained/buffer/0/1", "buffer/0/1")
    shown = json.loads(one.value or b"")["source"]
    assert shown.startswith(source[:MOST_TOLD] + "... (500007 characters, sha256 ")
    assert one.key == f"unexplained/{shown}".encode()


def test_of_a_try_that_has_failed_nothing_is_told_and_the_next_one_tells_all(
    cluster: Cluster, begun: Journal, spark: SparkSession, tail: Tail
) -> None:
    found = wrong(spark, "buffer/0/1", "buffer/0/2")
    fails = found.withColumn("detail", F.raise_error(F.lit("a disk is full")).cast("string"))
    with pytest.raises(Py4JJavaError, match="a disk is full"):
        begun.commit(found, fails, marker(0))
    again = Journal(audit_config(cluster.connection))
    again.begin()
    assert again.last() is None
    again.commit(found, wrong(spark), marker(0))
    assert again.last() == marker(0)
    assert [got.key for got in told(tail)] == [b"unexplained/buffer/0/1", b"unexplained/buffer/0/2"]


def test_the_later_one_of_two_watches_ends_the_earlier(
    cluster: Cluster, begun: Journal, spark: SparkSession
) -> None:
    later = Journal(audit_config(cluster.connection))
    begun.commit(wrong(spark), wrong(spark), marker(0))  # it has only been made
    later.begin()
    with pytest.raises(TakenOver, match="another watch of cluster "):
        begun.commit(wrong(spark), wrong(spark), marker(1))
    assert later.last() == marker(0)
