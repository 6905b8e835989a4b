"""A bulk load into a real buffer: what is there is not sent again, whatever has become of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from election.operators import Author
from ops.bulk import files
from ops.bulk.load import Load, Loaded
from ops.bulk.plan import Plan
from ops.bulk.run import Run
from ops.errors import ConfigError, ConflictError, OperatorError, UnavailableError
from ops.pending.jsonl import in_lines
from ops.pending.parquet import in_parquet
from ops.spark import spark_errors
from pipeline.bulk.sink import DelaylineSink
from pipeline.bulk.templates import sql_of
from pipeline.errors import WrongInput
from tests.support.cluster import Cluster
from tests.support.requests import now_ms
from tests.support.retention import delete_records
from tests.support.tail import read_all
from tests.support.waiting import PATIENCE_S
from tests.unit.test_pending_line import line as line_of

WHO = Author("somebody", "a test", 0)
COUNT = 50


def rows_of(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count).selectExpr("id as number", "concat('value ', id) as value")


def load_of(cluster: Cluster, frame: DataFrame, job: str, **columns: str) -> Load:
    asked = {"target": f"'{cluster.target()}'", "delay": "'0s'"} | columns
    return Load(cluster.connection, cluster.settings, job, frame, asked)


def sent(load: Load, rate: float | None = None) -> tuple[int, int]:
    with Run(load.config, load.name, WHO) as run:
        done: Loaded = load.send(load.check(), rate, run)
    return done.sent, done.were_there


def test_what_a_job_has_sent_is_not_sent_again_though_it_is_delivered(
    cluster: Cluster, spark: SparkSession
) -> None:
    cluster.start_here("a")
    assert sent(load_of(cluster, rows_of(spark, COUNT), "first")) == (COUNT, 0)
    cluster.wait_delivered(COUNT)
    assert sent(load_of(cluster, rows_of(spark, COUNT + 5), "first")) == (5, COUNT)
    delivered = cluster.wait_delivered(COUNT + 5)
    assert Counter(got.value for got in delivered) == {b"value %d" % n: 1 for n in range(COUNT + 5)}
    assert {str(got.text("delay-id")).partition("/")[0] for got in delivered} == {"first"}


def test_rows_that_are_alike_are_a_message_each(cluster: Cluster, spark: SparkSession) -> None:
    cluster.start_here("a")
    frame = spark.range(3).selectExpr("'same' as value")
    assert sent(load_of(cluster, frame, "alike")) == (3, 0)
    assert sent(load_of(cluster, frame, "alike")) == (0, 3)
    assert [got.value for got in cluster.wait_delivered(3)] == [b"same"] * 3


def test_a_column_that_is_read_otherwise_each_time_makes_no_other_message(
    cluster: Cluster, spark: SparkSession
) -> None:
    asked = {"delay": "null", "due": "now() + interval 1 hour"}
    assert sent(load_of(cluster, rows_of(spark, 3), "timed", **asked)) == (3, 0)
    assert sent(load_of(cluster, rows_of(spark, 3), "timed", **asked)) == (0, 3)


def test_what_a_job_asks_of_its_own_messages_is_sent(cluster: Cluster, spark: SparkSession) -> None:
    assert sent(load_of(cluster, rows_of(spark, 2), "own", delay="'1h'")) == (2, 0)
    ids = [got.key.decode() for got in read_all(cluster.bootstrap, cluster.names.buffer) if got.key]
    rows = spark.createDataFrame([(one, "cancel") for one in ids], "id string, op string")
    with pytest.raises(ConflictError, match="job own began with other columns"):
        sent(Load(cluster.connection, cluster.settings, "own", rows, {}))
    assert sent(Load(cluster.connection, cluster.settings, "ends", rows, {})) == (2, 0)


def test_an_export_of_what_waits_is_sent_by_an_import_and_that_is_said(
    spark: SparkSession, tmp_path: Path
) -> None:
    for file, place in (
        (in_parquet(tmp_path / "out.parquet"), f"parquet:{tmp_path}/out.parquet"),
        (in_lines(tmp_path / "out.jsonl"), f"json:{tmp_path}/out.jsonl"),
    ):
        file.write("e", [line_of()])
        with pytest.raises(ConfigError, match=r"'delayline pending import' sends it, each message once"):
            files.require_no_export(files.read(spark, place), place)


def test_another_job_sends_the_same_rows_again(cluster: Cluster, spark: SparkSession) -> None:
    assert sent(load_of(cluster, rows_of(spark, 2), "one")) == (2, 0)
    assert sent(load_of(cluster, rows_of(spark, 2), "two")) == (2, 0)


def test_cancels_and_reschedules_are_loaded_and_each_is_sent_once(
    cluster: Cluster, spark: SparkSession
) -> None:
    cluster.start_here("a")
    ids = {"id": "concat('n-', number)"}
    sent(load_of(cluster, rows_of(spark, 4), "add", **ids, delay="'1h'"))
    numbers = spark.range(4).withColumnRenamed("id", "number")
    moved = Load(
        cluster.connection,
        cluster.settings,
        "move",
        numbers.where("number >= 2"),
        ids | {"op": "'reschedule'", "due": f"{now_ms()}"},
    )
    assert sent(moved) == (2, 0)
    assert sorted(got.value or b"" for got in cluster.wait_delivered(2)) == [b"value 2", b"value 3"]
    cancels = Load(cluster.connection, cluster.settings, "end", numbers, ids | {"op": "'cancel'"})
    assert sent(cancels) == (4, 0)
    assert sent(cancels) == (0, 4)
    cluster.tail.wait(
        lambda: (
            Counter(one["outcome"] for one in cluster.outcomes) >= Counter({"cancelled": 2, "too-late": 2})
        ),
        "cancels are answered",
        PATIENCE_S,
    )


def test_where_retention_has_taken_what_a_job_may_have_sent_it_refuses(
    cluster: Cluster, spark: SparkSession
) -> None:
    load = load_of(cluster, rows_of(spark, 8), "old", delay="'1h'")
    sent(load)
    delete_records(cluster, {0: 1, 1: 1})
    with pytest.raises(ConflictError, match=r"job old began at .*/0/0, and retention has taken"):
        sent(load)


def test_what_would_be_rejected_is_counted_by_code(cluster: Cluster, spark: SparkSession) -> None:
    checked = load_of(
        cluster,
        rows_of(spark, 10),
        "wrong",
        delay="if(number < 3, 'soon', '5s')",
        target="if(number = 9, 'a/b', 'fine')",
    ).check()
    assert (checked.rows, checked.rejected) == (10, 4)
    assert [(one.target, one.rows) for one in checked.targets] == [("fine", 6)]
    assert [(one.code, one.rows) for one in checked.rejects] == [("bad-after", 3), ("bad-target-topic", 1)]


def test_a_template_is_a_text_with_what_sql_says_in_it(spark: SparkSession) -> None:
    template = '$$5 for ${upper(name)}\'s \\n "order" ${n + 1}'
    row = spark.sql("select 'eve' as name, 41 as n").selectExpr(f"{sql_of(template)} as text").collect()[0]
    assert row["text"] == '$5 for EVE\'s \\n "order" 42'


def test_a_load_that_is_paced_sends_all(cluster: Cluster, spark: SparkSession) -> None:
    cluster.start_here("a")
    assert sent(load_of(cluster, rows_of(spark, COUNT), "paced"), rate=200.0) == (COUNT, 0)
    cluster.wait_delivered(COUNT)


def test_brokers_that_do_not_answer_a_task_are_said_in_a_line(cluster: Cluster, spark: SparkSession) -> None:
    spark.dataSource.register(DelaylineSink)
    records = spark.sql(
        "select X'61' as key, X'62' as value, array(named_struct('key', 'a', 'value', X'')) as headers"
    )
    options = {"bootstrap.servers": "127.0.0.1:1", "kafka.message.timeout.ms": "500", "partitions": "2"}
    with (
        pytest.raises(UnavailableError, match=r"Kafka at 127\.0\.0\.1:1 does not answer"),
        spark_errors("127.0.0.1:1"),
    ):
        records.write.format("delayline").mode("append").options(**options).save()


def test_with_partitions_that_somebody_has_added_each_row_is_where_nodes_look_for_it(
    cluster: Cluster, spark: SparkSession
) -> None:
    cluster.widen_buffer(5)
    cluster.start_here("a")
    assert sent(load_of(cluster, rows_of(spark, COUNT), "wide")) == (COUNT, 0)
    cluster.wait_delivered(COUNT)
    assert cluster.dead_letters == []


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("csv", 'name,said\n"a","two\nlines, ""quoted"""\nb,\n'),
        ("json", '{"name": "a", "said": "two\\nlines, \\"quoted\\""}\n{"name": "b"}\n'),
    ],
)
def test_a_file_is_read_as_its_standard_has_it(
    spark: SparkSession, tmp_path: Path, kind: str, text: str
) -> None:
    (tmp_path / "rows").write_text(text)
    rows = files.read(spark, f"{kind}:{tmp_path}/rows").collect()
    assert [(row["name"], row["said"]) for row in rows] == [("a", 'two\nlines, "quoted"'), ("b", None)]


