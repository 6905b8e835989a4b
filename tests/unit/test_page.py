"""A page's HTML: what is in it, how values look, and that no text can become anything else."""

from __future__ import annotations

import re

import plotly.graph_objects as go
import pytest

from pipeline.page import (
    Cell,
    Column,
    Facts,
    Figure,
    Fold,
    Headline,
    Page,
    Paragraph,
    Part,
    Section,
    Table,
    render,
)
from pipeline.page.figures import duration, log_ms_axis

HOSTILE = "</script><script>alert(1)</script><img src=x onerror='alert(2)'>"


def page(*parts: Part, title: str = "a page") -> str:
    return render(Page(title, "of today", Headline("Kept", "good"), [Section("all", parts)]))


@pytest.mark.parametrize(
    "part",
    [
        Paragraph(HOSTILE),
        Facts({HOSTILE: HOSTILE}),
        Table([Column(HOSTILE)], [[HOSTILE], [Cell(HOSTILE, "bad")]]),
        Fold(HOSTILE, [Paragraph(HOSTILE)]),
        Figure(go.Figure([go.Scatter(x=[1], y=[1], text=[HOSTILE])]), HOSTILE),
    ],
    ids=["text", "facts", "table", "fold", "figure"],
)
def test_no_text_becomes_an_element(part: Part) -> None:
    html = page(part, title=HOSTILE)
    assert "<script>" not in html
    assert "<img" not in html.partition("<main>")[2].partition("</main>")[0]


def test_scripts_run_with_the_pages_own_nonce_alone() -> None:
    html = page(Figure(go.Figure(), "nothing"))
    [nonce] = re.findall(r"script-src 'nonce-([^']+)'", html)
    ran = re.findall(r"<script(?! type=\"application/json\")([^>]*)>", html)
    assert ran == [f' nonce="{nonce}"'] * 2
    assert page().count(nonce) == 0


def test_a_page_without_figures_carries_no_library() -> None:
    assert len(page(Paragraph("short"))) < 20_000


def test_numbers_stand_on_the_right_in_groups_of_three() -> None:
    html = page(Table([Column("n", number=True)], [[12_345], [Cell(1, "bad")], [None]]))
    assert '<td class="plain number">12,345</td>' in html
    assert '<td class="bad number">1</td>' in html
    assert '<td class="plain number">–</td>' in html  # noqa: RUF001


def test_a_table_without_rows_is_left_out() -> None:
    assert "<table>" not in page(Table([Column("n")], []))


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (0, "0 ms"),
        (82, "82 ms"),
        (1_479, "1.48 s"),
        (90_000, "1.5 min"),
        (7_200_000, "2 h"),
        (259_200_000, "3 d"),
    ],
)
def test_a_duration_is_a_short_number_of_its_largest_unit(ms: int, shown: str) -> None:
    assert duration(ms) == shown


@pytest.mark.parametrize("most_ms", [1, 300, 86_400_000 * 400])
def test_an_axis_has_a_few_ticks_whatever_its_range(most_ms: int) -> None:
    assert 1 <= len(log_ms_axis(0, most_ms, "late")["ticktext"]) <= 9
