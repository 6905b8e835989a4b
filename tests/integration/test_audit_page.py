"""The audit's page of a history with faults, as a real browser shows it, and what is in it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Page
from pyspark.sql import SparkSession

from ops.cli.main import run
from pipeline.audit import stories, timeline
from pipeline.audit.page import audit_page, shown
from pipeline.audit.picture import Picture, picture
from pipeline.audit.spread import spread
from pipeline.audit.stories import Story
from pipeline.page import write
from tests.integration.audited import Audited
from tests.integration.sample_history import FaultySample
from tests.logging_state import restored_logging
from tests.stacks import Stack


@pytest.fixture(scope="module")
def seen(faulty: Audited) -> Picture:
    return picture(faulty.found, faulty.config)


@pytest.fixture(scope="module")
def history(faulty: Audited) -> FaultySample:
    """The one whose faults the stories here are about; it has lane 0."""
    return faulty[FaultySample][0]


@pytest.fixture(scope="module")
def page(seen: Picture, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "audit.html"
    write(audit_page(seen), file)
    return file


def story_of(seen: Picture, kind: str, source: str) -> Story:
    [story] = [one for one in seen.stories if (one.violation.kind, one.violation.source) == (kind, source)]
    return story


def test_the_page_shows_its_verdict_and_draws_its_figures(tab: Page, page: Path, faulty: Audited) -> None:
    tab.goto(page.as_uri())
    assert tab.text_content("h1") == f"Broken: {len(faulty.all.violations)} violations"
    assert min(tab.locator(f".plot {drawn}").count() for drawn in (".bars path", ".lines path")) > 0


def test_the_browser_has_nothing_to_complain_of(tab: Page, page: Path) -> None:
    tab.goto(page.as_uri())
    assert [*map(str, tab.page_errors()), *(message.text for message in tab.console_messages())] == []


def test_the_page_asks_for_nothing_but_itself(tab: Page, page: Path) -> None:
    tab.goto(page.as_uri())
    assert [request.url for request in tab.requests()] == [page.as_uri()]


def test_the_browser_lets_no_page_load_anything(tab: Page, page: Path) -> None:
    tampered = page.with_name("tampered.html")
    tampered.write_text(page.read_text() + '<img src="http://127.0.0.1:9/x.png">')
    tab.goto(tampered.as_uri())
    assert ["Content Security Policy" in message.text for message in tab.console_messages()] == [True]


@pytest.mark.parametrize("width", [400, 1280])
def test_the_page_is_no_wider_than_the_window(tab: Page, page: Path, width: int) -> None:
    tab.set_viewport_size({"width": width, "height": 900})
    tab.goto(page.as_uri())
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_what_users_have_written_is_shown_and_not_obeyed(
    tab: Page, page: Path, history: FaultySample
) -> None:
    tab.goto(page.as_uri())
    assert history.hostile.schedule.id is not None
    assert "<script>" in history.hostile.schedule.id
    assert history.hostile.schedule.id in str(tab.text_content("body"))
    assert tab.evaluate("window.obeyed") is None
    assert tab.locator("main script").count() == 2


def test_a_message_delivered_twice_is_told_from_its_request_to_its_last_delivery(
    seen: Picture, history: FaultySample
) -> None:
    seven = history.seven
    told = story_of(seen, "duplicated", seven.source)
    assert [(event.what, event.epoch) for event in told.events] == [
        ("request", None),
        ("delivery", 1),
        ("checkpoint", 1),
        ("delivery", 2),
    ]
    asked = told.events[0]
    assert (asked.record, asked.says) == (
        seven.source,
        f"schedule, due {shown(seven.due_ms)}, to {seven.schedule.target_topic}",
    )


def test_a_delivery_is_told_with_its_lateness(seen: Picture, history: FaultySample) -> None:
    told = story_of(seen, "duplicated", history.seven.source)
    assert [event.says for event in told.events if event.what == "delivery"] == [
        "time by the leader, 0 ms after it was due",
        "time by the leader, 3,600 ms after it was due",
    ]


def test_a_false_outcome_is_told_with_the_other_requests_of_its_id_and_their_ends(
    seen: Picture, history: FaultySample
) -> None:
    events = story_of(seen, "false_outcome", history.too_late.source).events
    assert {event.record for event in events if event.what == "request"} == {
        request.source for request in (history.old, history.new, history.too_late)
    }
    assert [
        event.says for event in events if event.what == "outcome" and event.of == history.too_late.source
    ] == [f"cancelled, to a cancel, keyed by {history.too_late.source}, of {history.new.source}"]
    assert [event.what for event in events if event.of == history.new.source].count("delivery") == 1


def test_a_checkpoint_that_went_back_is_told_with_those_before_it(seen: Picture, faulty: Audited) -> None:
    violations = faulty[FaultySample][1].violations
    [moved_back] = [one.source for one in violations if one.kind == "checkpoint_moved_back"]
    told = story_of(seen, "checkpoint_moved_back", moved_back)
    offsets = {int(event.record.rpartition("/")[2]): event.says.split(",")[0] for event in told.events}
    before, *_, wrong = sorted(offsets)
    assert (offsets[before], offsets[wrong], len(offsets)) == ("before it", "itself", 3)


def test_each_kind_has_its_first_violations_only(faulty: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stories, "PER_KIND", 1)
    kinds = [violation.kind for violation in stories._first_of_each_kind(faulty.found.violations)]
    assert faulty.report.lost > 1
    assert kinds.count("lost") == 1


def test_the_timeline_and_the_epochs_have_every_message_once(seen: Picture, faulty: Audited) -> None:
    delivered = sum(row["delivered_at_ms"] is not None for row in faulty.all.messages)
    assert sum(bar.messages for bar in seen.timeline.bars) == delivered
    assert sum(step.messages for step in seen.late) == delivered
    of_sample = [(one.epoch, one.node, one.messages) for one in seen.epochs if one.lane == 0]
    assert of_sample == [(1, "n1", 9), (2, "n2", 2)]


def test_a_failovers_gap_is_the_pause_round_it(seen: Picture, history: FaultySample) -> None:
    first, second = (one for one in seen.epochs if one.lane == 0)
    assert first.gap_ms is None
    assert second.gap_ms == history.last.due_ms - history.new.due_ms


def test_a_message_whose_checkpoint_compaction_has_taken_counts_for_the_epoch_before(
    spark: SparkSession,
) -> None:
    kept = [(0, 0, 1, "n1", True), (0, 9, 2, "n2", True), (0, 10, 2, "n2", False)]
    found = spark.createDataFrame(kept, "lane int, seq long, epoch long, node string, first boolean")
    leaders = {row["settled_by"]: row["node"] for row in timeline._leaders(found).collect()}
    assert leaders == {0: None, 9: "n1", 10: "n2"}


def test_lateness_is_counted_in_steps_that_follow_each_other_and_hold_every_message(
    spark: SparkSession,
) -> None:
    late_ms = [-7, -1, *range(2_000), 10**12]
    found = spark.createDataFrame([(ms,) for ms in [*late_ms, None]], "lateness_ms long")
    steps = spread(found)
    assert sum(step.messages for step in steps) == len(late_ms)
    assert (steps[0].from_ms, steps[0].to_ms, steps[0].messages) == (-7, 0, 2)
    assert all(before.to_ms <= after.from_ms for before, after in pairwise(steps))
    assert len(steps) < 80


def test_the_command_writes_the_page_of_a_cluster_that_has_done_nothing(
    stack: Stack, lent: None, cluster_name: str, tmp_path: Path
) -> None:
    where = ["--bootstrap", stack.bootstrap, "--zookeeper", stack.zookeeper, "--cluster", cluster_name]
    file = tmp_path / "page.html"
    with restored_logging():
        assert run(["topics", "create", *where]) == 0
        assert run(["audit", "--html", str(file), *where]) == 0
    assert "Kept: every request is accounted for" in file.read_text()
