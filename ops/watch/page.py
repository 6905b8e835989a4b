"""The page of a watch: what is proven, up to when, and what is not as it must be."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from pipeline.audit.report import INVARIANTS, KINDS
from pipeline.page.parts import Cell, Column, Facts, Headline, Page, PageRow, Paragraph, Part, Section, Table
from pipeline.watch.marker import Marker, summed


def watch_page(cluster: str, marker: Marker | None, failed: str | None, took_s: float) -> Page:
    """`failed`: why the round after `marker` could not be ended."""
    title = f"delayline audit watch: {cluster}"
    if marker is None:
        headline = Headline("Nothing is proven yet: the first round is under way.", "plain")
        return Page(title, "", headline, [] if failed is None else [_failure(failed)])
    stand = marker.open_violations
    headline = (
        Headline(f"{stand:,} violations stand.", "bad")
        if stand
        else Headline(f"All that was due before {_utc(marker.proven_up_to_ms)} is accounted for.", "good")
    )
    sections = [] if failed is None else [_failure(failed)]
    sections += [_proof(marker, took_s), _violations(marker), _classes(marker)]
    return Page(title, f"Round {marker.number}, as of {_utc(marker.taken_ms)}", headline, sections)


def _failure(failed: str) -> Section:
    return Section("The last round", [Paragraph(f"It could not be ended: {failed}", "bad")])


def _proof(marker: Marker, took_s: float) -> Section:
    facts: dict[str, str | int | float | None] = {
        "proven up to": _utc(marker.proven_up_to_ms),
        "read up to": _utc(marker.taken_ms),
        "ago": f"{time.time() - marker.taken_ms / 1000:.0f} s",
        "requests": marker.requests,
        "still open": marker.open_requests,
        "the last round took": f"{took_s:.1f} s" if took_s else None,
    }
    cut = {partition: first for partition, first in marker.begins.items() if first}
    if cut:
        facts["the log began late"] = ", ".join(f"partition {p} at {first}" for p, first in cut.items())
    return Section("What is proven", [Facts(facts)])


def _violations(marker: Marker) -> Section:
    columns = [
        Column("violation"),
        Column("invariant"),
        Column("stand", number=True),
        Column("told", number=True),
        Column("meaning"),
    ]
    rows: list[PageRow] = []
    for kind, meaning in KINDS.items():
        count = marker.open.get(kind, 0)
        shown = Cell(count, "bad" if count else "good")
        rows.append([kind, INVARIANTS[kind], shown, marker.found.get(kind, 0), meaning])
    where: Part = Paragraph("Each one is in the audit topic of the cluster, with its source and detail.")
    return Section("Violations", [Table(columns, rows), where])


def _classes(marker: Marker) -> Section:
    columns = [Column("kind"), Column("became"), Column("count", number=True)]
    rows: list[PageRow] = [[one.kind, one.ended, one.count] for one in summed(marker.closed, marker.standing)]
    return Section("What became of the requests", [Table(columns, rows)])


def _utc(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
