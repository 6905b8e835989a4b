"""The audit's page: the verdict first, then what it is made of, down to each violation's records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from delayline.outcome_kinds import OutcomeKind
from delayline.times import render_time
from pipeline.audit.classes import CLASSES
from pipeline.audit.figures import FigureMark, failover_marks, lateness_figure, timeline_figure
from pipeline.audit.meaning import CANCEL, REJECT, RESCHEDULE, SCHEDULE
from pipeline.audit.picture import Picture
from pipeline.audit.report import INVARIANTS, KINDS, AuditReport
from pipeline.audit.stories import Story, StoryEvent
from pipeline.audit.timeline import REACH_MS
from pipeline.page import Cell, Column, Facts, Figure, Fold, Headline, Page, Paragraph, Part, Section, Table
from pipeline.page.figures import duration


@dataclass(frozen=True, slots=True)
class Marks:
    """What stands out in the timeline, and what it is."""

    marks: Sequence[FigureMark]
    meaning: str


def audit_page(picture: Picture) -> Page:
    """The page of an audit."""
    report = picture.report
    wrong = sum(map(report.found, KINDS))
    kept = Headline("Kept: every request is accounted for", "good")
    broken = Headline(f"Broken: {wrong:,} violation{'s' if wrong != 1 else ''}", "bad")
    return Page("delayline audit", subtitle(picture), kept if report.clean else broken, sections(picture))


def subtitle(picture: Picture) -> str:
    """Which cluster, when, how many requests."""
    return f"cluster {picture.cluster}, {shown(picture.taken_ms)} UTC, {picture.report.requests:,} requests"


def sections(picture: Picture, marks: Marks | None = None) -> list[Section]:
    """All of it; `marks` go into the timeline, instead of the failovers."""
    return [
        Section("In short", [_in_short(picture)]),
        Section("Checks", [_checks(picture.report)]),
        *_violations(picture),
        Section("What became of the requests", [_classes(picture)]),
        *_occurrences(picture.report),
        *_lateness(picture),
        *_timeline(picture, _failovers(picture) if marks is None else marks),
        *_epochs(picture),
    ]


def shown(at_ms: int) -> str:
    """A time in UTC, as people read it; one that no calendar has, as its number."""
    try:
        return render_time(at_ms).replace("T", " ").removesuffix("Z")
    except ValueError:
        return f"{at_ms} ms"


def _in_short(picture: Picture) -> Facts:
    report, late = picture.report, picture.report.lateness_ms
    facts: dict[str, str | int | None] = {
        "requests": report.requests,
        "acknowledged, by the ledger": report.ledger,
        "delivered": report.classes.get(OutcomeKind.DELIVERED, 0),
        "recurring": report.classes.get("recurring") or None,
        "occurrences delivered": report.occurrences.get(OutcomeKind.DELIVERED),
        "lateness p50": _ms(late.p50),
        "lateness p99": _ms(late.p99),
        "lateness max": _ms(late.max),
        "overdue": report.overdue,
        "epochs": picture.epochs_in_all,
        "targets that were not seen": len(report.unseen) or None,
    }
    return Facts({name: value for name, value in facts.items() if value is not None})


def _ms(value: int | None) -> str | None:
    return None if value is None else f"{value:,} ms"


def _checks(report: AuditReport) -> Table:
    columns = [Column("invariant"), Column("check"), Column("found", number=True), Column("meaning")]
    counts = {kind: report.found(kind) for kind in KINDS}
    return Table(
        columns,
        [
            (INVARIANTS[kind], kind, Cell(counts[kind], "bad" if counts[kind] else "good"), meaning)
            for kind, meaning in KINDS.items()
        ],
    )


def _violations(picture: Picture) -> list[Section]:
    if not picture.stories:
        return []
    note = Paragraph(
        "For each one all records that speak of it, in the order of their timestamps. The epoch of a "
        "delivery or dead letter is the one at its time; of a checkpoint and an outcome, what it says itself."
    )
    by_kind = [list(group) for _, group in groupby(picture.stories, lambda story: story.violation.kind)]
    folds = [_of_kind(told, picture.report, unfolded=number == 0) for number, told in enumerate(by_kind)]
    return [Section("Violations", [note, *folds])]


def _of_kind(told: Sequence[Story], report: AuditReport, *, unfolded: bool) -> Fold:
    kind = told[0].violation.kind
    found = report.found(kind)
    more = f", the first {len(told)} of them here; {found - len(told):,} more" if found > len(told) else ""
    parts: list[Part] = [Paragraph(KINDS[kind])]
    parts += [_story(story, unfolded=unfolded and number == 0) for number, story in enumerate(told)]
    return Fold(f"{kind} ({INVARIANTS[kind]}): {found:,}{more}", parts, unfolded)


def _story(story: Story, *, unfolded: bool) -> Fold:
    violation = story.violation
    columns = ["time (UTC)", "record", "epoch", "where", "what it says"]
    parts: list[Part] = [Paragraph(violation.detail, "bad")]
    if story.events:
        rows = [_row(event, violation.source) for event in story.events]
        parts.append(Table([Column(heading, number=heading == "epoch") for heading in columns], rows))
    else:
        parts.append(Paragraph("No record in the topics speaks of it."))
    if story.left_out:
        more = ", ".join(f"{count:,} more of: {what}" for what, count in sorted(story.left_out.items()))
        parts.append(Paragraph(f"Not shown: {more}."))
    return Fold(violation.source, parts, unfolded)


def _row(event: StoryEvent, about: str) -> tuple[Cell | str | int | None, ...]:
    says = event.says if event.of == about else f"{event.says} (of {event.of})"
    return (shown(event.at_ms), event.what, event.epoch, event.record, says)


def _classes(picture: Picture) -> Table:
    kinds = (SCHEDULE, CANCEL, RESCHEDULE, REJECT)
    names = {REJECT: "rejected"}
    columns = [Column("class"), *(Column(names.get(kind, kind), number=True) for kind in kinds)]
    rows = [
        (
            name,
            *(picture.kinds.get((kind, name)) for kind in kinds),
            Cell(count, "bad" if name == "lost" else "plain"),
        )
        for name in CLASSES
        if (count := picture.report.classes.get(name, 0))
    ]
    return Table([*columns, Column("requests", number=True)], rows)


def _occurrences(report: AuditReport) -> list[Section]:
    if not report.occurrences:
        return []
    rows = [
        (end, Cell(count, "bad" if end == "lost" else "plain")) for end, count in report.occurrences.items()
    ]
    note = Paragraph(
        "Each one is a message of its own. Skipped: the next one was due already, and delay-missed says so. "
        "Rescheduled: moved to another time, where it is counted again."
    )
    table = Table([Column("end"), Column("occurrences", number=True)], rows)
    return [Section("Occurrences of recurring messages", [table, note])]


def _lateness(picture: Picture) -> list[Section]:
    late, report = picture.late, picture.report.lateness_ms
    if not any(step.from_ms >= 0 for step in late):
        return []
    early = sum(step.messages for step in late if step.from_ms < 0)
    words = f"Lateness of messages: p50 {_ms(report.p50)}, p99 {_ms(report.p99)}, max {_ms(report.max)}."
    columns = [
        Column("target"),
        *(Column(name, number=True) for name in ("messages", "p50 ms", "p99 ms", "max ms")),
    ]
    clock = (
        "By the records' timestamps: the leader's clock, or the broker's where the topic has LogAppendTime."
    )
    parts: list[Part] = [Figure(lateness_figure(late, report), words), Paragraph(clock)]
    if early:
        parts.append(Paragraph(f"{early:,} were early: they are not in the figure.", "bad"))
    rows = [(target.topic, target.messages, target.p50, target.p99, target.max) for target in picture.targets]
    return [Section("How late messages were", [*parts, Table(columns, rows)])]


def _failovers(picture: Picture) -> Marks:
    return Marks(
        failover_marks(picture.epochs),
        "the longest pause between two deliveries near it; where little is due, a pause says little.",
    )


def _timeline(picture: Picture, marks: Marks) -> list[Section]:
    if not picture.timeline.bars:
        return []
    words = (
        f"Messages delivered in each {duration(picture.timeline.bucket_ms)}, by leader, with every failover."
    )
    note = f"Dotted: a new epoch, which is a new leader or the same one after a doubt. Red: {marks.meaning}"
    plot = Figure(timeline_figure(picture.timeline, picture.epochs, marks.marks), words)
    return [Section("When messages were delivered", [plot, Paragraph(note)])]


def _epochs(picture: Picture) -> list[Section]:
    if not picture.epochs:
        return []
    numbers = {"lane", "epoch", "transactions", "messages", "gap, ms", "latest, ms"}
    headings = [
        "lane",
        "epoch",
        "leader",
        "from (UTC)",
        "to",
        "transactions",
        "messages",
        "gap, ms",
        "latest, ms",
    ]
    rows = [
        (
            one.lane, one.epoch, one.node, shown(one.from_ms), shown(one.to_ms), one.transactions,
            one.messages, one.gap_ms, one.late_ms,
        )
        for one in picture.epochs
    ]  # fmt: skip
    note = (
        f"Gap: the longest pause between two deliveries within {duration(REACH_MS)} of the change; latest: "
        "the greatest lateness there. No transactions: compaction has taken some of the epoch's checkpoints."
    )
    parts: list[Part] = [
        Table([Column(name, number=name in numbers) for name in headings], rows),
        Paragraph(note),
    ]
    if more := picture.epochs_in_all - len(picture.epochs):
        parts.append(Paragraph(f"{more:,} older ones are not shown."))
    return [Section("Epochs", parts)]
