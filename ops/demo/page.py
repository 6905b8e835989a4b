"""The demo's page: the audit's, with what was done to the cluster and what that cost."""

from __future__ import annotations

from collections.abc import Sequence

from ops.demo.episode import Failover
from ops.demo.proof import ProofRound
from ops.demo.verdict import MEMORY_LIMIT_MB, Verdict, versions
from ops.demo.view import FAULT_NAMES
from pipeline.audit.figures import FigureMark
from pipeline.audit.page import Marks, sections, shown, subtitle
from pipeline.audit.picture import Picture
from pipeline.page import Cell, Column, Facts, Headline, Page, PageRow, Paragraph, Section, Table


def demo_page(verdict: Verdict, picture: Picture) -> Page:
    """The page of a run of the demo."""
    kept = Headline("Kept: every promise, through every fault", "good")
    headline = kept if verdict.holds else Headline("Broken: a promise was not kept", "bad")
    in_short, *rest = sections(picture, _marks(verdict.failovers))
    faults = Section("What was done to the cluster", [_faults(verdict.failovers), *_undisturbed(verdict)])
    watched = Section("What the watch proved meanwhile", [_rounds(verdict.rounds)])
    setting = Section("What took part", [Facts({**_settings(verdict), **versions()})])
    return Page("delayline demo", subtitle(picture), headline, [in_short, faults, watched, *rest, setting])


def _marks(failovers: Sequence[Failover]) -> Marks:
    marks = [
        FigureMark(one.at_ms, f"{FAULT_NAMES[one.kind]}: {one.gap_ms:.0f} ms", gap_ms=one.gap_ms)
        for one in failovers
    ]
    return Marks(marks, "what was done to the cluster, with the gap that a consumer had.")


def _faults(failovers: Sequence[Failover]) -> Table:
    names = ("gap, ms", "due ±1 s", "whole after, ms", "worst pause till then, ms", "epoch")
    columns = [
        Column("fault"),
        Column("at (UTC)"),
        Column("leader"),
        *(Column(name, number=True) for name in names),
    ]
    return Table(columns, [_fault(failover) for failover in failovers])


def _fault(failover: Failover) -> PageRow:
    stayed = failover.leader == failover.leader_before
    return (
        FAULT_NAMES[failover.kind],
        shown(failover.at_ms),
        f"{failover.leader} stays" if stayed else f"{failover.leader_before} → {failover.leader}",
        round(failover.gap_ms),
        failover.due_within_1s,
        failover.healthy_after_ms,
        round(failover.pause_until_healthy_ms),
        failover.epoch,
    )


def _rounds(rounds: Sequence[ProofRound]) -> Table:
    names = ("round", "requests", "violations that stand", "took, s")
    columns = [
        Column("what there was at (UTC)"),
        Column("proven up to (UTC)"),
        *(Column(name, number=True) for name in names),
    ]
    rows: list[PageRow] = [
        (
            shown(one.taken_ms),
            shown(one.proven_up_to_ms),
            one.number,
            one.requests,
            Cell(one.violations, "bad" if one.violations else "good"),
            one.took_s,
        )
        for one in rounds
    ]
    return Table(columns, rows)


def _undisturbed(verdict: Verdict) -> list[Paragraph | Table]:
    late = verdict.lateness
    told = Paragraph(
        "Gap: the longest time without a message at a read_committed consumer until the fault was over. "
        f"Undisturbed, for {verdict.undisturbed_s:.0f} s: lateness there p50 {late.p50} ms, "
        f"p99 {late.p99} ms, max {late.max} ms; longest pause {verdict.longest_undisturbed_pause_ms:.0f} ms."
    )
    rows = [
        (node, Cell(used, "good" if used <= MEMORY_LIMIT_MB else "bad"))
        for node, used in verdict.peak_memory_mb.items()
    ]
    heading = f"memory at its peak, MB ({MEMORY_LIMIT_MB} allowed, I8)"
    return [told, Table([Column("node"), Column(heading, number=True)], rows)]


def _settings(verdict: Verdict) -> dict[str, str | int | float]:
    plain = {name: value for name, value in verdict.settings.items() if isinstance(value, str | int | float)}
    words = {name.replace("_", " "): value for name, value in plain.items()}
    return {**words, "took": f"{verdict.duration_s:.0f} s"}
