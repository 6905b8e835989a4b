"""What can be wrong with a message that is to come again and again."""

from __future__ import annotations

from delayline.headers import (
    H_AFTER,
    H_CRON,
    H_DELIVER_AT,
    H_EXPIRE_AT,
    H_INTERVAL,
    H_INTERVAL_FACTOR,
    H_MISSED,
    H_TIME_ZONE,
    H_TIMES,
    H_UNTIL,
)
from tests.bad_input.odd_values import ODD_TIMES, PAST_TIMES, odd_numbers
from tests.bad_input.row import (
    TARGET,
    Delivered,
    Fate,
    RawHeader,
    Rejected,
    Row,
    Undelivered,
    not_once,
    values_of,
)

CRON: RawHeader = (H_CRON, b"0 9 * * MON-FRI")
EVERY: RawHeader = (H_INTERVAL, b"1s")
ONCE: RawHeader = (H_TIMES, b"1")
BASE = (TARGET, EVERY)

_FIRST = Delivered(after_ms=1_000, occurrence=1)


def recurring() -> list[Row]:
    """All of them; what is no mistake is delivered once."""
    return [*_cron(), *_interval(), *_factor(), *_times(), *_until(), *_time_zone(), *_missed(), *_together()]


def _cron() -> list[Row]:
    odd = {
        "empty": b"",
        "a space": b" ",
        "four fields": b"* * * *",
        "seven fields": b"* * * * * * *",
        "minute 60": b"60 * * * *",
        "hour 24": b"0 24 * * *",
        "day 0": b"0 0 0 * *",
        "day 32": b"0 0 32 * *",
        "month 13": b"0 0 1 13 *",
        "weekday 8": b"0 0 * * 8",
        "a step of 0": b"*/0 * * * *",
        "a range backwards": b"5-1 * * * *",
        "a gap in a list": b"1,,2 * * * *",
        "negative": b"-1 * * * *",
        "a fraction": b"0.5 * * * *",
        "a nickname": b"@daily",
        "a month's full name": b"0 0 1 JANUARY *",
        "30 February": b"0 0 30 2 *",
        "the last Monday, on the 1st or 21st": b"* * */20 * 1L",
        "full-width digits": "\uff11 * * * *".encode(),
        "not UTF-8": b"\xff * * * *",
        "a zero byte": b"0 0 * * *\x00",
        "129 characters": b"0," * 60 + b"0 * * * *",
        "100,000 characters": b"0" * 100_000,
    }
    return [*values_of(H_CRON, odd, Rejected("bad-cron"), (TARGET,)), *not_once(*_plain(CRON), (TARGET,))]


def _plain(header: RawHeader) -> tuple[str, bytes]:
    name, value = header
    assert isinstance(name, str), "a header of the service's"
    assert value is not None, "with a value"
    return name, value


def _interval() -> list[Row]:
    odd = odd_numbers(b"1s") | {
        "no unit": b"1",
        "negative": b"-1s",
        "zero": b"0s",
        "999 ms": b"999ms",
        "almost a second": b"0.9989s",
        "ISO 8601 month": b"P1M",
        "a cron expression": b"* * * * *",
    }
    base = (TARGET, ONCE)
    return [
        *values_of(H_INTERVAL, odd, Rejected("bad-interval"), base),
        *values_of(H_INTERVAL, {"367 days": b"367d"}, Rejected("delay-too-long"), base),
        *not_once(H_INTERVAL, b"1s", base),
        *values_of(H_INTERVAL, {"the shortest": b"1s", "rounded up": b"999.1ms"}, _FIRST, base),
    ]


def _factor() -> list[Row]:
    odd = {label: raw for label, raw in odd_numbers(b"2").items() if label != "decimal point"} | {
        "zero": b"0",
        "below one": b"0.999",
        "above a thousand": b"1000.001",
        "four decimals": b"1.0001",
        "no digits behind the point": b"2.",
        "negative": b"-2",
    }
    good = {"one": b"1", "three decimals": b"1.001", "a thousand": b"1000"}
    base = (TARGET, EVERY, ONCE)
    return [
        *values_of(H_INTERVAL_FACTOR, odd, Rejected("bad-interval-factor"), base),
        *not_once(H_INTERVAL_FACTOR, b"2", base),
        *values_of(H_INTERVAL_FACTOR, good, _FIRST, base),
        Row(
            group=H_INTERVAL_FACTOR,
            label="thousands of intervals in the past",
            base=base,
            odd=((H_INTERVAL_FACTOR, b"1.001"), (H_DELIVER_AT, b"0")),
            fate=Rejected("bad-interval-factor"),
        ),
    ]