def test_numbers_of_json_are_texts_so_that_a_row_is_the_same_whatever_stands_beside_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "rows").write_text('{"number": 1}\n{"number": 1.5}\n')
    rows = files.read(spark, f"json:{tmp_path}/rows").collect()
    assert [row["number"] for row in rows] == ["1", "1.5"]


@pytest.mark.parametrize(
    ("kind", "text"), [("csv", 'a,b\n1,2,3\n"x'), ("json", '{"a": 1}\n{"a": \n')], ids=["csv", "json"]
)
def test_a_line_that_is_no_row_ends_the_load(
    cluster: Cluster, spark: SparkSession, tmp_path: Path, kind: str, text: str
) -> None:
    (tmp_path / "rows").write_text(text)
    with pytest.raises(OperatorError, match="Spark: "), spark_errors(cluster.bootstrap):
        load_of(cluster, files.read(spark, f"{kind}:{tmp_path}/rows"), "broken").check()


def test_rows_that_were_rejected_are_written_with_why_and_read_again_once_they_are_mended(
    cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    place, frame = f"parquet:{tmp_path}/wrong", files.with_op(rows_of(spark, 3), "schedule")
    load = load_of(cluster, frame, "mended", delay="if(number = 1, 'soon', '0s')")
    files.require_free(spark, place)
    load.write_rejected(place)
    with pytest.raises(ConflictError, match="is there already: name another place"):
        files.require_free(spark, place)
    (row,) = files.read(spark, place).collect()
    assert (row["number"], row["reject_code"]) == (1, "bad-after")
    again = files.with_op(files.read(spark, place), "schedule")
    assert sent(load_of(cluster, again, "mended-again")) == (1, 0)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"source": "parquet"}, "--from 'parquet': write one of"),
        ({"source": "xml:a"}, "--from 'xml:a': write one of"),
        ({"rejected": "table:a"}, "--rejected 'table:a': write one of csv:, json:, orc:, parquet: and where"),
        ({"job": "a/b"}, "job 'a/b': use 1 to 100"),
        ({"columns": ["op='cancel'"]}, "what all rows ask for is the command's own name"),
        ({"columns": ["due"]}, "--column 'due': write NAME=..."),
        ({"columns": ["due=a"], "templates": ["due=b"]}, "--template 'due=b': due was given before"),
    ],
)
def test_what_is_typed_wrong_is_said_before_anything_begins(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Plan(**{"op": "schedule", "source": "csv:a", "job": "a"} | wrong)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"duedate": "number"}, "column 'duedate' is none of a request: is due meant"),
        ({"due": "array(number)"}, "column 'due' is of the type array<bigint>"),
    ],
)
def test_a_column_that_cannot_be_meant_is_said(
    cluster: Cluster, spark: SparkSession, columns: dict[str, str], said: str
) -> None:
    with pytest.raises(WrongInput, match=said):
        Load(cluster.connection, cluster.settings, "any", rows_of(spark, 1), columns)
