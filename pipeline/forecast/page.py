"""The forecast's page: whether it fits, then what it is made of, down to targets and disks."""

from __future__ import annotations

from delayline.times import MINUTE_MS
from pipeline.forecast import words
from pipeline.forecast.figures import disk_figure, hours_figure, minutes_figure, targets_figure
from pipeline.forecast.forecast import Forecast, Peak
from pipeline.forecast.report import name_of
from pipeline.page import Cell, Column, Facts, Figure, Headline, Page, Paragraph, Section, Table

MOST_OVER = 20


def forecast_page(forecast: Forecast) -> Page:
    """The page of a forecast."""
    text, fits = words.verdict(forecast)
    until = words.shown(forecast.horizon.end_ms)
    subtitle = f"cluster {forecast.cluster}, {words.shown(forecast.horizon.now_ms)} to {until} UTC"
    return Page(
        "delayline forecast",
        subtitle,
        Headline(text, "good" if fits else "bad"),
        [
            Section("In short", [_in_short(forecast), *_notes(forecast)]),
            Section("What falls due in each hour", [_hours(forecast)]),
            Section("Minute by minute", [_minutes(forecast)]),
            *_over(forecast),
            Section("The busiest minutes", [_peaks(forecast)]),
            *_targets(forecast),
            *_disks(forecast),
        ],
    )


def _in_short(forecast: Forecast) -> Facts:
    waiting, capacity = forecast.counts.waiting, forecast.capacity
    facts: dict[str, str | int | None] = {
        "pending in all": waiting.messages,
        "overdue": waiting.overdue,
        "held by pauses": waiting.held or None,
        "known in these days": sum(forecast.known),
        "of them recurring": sum(forecast.chains) or None,
        "still to come": f"{sum(forecast.fresh):,.0f}" if forecast.basis != "none" else None,
        "expected in all": f"{sum(forecast.minutes.expected):,.0f}",
        "the lanes can do": None if capacity is None else f"{capacity.per_s:,.0f}/s",
    }
    return Facts({name: value for name, value in facts.items() if value is not None})


def _notes(forecast: Forecast) -> list[Paragraph]:
    notes = [words.basis(forecast), words.thinned(forecast), words.measured(forecast)]
    return [Paragraph(note) for note in notes if note is not None]


def _hours(forecast: Forecast) -> Figure:
    return Figure(
        hours_figure(forecast),
        f"Messages due in each hour: known, expected, and the {words.band()}. Expected in all:"
        f" {sum(forecast.hours.expected):,.0f}.",
    )


def _minutes(forecast: Forecast) -> Figure:
    most = max(forecast.minutes.high)
    return Figure(
        minutes_figure(forecast),
        f"Messages due in each minute: known, expected, and the {words.band()}. Its upper edge is"
        f" {most:,.0f} at most.",
    )


def _over(forecast: Forecast) -> list[Section]:
    late = forecast.late_at_most
    if not forecast.over or late is None:
        return []
    columns = [
        Column("minute (UTC)"),
        *(Column(name, number=True) for name in ("expected", "at most", "late by, at most")),
    ]
    rows = [
        (
            _at(forecast, minute),
            words.count(forecast.minutes.expected[minute]),
            words.count(forecast.minutes.high[minute]),
            Cell(words.lateness(late.late_s[minute]), "bad"),
        )
        for minute in forecast.over[:MOST_OVER]
    ]
    found = [Table(columns, rows)]
    more = len(forecast.over) - len(rows)
    notes = [Paragraph(f"{more:,} more of them: --csv has all minutes.")] if more else []
    return [Section("Minutes above what the lanes can do", [*found, *notes])]


def _peaks(forecast: Forecast) -> Table:
    columns = [
        Column("minute (UTC)"),
        *(Column(name, number=True) for name in ("known", "expected", "at most", "late by, at most")),
        Column("targets behind its hour"),
    ]
    return Table(columns, [_peak(forecast, peak) for peak in forecast.peaks])


def _peak(forecast: Forecast, peak: Peak) -> tuple[str | int | None, ...]:
    late = forecast.late_at_most
    return (
        _at(forecast, peak.minute),
        forecast.known[peak.minute],
        words.count(forecast.minutes.expected[peak.minute]),
        words.count(forecast.minutes.high[peak.minute]),
        None if late is None else words.lateness(late.late_s[peak.minute]),
        words.behind(peak),
    )


def _targets(forecast: Forecast) -> list[Section]:
    if not forecast.targets:
        return []
    sums: dict[str, float] = {}
    for (_, target), count in forecast.targets.items():
        sums[name_of(target)] = sums.get(name_of(target), 0.0) + count
    rows = [(name, words.count(count)) for name, count in sorted(sums.items(), key=lambda pair: -pair[1])]
    table = Table([Column("target"), Column("expected", number=True)], rows)
    plot = Figure(targets_figure(forecast), "Messages expected in each hour, by target.")
    return [Section("Targets", [plot, table])]


def _disks(forecast: Forecast) -> list[Section]:
    if not forecast.disks:
        return []
    columns = [
        Column("disk"), Column("of"), Column("free now", number=True), Column("more by the end", number=True),
        Column("when it is full"),
    ]  # fmt: skip
    rows = [
        (
            disk.where,
            disk.part,
            words.size(disk.free_bytes),
            words.size(disk.added_bytes[-1]),
            Cell(words.when_full(disk), "plain" if disk.full_at_ms is None else "bad"),
        )
        for disk in forecast.disks
    ]
    plot = Figure(disk_figure(forecast, forecast.disks), "What is left free of each disk, hour by hour.")
    note = Paragraph(
        "Only the buffer and the nodes' views grow here: targets and whatever else is there do not."
    )
    return [Section("Disks", [Table(columns, rows), plot, note])]


def _at(forecast: Forecast, minute: int) -> str:
    return words.shown((forecast.horizon.first_minute + minute) * MINUTE_MS)