def _times() -> list[Row]:
    odd = odd_numbers(b"1") | {"zero": b"0", "negative": b"-1", "one more than a million": b"1000001"}
    return [
        *values_of(H_TIMES, odd, Rejected("bad-times"), BASE),
        *not_once(H_TIMES, b"1", BASE),
        *values_of(H_TIMES, {"zeros in front": b"001"}, _FIRST, BASE),
    ]


def _until() -> list[Row]:
    past = {label: raw for label, (raw, _) in PAST_TIMES.items()}
    both_past = (H_DELIVER_AT, b"5"), (H_UNTIL, b"5")
    return [
        *values_of(H_UNTIL, ODD_TIMES, Rejected("bad-until"), BASE),
        *not_once(H_UNTIL, b"0", BASE),
        *values_of(H_UNTIL, past, Rejected("no-occurrence"), BASE),
        Row(
            group=H_UNTIL,
            label="the time at which it starts, in the past",
            base=(TARGET, EVERY),
            odd=both_past,
            fate=Rejected("no-occurrence"),
        ),
        Row(
            group=H_UNTIL,
            label="in the past, of a cron expression",
            base=(TARGET, CRON),
            odd=((H_UNTIL, b"5"),),
            fate=Undelivered("no-occurrence", "delay-cron fires at no time from"),
        ),
    ]


def _time_zone() -> list[Row]:
    odd = {
        "empty": b"",
        "a space": b" ",
        "a space in it": b"Europe/New York",
        "a path": b"../../etc/passwd",
        "an absolute path": b"/etc/localtime",
        "an offset": b"+01:00",
        "not ASCII": "Europe/Z\u00fcrich".encode(),
        "not UTF-8": b"\xff",
        "a zero byte": b"Europe/Berlin\x00",
        "129 characters": b"E" * 129,
    }
    unknown = {
        "no such city": b"Europe/Nowhere",
        "a folder": b"Europe",
        "an abbreviation that is none": b"XYZT",
        "an abbreviation and an offset": b"CET+01",
    }
    none_such = Undelivered("bad-time-zone", "is no time zone that this node knows")
    base = (TARGET, CRON, ONCE)
    return [
        *values_of(H_TIME_ZONE, odd, Rejected("bad-time-zone"), base),
        *not_once(H_TIME_ZONE, b"Europe/Berlin", base),
        *values_of(H_TIME_ZONE, unknown, none_such, base),
    ]


def _missed() -> list[Row]:
    odd = {
        "empty": b"",
        "a space": b" ",
        "capital letters": b"ALL",
        "another word": b"none",
        "two of them": b"all,latest",
        "not UTF-8": b"\xff",
    }
    base = (TARGET, EVERY, ONCE)
    return [
        *values_of(H_MISSED, odd, Rejected("bad-missed"), base),
        *not_once(H_MISSED, b"all", base),
        *values_of(H_MISSED, {"spelt out": b"all"}, _FIRST, base),
    ]


def _together() -> list[Row]:
    group = "Recurring messages"
    alone: tuple[RawHeader, ...] = (
        (H_TIME_ZONE, b"UTC"),
        (H_INTERVAL_FACTOR, b"2"),
        ONCE,
        (H_UNTIL, b"2099-01-01T00:00:00Z"),
        (H_MISSED, b"all"),
    )
    bad, not_allowed = Rejected("bad-recurrence"), Rejected("header-not-allowed")
    too_far = Rejected("delay-too-long")
    expiry: RawHeader = (H_EXPIRE_AT, b"2099-01-01T00:00:00Z")

    def row(label: str, fate: Fate, *odd: RawHeader) -> Row:
        return Row(group=group, label=label, odd=odd, fate=fate)

    return [
        row("both", bad, CRON, EVERY),
        row("an interval with nothing to end it by", bad, EVERY),
        row("cron with nothing to end it by", bad, CRON),
        *(row(f"{_plain(header)[0]} alone", bad, header) for header in alone),
        row("a time zone without cron", bad, EVERY, alone[0]),
        row("a factor without an interval", bad, CRON, alone[1]),
        row("an expiry with an interval", not_allowed, EVERY, expiry),
        row("an expiry with cron", not_allowed, CRON, expiry),
        row("a start 367 days ahead, of a cron expression", too_far, CRON, ONCE, (H_AFTER, b"367d")),
        row("two times", Rejected("time-conflict"), EVERY, (H_AFTER, b"1s"), (H_DELIVER_AT, b"5")),
        row("a start", Delivered(after_ms=10, occurrence=1), EVERY, ONCE, (H_AFTER, b"10ms")),
    ]
