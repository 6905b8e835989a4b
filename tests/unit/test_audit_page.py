"""The audit's page of what an audit may find: nothing at all, too much of a kind, a great many epochs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.audit import AuditReport, Lateness, Violation
from pipeline.audit.figures import FigureMark, failover_marks, lateness_figure, timeline_figure
from pipeline.audit.page import audit_page, shown
from pipeline.audit.picture import Picture
from pipeline.audit.spread import Bucket
from pipeline.audit.stories import Story
from pipeline.audit.timeline import BUCKETS, Bar, Epoch, Timeline, bucket_size_ms
from pipeline.page import Cell, Column, Table, render

NOW_MS = 1_795_255_200_000
CLEAN = AuditReport(10, {"delivered": 10}, 10, lateness_ms=Lateness(5, 80, 250))
SEEN = Picture(
    cluster="delay",
    taken_ms=NOW_MS,
    report=CLEAN,
    kinds={("schedule", "delivered"): 10},
    targets=(),
    late=(Bucket(5, 6, 9), Bucket(250, 275, 1)),
    timeline=Timeline(1_000, (Bar(NOW_MS, "n1", 9), Bar(NOW_MS + 60_000, "n2", 1))),
    epochs=(
        Epoch(0, 1, "n1", NOW_MS, NOW_MS + 900, 3, 9, None, None, None),
        Epoch(0, 2, "n2", NOW_MS + 50_000, NOW_MS + 61_000, None, 1, 59_100, NOW_MS + 900, 250),
    ),
    epochs_in_all=2,
    stories=(),
)


def test_a_clean_audit_is_kept() -> None:
    page = audit_page(SEEN)
    assert (page.headline.text, page.headline.tone) == ("Kept: every request is accounted for", "good")
    assert "Violations" not in [section.title for section in page.sections]


def test_an_audit_of_nothing_has_a_page_without_figures() -> None:
    empty = replace(
        SEEN, report=AuditReport(0, {}, None), kinds={}, late=(), timeline=Timeline(10, ()), epochs=()
    )
    assert "<figure" not in render(audit_page(replace(empty, epochs_in_all=0)))


def test_what_is_not_listed_is_counted() -> None:
    story = Story(Violation("lost", "delay.buffer/0/5", "overdue"), (), {"delivery": 7})
    html = render(
        audit_page(replace(SEEN, report=replace(CLEAN, lost=1_235), stories=(story,), epochs_in_all=9))
    )
    assert "Broken: 1,235 violations" in html
    assert "the first 1 of them here; 1,234 more" in html
    assert "Not shown: 7 more of: delivery." in html
    assert "7 older ones are not shown." in html


def test_what_became_of_occurrences_is_counted_apart_from_the_requests() -> None:
    report = replace(CLEAN, classes={"recurring": 1}, occurrences={"delivered": 41, "skipped": 1})
    [section] = [one for one in audit_page(replace(SEEN, report=report)).sections if "Occurr" in one.title]
    assert section.parts[0] == Table(
        [Column("end"), Column("occurrences", number=True)], [("delivered", Cell(41)), ("skipped", Cell(1))]
    )


@pytest.mark.parametrize("span_ms", [0, 2_999, 60_000, 86_400_000, 366 * 86_400_000, 10**13])
def test_any_span_has_a_bounded_number_of_buckets(span_ms: int) -> None:
    size_ms = bucket_size_ms(span_ms)
    assert span_ms // size_ms < BUCKETS
    assert size_ms >= 10


def test_labels_that_would_cover_each_other_are_left_to_the_longest_gaps() -> None:
    marks = [FigureMark(NOW_MS + at, f"{at}", gap_ms=at) for at in (0, 100, 30_000)]
    figure = timeline_figure(SEEN.timeline, SEEN.epochs, marks)
    assert {label.text for label in figure.layout.annotations} == {"100", "30000"}


def test_a_failover_is_marked_with_its_gap_and_the_first_epoch_is_none() -> None:
    [mark] = failover_marks(SEEN.epochs)
    assert (mark.label, mark.gap_from_ms) == ("epoch 2: n2, gap 59.1 s", NOW_MS + 900)


def test_the_shares_of_lateness_end_at_all_messages() -> None:
    figure = lateness_figure(SEEN.late, CLEAN.lateness_ms)
    shares = next(trace for trace in figure.data if trace.yaxis == "y2").y
    assert (shares[0], shares[-1]) == (0, 100)


def test_a_delivery_at_a_time_that_no_calendar_has_is_in_the_timeline() -> None:
    timeline = Timeline(1_000, (Bar(-1_000, "n1", 1), Bar(2**62, "n1", 1)))
    [bars, *_] = timeline_figure(timeline, (), ()).data
    assert len(bars.x) == 2


def test_a_time_that_no_calendar_has_is_shown_as_its_number() -> None:
    assert shown(2**62) == f"{2**62} ms"
