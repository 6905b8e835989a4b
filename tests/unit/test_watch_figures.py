"""What a watch shows of its rounds: metrics and page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from ops.watch.figures import WatchFigures
from ops.watch.page import watch_page
from ops.watch.rounds import Ended
from ops.watch.words import told
from pipeline.page.render import render
from pipeline.watch.marker import Counted, Marker, NewerMarker, summed

DOCUMENTED = Path(__file__).parents[2] / "docs" / "watch.md"
MARKER = Marker(
    number=7,
    folder="round-000000007-00000000",
    taken_ms=1_900_000_000_500,
    proven_up_to_ms=1_900_000_000_000,
    begins={0: 0, 1: 40},
    serials={0: (5, 1)},
    newest_ms={0: 1_900_000_000_000},
    edges_ms={"delay.outcomes": 3},
    last={},
    closed=(Counted("occurrence", "delivered", 4), Counted("schedule", "delivered", 100)),
    standing=(Counted("cancel", "too-late", 1), Counted("schedule", "delivered", 2)),
    found={"lost": 3, "early": 1},
    open={"lost": 2},
)


def ended(
    found: int, cleared: int, marker: Marker = MARKER, *, in_full: bool = False, unseen: Sequence[str] = ()
) -> Ended:
    """How a round has ended."""
    return Ended(marker, found, cleared, in_full=in_full, anew=False, unseen=unseen)


@pytest.fixture
def figures() -> WatchFigures:
    figures = WatchFigures("delay")
    figures.ended(ended(3, 1), 2.5)
    return figures


def samples(figures: WatchFigures) -> dict[tuple[str, str | None], float]:
    families = text_string_to_metric_families(figures.text().decode())
    return {
        (sample.name, sample.labels.get("kind")): sample.value
        for family in families
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def test_a_marker_is_read_as_it_was_written() -> None:
    assert Marker.decode(MARKER.encode()) == MARKER


def test_a_marker_of_a_newer_version_is_refused_as_such() -> None:
    with pytest.raises(NewerMarker, match="round of format 99"):
        Marker.decode(b'{"format": 99, "what": "nobody knows"}')


def test_requests_are_counted_without_the_occurrences_of_recurring_ones() -> None:
    assert (MARKER.requests, MARKER.open_requests) == (103, 3)


def test_counts_of_one_kind_and_class_are_one() -> None:
    assert summed(MARKER.closed, MARKER.standing) == (
        Counted("cancel", "too-late", 1),
        Counted("occurrence", "delivered", 4),
        Counted("schedule", "delivered", 102),
    )


def test_the_metrics_are_those_that_the_docs_have(figures: WatchFigures) -> None:
    documented = set(re.findall(r"\| `(delayline_\w+)", DOCUMENTED.read_text()))
    assert {name for name, _ in samples(figures)} == documented


def test_the_metrics_say_what_the_last_round_has_come_to(figures: WatchFigures) -> None:
    figures.failed("Kafka does not answer")
    found = samples(figures)
    assert found["delayline_audit_violations_total", "lost"] == 3
    assert found["delayline_audit_violations_open", "lost"] == 2
    assert found["delayline_audit_violations_open", "early"] == 0
    assert found["delayline_audit_proven_up_to_seconds", None] == 1_900_000_000
    assert found["delayline_audit_open_requests", None] == 3
    assert found["delayline_audit_failed_rounds_total", None] == 1


def test_before_the_first_round_there_is_nothing_but_failures() -> None:
    assert samples(WatchFigures("delay")) == {("delayline_audit_failed_rounds_total", None): 0}


def test_the_page_says_what_is_proven_and_what_stands() -> None:
    page = watch_page("delay", MARKER, None, 2.5)
    assert (page.headline.text, page.headline.tone) == ("2 violations stand.", "bad")
    clean = watch_page("delay", Marker.decode(MARKER.encode()), "Kafka <does> not answer", 2.5)
    assert "Kafka &lt;does&gt; not answer" in render(clean)


def test_a_line_tells_what_a_round_has_found() -> None:
    line = told(ended(3, 1, in_full=True), 2.5)
    assert line == (
        "round 7: 103 requests, 3 of them still open; 2.5 s; violations: 3 new, 1 cleared, 2 stand; "
        "all topics were audited, since something concerned what was closed"
    )


def test_a_line_names_the_first_targets_that_were_not_seen() -> None:
    line = told(ended(0, 0, unseen=[f"t{number}" for number in range(7)]), 2.5)
    assert "this user may not see t0, t1, t2, t3, t4 and 2 others, and what was delivered there" in line


def test_a_line_tells_what_stands_though_nothing_is_new() -> None:
    line = told(ended(0, 0), 2.5)
    assert line.endswith("; 2.5 s; violations: 0 new, 0 cleared, 2 stand")
    sound = told(ended(0, 0, msgspec.structs.replace(MARKER, open={})), 2.5)
    assert sound.endswith("; 2.5 s")
