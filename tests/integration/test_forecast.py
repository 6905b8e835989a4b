"""A forecast of a cluster that runs: what it knows is what waits, to the message; and the command."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page
from pyspark.sql import SparkSession

from delayline import DelayProducer, cron, every
from delayline.settings_versions import SettingsVersions
from election.operators import Author
from ops.cluster.pause import pause
from ops.message import due
from pipeline.audit import AuditConfig
from pipeline.forecast import Asked, Forecast, Horizon, count, forecast
from pipeline.forecast.counts import Target, Waiting
from pipeline.forecast.read import Log, read
from tests.integration.forecast_history import alike_weeks
from tests.stacks import Stack
from tests.support.cluster import Cluster
from tests.support.commands import Operator, operator_of
from tests.support.fixtures import MakeCluster
from tests.support.requests import Sender, now_ms
from tests.support.waiting import PATIENCE_S, eventually

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
HORIZON_DAYS = 2


def log_of(cluster: Cluster, spark: SparkSession) -> Log:
    versions = SettingsVersions.of(cluster.settings)
    return read(spark, AuditConfig(cluster.bootstrap, versions, cluster.keys))


def forecast_of(log: Log) -> Forecast:
    horizon = Horizon(log.taken_ms, HORIZON_DAYS * 24 * 60)
    return forecast("c", count(log.messages, log.arrivals, horizon, log.since_ms), horizon, Asked())


def known(found: Forecast) -> Counter[tuple[int, Target]]:
    """By minutes since the epoch, and target."""
    counts: Counter[tuple[int, Target]] = Counter()
    for part in (found.counts.plain, found.counts.chains):
        for (minute, target), messages in part.items():
            counts[found.horizon.first_minute + minute, target] += messages
    return counts


@pytest.fixture
def busy(make_cluster: MakeCluster) -> tuple[Cluster, Counter[tuple[int, Target]]]:
    """A cluster in which messages of all kinds wait, and how many by minute and target."""
    cluster = make_cluster(targets=("target", "second", "third"))
    cluster.start_here("a")
    base_ms = (now_ms() // HOUR_MS + 2) * HOUR_MS
    waits: Counter[tuple[int, Target]] = Counter()

    def add(at_ms: int, target: str, times: int = 1) -> None:
        waits[at_ms // MINUTE_MS, cluster.target(target)] += times

    with Sender(cluster) as sender:
        for number in range(40):
            at_ms = base_ms + number * number * 7_001
            sender.schedule(at_ms=at_ms, target="second" if number % 3 else "target")
            add(at_ms, "second" if number % 3 else "target")
        sender.schedule(b"now", after_ms=0)
        for name in ("cancelled", "moved", "replaced", "kept"):
            sender.schedule(at_ms=base_ms, id=name)
        sender.flush()
        sender.cancel("cancelled")
        sender.reschedule("moved", at_ms=base_ms + HOUR_MS)
        sender.schedule(at_ms=base_ms + 3 * MINUTE_MS, id="replaced", target="third")
        sender.schedule(at_ms=base_ms + 30 * DAY_MS)
    add(base_ms + HOUR_MS, "target")
    add(base_ms + 3 * MINUTE_MS, "third")
    add(base_ms, "target")  # what is kept
    with DelayProducer({"bootstrap.servers": cluster.bootstrap}, cluster=cluster.name) as producer:
        send = producer.schedule
        send(cluster.target(), b"", deliver_at=base_ms, repeat=every("20m", times=4))
        send(cluster.target("third"), b"", deliver_at=base_ms, repeat=every("10s", until=base_ms + HOUR_MS))
        send(cluster.target("third"), b"", deliver_at=base_ms, id="c", repeat=cron("15 * * * *", times=2))
    for step in range(4):
        add(base_ms + step * 20 * MINUTE_MS, "target")
    for step in range(HOUR_MS // 10_000 + 1):
        add(base_ms + step * 10_000, "third")
    add(base_ms + 15 * MINUTE_MS, "third")
    add(base_ms + 75 * MINUTE_MS, "third")
    outcomes = Counter({"cancelled": 1, "replaced": 1, "rescheduled": 1})
    cluster.wait_delivered(1)
    cluster.tail.wait(
        lambda: Counter(one["outcome"] for one in cluster.outcomes) >= outcomes, "all is answered", PATIENCE_S
    )
    # The plain ones, those of the fates, and one of each chain.
    eventually(lambda: cluster.member("a").get("pending") == 40 + 4 + 3, "the node has all that waits")
    return cluster, waits


def test_what_is_known_is_what_waits_by_minute_and_target(
    busy: tuple[Cluster, Counter[tuple[int, Target]]], spark: SparkSession
) -> None:
    cluster, waits = busy
    found = forecast_of(log_of(cluster, spark))
    assert known(found) == waits
    assert (found.basis, list(found.minutes.expected)) == ("none", [float(one) for one in found.known])
    node = due.forecast(cluster.connection, "a").due
    waiting = found.counts.waiting
    assert (waiting.overdue, waiting.held, waiting.messages) == (0, 0, sum(node.days.counts.values()))


def test_what_waits_for_the_end_of_a_pause_is_told_apart(cluster: Cluster, spark: SparkSession) -> None:
    cluster.start_here("a")
    with Sender(cluster) as sender:
        sender.schedule(b"before", after_ms=0)
        sender.flush()
        cluster.wait_delivered(1)
        pause(cluster.connection, [cluster.target()], Author("somebody", "a test", now_ms()), PATIENCE_S)
        for _ in range(3):
            sender.schedule(after_ms=0)
    eventually(
        lambda: sum(one.rows for one in due.forecast(cluster.connection, "a").due.held.values()) == 3,
        "they wait for its end",
    )
    waiting = forecast_of(log_of(cluster, spark)).counts.waiting
    assert (waiting.overdue, waiting.held, waiting.messages) == (0, 3, 3)


@pytest.fixture
def typed(
    stack: Stack,
    cluster: Cluster,
    lent: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Operator]:
    with operator_of(cluster.connection, monkeypatch, capsys, "forecast") as operator:
        yield operator


def test_the_command_shows_an_empty_cluster(typed: Operator) -> None:
    done = typed("--days", "1")
    assert done.code == 0, done.err
    assert done.out.startswith("Nothing is known of what the lanes can do: say it with --capacity\n")
    assert "The log is empty: nothing is known of what is still to come." in done.out
    assert "no node is running: how full their disks will be is not known" in done.err


def test_the_command_says_what_is_due_whether_it_fits_and_what_the_disks_take(
    typed: Operator, cluster: Cluster
) -> None:
    cluster.start_here("a")
    due_ms = (now_ms() // HOUR_MS + 2) * HOUR_MS
    with Sender(cluster) as sender:
        for _ in range(90):
            sender.schedule(at_ms=due_ms)
        sender.schedule(b"now", after_ms=0)
    cluster.wait_delivered(1)
    eventually(lambda: cluster.member("a").get("disk_total_bytes", 0) > 0, "the node has told of its disk")
    done = typed("--capacity", "1", "-o", "json")
    assert done.code == 0, done.err
    assert (done.data["known"], done.data["pending"], done.data["minutes_over"]) == (90, 90, 1)
    assert (done.data["first_over_ms"], done.data["late_at_most_s"]) == (due_ms, 89.0)
    [peak] = done.data["peaks"]
    assert peak["targets"] == [{"target": cluster.target(), "expected": 90.0}]
    assert sorted(disk["part"] for disk in done.data["disks"]) == ["log", "view"]
    table = typed("--capacity", "1", "--disk-bytes", "1")
    assert "1 minute may be above 1.0 messages a second: messages are late by up to 1.5 min" in table.out
    assert f"{cluster.target()} 90" in table.out
    assert "full on" in table.out


def test_the_files_have_all_minutes_and_figures(
    typed: Operator, cluster: Cluster, tab: Page, tmp_path: Path
) -> None:
    with Sender(cluster) as sender:
        sender.schedule(at_ms=now_ms() + HOUR_MS)
    page, table = tmp_path / "page.html", tmp_path / "forecast.csv"
    done = typed("--days", "1", "--html", str(page), "--csv", str(table), "--disk-bytes", "1000000")
    assert done.code == 0, done.err
    with table.open() as rows:
        found = list(csv.DictReader(rows))
    assert sum(int(row["known"]) for row in found if row["scale"] == "minute") == 1
    assert Counter(row["scale"] for row in found) >= Counter(minute=24 * 60, hour=24, target=1)
    tab.goto(page.as_uri())
    assert tab.locator(".plot .lines path").count() > 0
    assert [*map(str, tab.page_errors()), *(message.text for message in tab.console_messages())] == []


def test_frames_of_ones_own_are_forecast_from_their_weeks(spark: SparkSession) -> None:
    """Each hour 60 messages fall due, of which 40 are asked for half an hour before, the others a day: of the
    latter each tenth is cancelled.
    """
    now = 2_900 * 7 * DAY_MS
    messages, arrivals = alike_weeks(spark, now)
    horizon = Horizon(now, 6 * 60)
    found = forecast("c", count(messages, arrivals, horizon, now - 21 * DAY_MS), horizon, Asked())
    assert (found.basis, found.counts.shifts and found.counts.shifts.count) == ("weeks", 3)
    assert found.counts.waiting == Waiting(0, 0, 20 * 24 + 20, (20 * 24 + 20) * 100)
    # What is due within half an hour has all been asked for.
    assert list(found.hours.expected) == pytest.approx([58.0] * 6, abs=3)
    assert sum(found.fresh[:30]) < 3
    assert sum(found.fresh[60:]) == pytest.approx(5 * 40)
    assert found.came[0] == pytest.approx(0.95, abs=0.05)
