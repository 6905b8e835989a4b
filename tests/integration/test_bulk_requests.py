"""A frame of requests against the wire format's own parser: the same rows are rejected, by the same code."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, Final

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Row as SparkRow
from pyspark.sql import functions as F

from delayline.names import ClusterNames
from delayline.partitioner import partition_for
from delayline.record import Reject, Request, Reschedule, Schedule
from delayline.settings import ClusterSettings
from delayline.sizes import parse_weighed
from node.kafka.fetch.records import LogRecord
from pipeline.bulk.requests import REJECT_CODE, REJECT_DETAIL, judged, requests
from pipeline.errors import WrongInput

NOW_MS: Final = 1_767_225_600_000
SETTINGS: Final = ClusterSettings(
    partitions=4,
    targets=("rem*", "a[!b-x].?", "t[]x]"),
    retention_ms=1_000_000_000,
    max_request_bytes=2_000,
)
NAMES: Final = ClusterNames(SETTINGS.cluster)
ROWS: Final = 1_500

# Of each column, a sound value first.
VALUES: Final[dict[str, list[Any]]] = {
    "op": [None, "schedule", "cancel", "reschedule", "Cancel", ""],
    "target": [
        "reminders",
        "rem",
        "ab.c",
        "az.c",
        "a-.c",
        "tx",
        "t]",
        "tb",
        "__x",
        "delay.buffer",
        "delay.settings",
        "delay.audit",
        "rem/x",
        "",
        ".",
        "rem" + "x" * 250,
        None,
        "rem\n",
    ],
    "partition": [None, "0", "5", "2147483647", "2147483648", "-1", "x", "00", "9" * 20],
    "due": [
        None,
        str(NOW_MS + 5),
        str(NOW_MS - 10**7),
        "2026-01-01T00:00:00Z",
        "2026-02-30T00:00:00Z",
        "2025-12-31T23:59:59.9991+01:00",
        "2026-01-01t00:00:00.5z",
        "2026-01-01T00:00:60Z",
        "2026-01-01T24:00:00Z",
        str(2**63 - 1),
        str(2**63),
        "-5",
        "x",
        "",
        "1969-12-31T23:59:59Z",
        "0000-01-01T00:00:00Z",
        "9999-12-31T23:59:59.999999Z",
        "2026-01-01T00:00:00+23:59",
        "2026-01-01 00:00:00Z",
        "2026-01-01T00:00:00",
        "1\n",
    ],
    "delay": [
        None,
        "90s",
        "1h30m",
        "PT30M",
        "P1DT12H",
        "P2W",
        "1.5h",
        "PT0.5S",
        "0.0001ms",
        "1.5h3m",
        "5",
        "",
        "P",
        "PT",
        "P1.5DT2H",
        f"{2**63 - 1}ms",
        f"{2**63}ms",
        "0" * 30 + "1s",
        "1s1h",
        "100000d",
        "1m1ms",
        "-5s",
        "PT1,5H",
        "1,5h",
        "0s",
        "9" * 18 + "d",
        "0." + "9" * 58 + "s",
        "1s\n",
    ],
    "level": [None, "1", "18", "999", "0", "-1", str(1 - 2**63), str(-(2**63)), str(2**63), "1.5", "x", ""],
    "id": [None, "a", "order-1", "", "x" * 1024, "x" * 1025, "é" * 600],
    "if_exists": [None, "keep", "replace", "Keep", ""],
    "source": [
        None,
        "delay.buffer/1/5",
        "delay.buffer/3/5",
        "other/1/5",
        "delay.buffer/1",
        "delay.buffer/1/" + "9" * 20,
        "delay.buffer/9999999999/1",
        "",
    ],
    "expire_at": [None, None, str(NOW_MS + 99), "x", "2026-01-01T00:00:00Z"],
    "interval": [None, "1h", "999ms", "1s", "0.9999s", "x", "10d", "999.9999ms"],
    "interval_factor": [None, "2", "1", "1.5", "1.0005", "1000", "1001", "0.5", "x", "1000.001"],
    "cron": [None, None, "0 9 * * *", "x", "0 0 30 2 *", "* * * * *"],
    "time_zone": [None, None, "Europe/Berlin", "x y", "A" * 129],
    "times": [None, "1", "0", "1000000", "1000001", str(2**63), "x"],
    "until": [None, str(NOW_MS + 10**9), str(NOW_MS - 1), "x"],
    "missed": [None, "all", "latest", "skip", "none"],
    "key": [None, b"", b"k"],
    "value": [None, b"v", b"x" * 1_900],
    "headers": [None, [], [("a", b"1"), ("a", None)], [("a\0", b"1")], [("h", b"x" * 500)]],
}
RECURRING: Final = frozenset(("interval", "interval_factor", "cron", "time_zone", "times", "until", "missed"))
TIMES: Final = ("due", "delay", "level")
OF: Final = {
    "cancel": frozenset(("op", "id", "source")),
    "reschedule": frozenset(("op", "id", "source", "expire_at", *TIMES)),
}
BINARY: Final = {"key": "binary", "value": "binary", "headers": "array<struct<key: string, value: binary>>"}
SCHEMA: Final = ", ".join(f"{name} {BINARY.get(name, 'string')}" for name in VALUES)


def random_row(dice: random.Random) -> dict[str, Any]:
    """Most of a row is sound, or none would be."""
    recurs = dice.random() < 0.4
    row = {name: values[0] for name, values in VALUES.items()}
    for name, values in VALUES.items():
        if (recurs or name not in RECURRING) and dice.random() < 0.15:
            row[name] = dice.choice(values)
    if dice.random() < 0.7:
        timed = dice.choice(("due", "delay"))
        row[timed] = dice.choice(VALUES[timed][1:4])
    if dice.random() < 0.5:
        row["id"] = dice.choice(("a", "order-1"))
    allowed = OF.get(row["op"] or "")
    if allowed is not None and dice.random() < 0.8:
        row |= {name: None for name in VALUES if name not in allowed}
    return row


def parsed(record: SparkRow) -> Request:
    """By the service, behind all that a source could name."""
    key = None if record["key"] is None else bytes(record["key"])
    partition = record.asDict().get("partition")
    if partition is None:
        partition = 0 if key is None else partition_for(key, SETTINGS.partitions)
    value = None if record["value"] is None else bytes(record["value"])
    headers = [(name, None if data is None else bytes(data)) for name, data in record["headers"]]
    return parse_weighed(LogRecord(partition, 10**6, NOW_MS, key, value, headers), SETTINGS, NAMES)


def frame_of(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    return spark.createDataFrame([tuple(row[name] for name in VALUES) for row in rows], SCHEMA)


def asked(frame: DataFrame, **how: Any) -> list[Request]:
    """What the service makes of the records; none of the rows is rejected."""
    found = requests(frame, SETTINGS, job="job", now_ms=NOW_MS, **how)
    rejected = found.rejected.select(REJECT_CODE, REJECT_DETAIL).collect()
    assert rejected == []
    return [parsed(record) for record in found.records.collect()]


@pytest.mark.parametrize("seed", [1, 2])
def test_just_the_rows_are_rejected_that_the_service_would_reject_and_by_the_same_code(
    spark: SparkSession, seed: int
) -> None:
    dice = random.Random(seed)
    frame = frame_of(spark, [random_row(dice) for _ in range(ROWS)])
    codes: Counter[str | None] = Counter()
    for row in judged(frame, SETTINGS, "job", {}, NOW_MS).collect():
        request, code = parsed(row), row[REJECT_CODE]
        codes[code] += 1
        if not (row[REJECT_DETAIL] or "").startswith("no due, delay or level"):
            assert code == (str(request.code) if isinstance(request, Reject) else None), (row, request)
    assert codes[None] > ROWS // 10
    assert len(codes) > 20


def test_a_row_without_a_time_is_not_delivered_at_once(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("reminders", None), ("reminders", NOW_MS)], "target string, due long")
    found = requests(frame, SETTINGS, job="job", now_ms=NOW_MS)
    (rejected,) = found.rejected.collect()
    assert (rejected["due"], rejected[REJECT_CODE]) == (None, "bad-deliver-at")
    assert found.records.count() == 1


@pytest.mark.parametrize(
    ("due", "due_ms"),
    [
        ("timestamp_micros(1767225600000001)", NOW_MS + 1),
        ("1767225600000L", NOW_MS),
        ("'2026-01-01T00:00:00.0001Z'", NOW_MS + 1),
    ],
    ids=["a timestamp", "a number", "a text"],
)
def test_a_time_is_what_it_says_and_never_early(spark: SparkSession, due: str, due_ms: int) -> None:
    (request,) = asked(spark.range(1), columns={"target": "'reminders'", "due": due})
    assert isinstance(request, Schedule)
    assert request.scheduled_for_ms == due_ms


@pytest.mark.parametrize(
    "delay",
    ["INTERVAL '1 02:03:04.0005' DAY TO SECOND", "93784001L", "'26h3m4.0005s'"],
    ids=["an interval", "a number", "a text"],
)
def test_a_delay_is_what_it_says_and_never_shorter(spark: SparkSession, delay: str) -> None:
    (request,) = asked(spark.range(1), columns={"target": "'reminders'", "delay": delay})
    assert isinstance(request, Schedule)
    assert request.scheduled_for_ms == NOW_MS + 93_784_001


def test_what_has_no_id_gets_one_that_is_the_same_again_and_equal_rows_get_different_ones(
    spark: SparkSession,
) -> None:
    rows = [("reminders", "a"), ("reminders", "b"), ("reminders", "a")]
    frame = spark.createDataFrame(rows, "target string, value string").withColumn("delay", F.lit("1h"))
    found = [
        sorted((one.id, one.keep) for one in asked(frame.repartition(n)) if isinstance(one, Schedule))
        for n in (1, 3)
    ]
    assert found[0] == found[1]
    ids = [id_ for id_, _ in found[0]]
    assert len(set(ids)) == 3
    assert all(id_ is not None and id_.startswith("job/") and keep for id_, keep in found[0])


def test_key_value_and_headers_arrive_as_they_are(spark: SparkSession) -> None:
    columns = {
        "target": "'reminders'",
        "delay": "'1h'",
        "id": "'order-1'",
        "key": "'k'",
        "value": "X'00ff'",
        "headers": "map('trace', 'x', 'tenant', NULL)",
    }
    (record,) = requests(spark.range(1), SETTINGS, job="job", columns=columns).records.collect()
    request = parsed(record)
    assert isinstance(request, Schedule)
    assert (request.target_key, record["value"], record["key"]) == (b"k", b"\x00\xff", b"order-1")
    assert request.headers == [("trace", b"x"), ("tenant", None)]


def test_cancels_and_reschedules_stand_beside_schedules(spark: SparkSession) -> None:
    rows = [
        ("schedule", "reminders", "1h", "a", None),
        ("reschedule", None, "2h", "a", None),
        ("cancel", None, None, "a", None),
        ("cancel", None, None, None, "delay.buffer/3/7"),
    ]
    frame = spark.createDataFrame(rows, "op string, target string, delay string, id string, source string")
    found = {type(one).__name__: one for one in asked(frame)}
    assert set(found) == {"Schedule", "Reschedule", "Cancel"}
    assert isinstance(found["Reschedule"], Reschedule)
    assert found["Reschedule"].scheduled_for_ms == NOW_MS + 7_200_000


@pytest.mark.parametrize(
    ("schema", "columns", "said"),
    [
        ("target string, dely string", {}, "'dely' is none of a request: is delay meant?"),
        ("target string, due date", {}, "'due' is of the type date: use a timestamp"),
        ("target string, headers string", {}, "'headers' is of the type string: use a map"),
        ("target string, reject_code int", {}, "'reject_code' is where what is wrong is said"),
        ("topic string", {"tpic": "topic"}, "'tpic' is none of a request"),
    ],
)
def test_what_is_wrong_with_a_frame_is_said_before_anything_is_read(
    spark: SparkSession, schema: str, columns: dict[str, str], said: str
) -> None:
    with pytest.raises(WrongInput, match=said.replace("?", r"\?")):
        requests(spark.createDataFrame([], schema), SETTINGS, job="job", columns=columns)
