"""A forecast in sentences, for the terminal and the page."""

from __future__ import annotations

from delayline.times import DAY_MS, MINUTE_MS, render_time
from pipeline.forecast.disk import Disk
from pipeline.forecast.forecast import Forecast, Peak
from pipeline.forecast.horizon import HOUR_MS
from pipeline.forecast.model import BAND
from pipeline.forecast.report import minute_at, name_of


def shown(at_ms: int) -> str:
    """A time in UTC to the minute, as people read it."""
    return render_time(at_ms).replace("T", " ")[:16]


def basis(forecast: Forecast) -> str:
    """What the part is made from that is not known yet."""
    back, since_ms = forecast.counts.shifts, forecast.counts.since_ms
    if since_ms is None:
        return "The log is empty: nothing is known of what is still to come."
    history = f"the log has all requests since {shown(since_ms)}"
    if back is None:
        return (
            f"What is still to come is not in it: {history}, which is too short to tell (two days and as much"
            " as is forecast)."
        )
    if forecast.basis == "days":
        return (
            f"What is still to come goes by the last {back.count} days, for {history}. Less than two weeks"
            " tell little of days of the week: the band is as wide as days differ."
        )
    return f"What is still to come goes by the same stretch of the last {back.count} weeks: {history}."


def in_all(forecast: Forecast) -> str:
    """How much there is."""
    waiting, until = forecast.counts.waiting, shown(forecast.horizon.end_ms)
    parts = [f"{sum(forecast.known) - sum(forecast.chains):,} wait already"]
    if chains := sum(forecast.chains):
        parts.append(f"{chains:,} are of recurring ones")
    if forecast.basis != "none":
        parts.append(f"{sum(forecast.fresh):,.0f} are still to come")
    beside = [f"{waiting.overdue:,} are overdue"] if waiting.overdue else []
    beside += [f"{waiting.held:,} are held by pauses"] if waiting.held else []
    more = f" Besides, {' and '.join(beside)}." if beside else ""
    return (
        f"{sum(forecast.minutes.expected):,.0f} messages are expected to fall due until {until} UTC:"
        f" {', '.join(parts)}.{more}"
    )


def thinned(forecast: Forecast) -> str | None:
    """What is expected to be cancelled or moved away."""
    if forecast.basis == "none":
        return None
    kept = ", ".join(f"{share:.1%}" for share in forecast.came)
    return (
        f"Of what waited up to an hour, six hours, a day, and longer yet, {kept} came: the rest was cancelled"
        " or moved. What is known is thinned out by that. Recurring messages are taken to go on."
    )


def measured(forecast: Forecast) -> str | None:
    """Where the capacity is from, if nobody has given it."""
    if forecast.capacity is None or forecast.capacity.given:
        return None
    return (
        "What the lanes can do is the most that they were seen to deliver in ten seconds: if they were never"
        " busy, they can do more. --capacity says it."
    )


def behind(peak: Peak, most: int = 3) -> str:
    """The targets behind a peak."""
    shown_ = [f"{name_of(target)} {count:,.0f}" for target, count in peak.targets[:most]]
    more = len(peak.targets) - len(shown_)
    return ", ".join(shown_) + (f", and {more} more" if more else "")


def verdict(forecast: Forecast) -> tuple[str, bool]:
    """Whether the lanes can do it; and whether that is good."""
    capacity, late = forecast.capacity, forecast.late_at_most
    if capacity is None or late is None:
        return "Nothing is known of what the lanes can do: say it with --capacity", True
    can = f"{count(capacity.per_s)} messages a second"
    most_s = max(late.late_s, default=0.0)
    if not forecast.over and most_s < 1.0:
        return (
            f"It fits: never above {can}, which the lanes {'can' if capacity.given else 'have shown'}",
            True,
        )
    minute = max(range(len(late.late_s)), key=late.late_s.__getitem__)
    at = minute_at(forecast, minute).replace("T", " ")[:16]
    late_by = f"messages are late by up to {lateness(most_s)}, at {at}"
    if not forecast.over:
        return f"It fits, but in bursts {late_by}, at {can}", False
    minutes = "1 minute" if len(forecast.over) == 1 else f"{len(forecast.over):,} minutes"
    above = f"{minutes} may be above {can}"
    seen = "" if capacity.given else ", the most that the lanes were seen to do"
    return f"{above}{seen}: {late_by}", False


def lateness(seconds: float) -> str:
    """In its largest unit."""
    for size_ms, unit in ((DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "min")):
        if seconds * 1_000 >= size_ms:
            return f"{seconds * 1_000 / size_ms:.1f} {unit}"
    return f"{seconds:.1f} s"


def when_full(disk: Disk) -> str:
    """The day on which it is full."""
    if disk.full_at_ms is None:
        return "not within the horizon"
    return f"full on {shown(disk.full_at_ms)}"


def count(value: float) -> str:
    """What is expected: below ten, tenths count."""
    return f"{value:,.1f}" if value < 10 else f"{value:,.0f}"


def band() -> str:
    """What the band is."""
    return f"{BAND:.0%} band"


def size(count_bytes: float) -> str:
    """In GiB, or below one in MiB; what is given back has a minus."""
    gib = count_bytes / (1 << 30)
    return f"{gib:,.1f} GiB" if abs(gib) >= 1 else f"{count_bytes / (1 << 20):,.1f} MiB"
