"""The table. The order of groups and rows is the page's (docs/bad-input.md)."""

from __future__ import annotations

from itertools import combinations
from typing import Final

from delayline.headers import (
    H_AFTER,
    H_AS_OF,
    H_ATTEMPT,
    H_DELIVER_AT,
    H_ERROR,
    H_EXPIRE_AT,
    H_ID,
    H_IF_EXISTS,
    H_LEVEL,
    H_MOVED_BY,
    H_OCCURRENCE,
    H_OP,
    H_PARENT,
    H_ROOT,
    H_SCHEDULED_FOR,
    H_SIGNATURE,
    H_SOURCE,
    H_TARGET_KEY,
    H_TARGET_PARTITION,
    H_TARGET_TOPIC,
)
from tests.bad_input.odd_values import ODD_TIMES, PAST_TIMES, odd_numbers
from tests.bad_input.recurring import recurring
from tests.bad_input.row import (
    TARGET,
    Answered,
    Delivered,
    Fate,
    RawHeader,
    Rejected,
    Row,
    Undelivered,
    not_once,
    values_of,
)

KEPT_ID: Final = "kept"
"""The id of a sound message that is pending all the while: nothing in the table may touch it."""

KEPT: RawHeader = (H_ID, KEPT_ID.encode())
CANCEL: RawHeader = (H_OP, b"cancel")
RESCHEDULE: RawHeader = (H_OP, b"reschedule")
PARENT: RawHeader = (H_PARENT, b"2")
ROOT: RawHeader = (H_ROOT, b"{cluster}.buffer/0/0")
AS_OF: RawHeader = (H_AS_OF, b"3.3")
MOST: Final = b"9223372036854775807"


def _no_request() -> list[Row]:
    def garbage(label: str, value: bytes | None, *odd: RawHeader, key: bytes | None = b"k") -> Row:
        fate = Rejected("no-target")
        return Row(group="No request at all", label=label, base=(), odd=odd, key=key, value=value, fate=fate)

    return [
        garbage("no headers", b"hello"),
        garbage("nothing at all", None, key=None),
        garbage("random bytes", bytes(range(255, -1, -1)), key=b"\xff\x00\xfe"),
        garbage("a JSON document", b'{"delay-target-topic": "orders", "delay-after": "1h"}'),
        garbage("headers of another system", b"v", ("ce_id", b"1"), ("DELAY", b"3")),
        garbage("a time and no target", b"v", (H_AFTER, b"1s")),
        garbage("an id and no target", b"v", KEPT),
    ]


def _op() -> list[Row]:
    odd = {
        "empty": b"",
        "a space": b" ",
        "capital letters": b"CANCEL",
        "a space behind it": b"cancel ",
        "a line end behind it": b"cancel\n",
        "another word": b"delete",
        "a number": b"1",
        "not UTF-8": b"\xff",
        "long": b"x" * 5_000,
    }
    base = (TARGET, KEPT)
    return [
        *values_of(H_OP, odd, Rejected("bad-op"), base),
        *not_once(H_OP, b"cancel", base),
        *values_of(H_OP, {"spelt out": b"schedule"}, Delivered()),
    ]


def _target_topic() -> list[Row]:
    name = H_TARGET_TOPIC
    odd = {
        "empty": b"",
        "a space": b" ",
        "a space before it": b" {targets}.orders",
        "a space behind it": b"{targets}.orders ",
        "a line end behind it": b"{targets}.orders\n",
        "a zero byte behind it": b"{targets}.orders\x00",
        "a slash": b"{targets}/orders",
        "two topics": b"{targets}.orders,{targets}.orders",
        "a dot": b".",
        "two dots": b"..",
        "a path": b"../orders",
        "250 characters": b"{250}",
        "300 characters": b"{300}",
        "not ASCII": "{targets}.aufträge".encode(),
        "full-width letters": "{targets}.\uff4f".encode(),
        "not UTF-8": b"\xff\xfe",
    }
    forbidden = {
        "the buffer": b"{cluster}.buffer",
        "the checkpoints": b"{cluster}.checkpoint",
        "the outcomes": b"{cluster}.outcomes",
        "the dead letters": b"{cluster}.dead-letter",
        "the settings": b"{cluster}.settings",
        "what a watch has found": b"{cluster}.audit",
        "what exports have asked for": b"{cluster}.export",
        "how far imports are": b"{cluster}.import",
        "Kafka's offsets": b"__consumer_offsets",
        "Kafka's transactions": b"__transaction_state",
        "not on the allow-list": b"elsewhere",
        "almost on the allow-list": b"{targets}-orders",
    }
    missing = {
        "a topic that is not there": b"{targets}.nowhere",
        "capital letters": b"{targets}.ORDERS",
        "248 characters, not there": b"{248}",
    }
    not_there = Undelivered("target-missing", "does not exist, or this node may not see it")
    no_key = Undelivered("undeliverable", "is compacted: it takes no message without a key")
    compacted = (name, b"{targets}.compacted")
    return [
        *values_of(name, odd, Rejected("bad-target-topic"), ()),
        *values_of(name, forbidden, Rejected("target-forbidden"), ()),
        *values_of(name, missing, not_there, ()),
        *not_once(name, b"{targets}.orders", ()),
        Row(group=name, label="compacted, no key", base=(), odd=(compacted,), key=None, fate=no_key),
        *values_of(name, {"249 characters": b"{249}"}, Delivered(), ()),
    ]


def _target_key() -> list[Row]:
    name = H_TARGET_KEY
    keys = {"empty": b"", "a space": b" ", "not UTF-8": b"\xff\x00", "2,000 bytes": b"k" * 2_000}
    good = (name, b"key")
    twice = Rejected("duplicate-header")
    return [
        *(
            Row(group=name, label=label, odd=((name, key),), fate=Delivered(key=(key,)))
            for label, key in keys.items()
        ),
        Row(group=name, label="null", odd=((name, None),), fate=Delivered(key=(None,))),
        Row(group=name, label="twice", odd=(good, good), fate=twice),
        Row(group=name, label="twice, once null", odd=(good, (name, None)), fate=twice),
        Row(group=name, label="twice null", odd=((name, None), (name, None)), fate=twice),
    ]


def _target_partition() -> list[Row]:
    name = H_TARGET_PARTITION
    odd = odd_numbers(b"0") | {"negative": b"-1", "2^31": b"2147483648"}
    none_such = Undelivered("target-partition", "has 2 partitions, there is no ")
    return [
        *values_of(name, odd, Rejected("bad-target-partition")),
        *not_once(name, b"0"),
        *values_of(name, {"one too many": b"2", "2^31 - 1": b"2147483647"}, none_such),
        *values_of(name, {"the last one": b"1", "zeros in front": b"0001"}, Delivered(partition=1)),
    ]


def _deliver_at() -> list[Row]:
    name = H_DELIVER_AT
    far = {"year 9999": b"9999-12-31T23:59:59Z", "2^63 - 1": MOST, "microseconds": b"1577836800000000"}
    return [
        *values_of(name, ODD_TIMES, Rejected("bad-deliver-at")),
        *not_once(name, b"0"),
        *values_of(name, far, Rejected("delay-too-long")),
        *(
            Row(group=name, label=label, odd=((name, raw),), fate=Delivered(scheduled_for_ms=ms))
            for label, (raw, ms) in PAST_TIMES.items()
        ),
    ]


def _after() -> list[Row]:
    name = H_AFTER
    odd = odd_numbers(b"1s") | {
        "no unit": b"1",
        "a unit alone": b"s",
        "negative": b"-1s",
        "a space between": b"1 s",
        "capital letter": b"1S",
        "an unknown unit": b"1w",
        "a word": b"1 hour",
        "a clock's time": b"01:30:00",
        "small before large": b"30m1h",
        "a unit twice": b"1h1h",
        "a fraction before the smallest unit": b"1.5h30m",
        "a fraction without digits": b"1.s",
        "Arabic-Indic digits and a unit": "\u0661s".encode(),
        "full-width digits and a unit": "\uff11s".encode(),
        "ISO 8601 without a number": b"P",
        "ISO 8601 without a time": b"PT",
        "ISO 8601, no T": b"P30M",
        "ISO 8601 year": b"P1Y",
        "ISO 8601 month": b"P1M",
        "ISO 8601 negative": b"-PT1S",
        "ISO 8601 in small letters": b"pt1s",
        "ISO 8601 weeks and days": b"P1W1D",
        "a time": b"2020-01-01T00:00:00Z",
        "2^63 ms": b"9223372036854775808ms",
        "2^64 days": b"18446744073709551616d",
        "2^63 weeks": b"P9223372036854775808W",
        "long": b"1s" * 500,
    }
    far = {"one ms over the longest": b"31622400001ms", "2^63 - 1 ms": MOST + b"ms", "367 days": b"367d"}
    none = {"zero": b"0s", "zero in ISO 8601": b"PT0S", "zeros in front": b"000000ms"}
    one = {"a part of a millisecond": b"0.0001ms", "a fraction": b"0.001s", "a comma": b"PT0,001S"}
    return [
        *values_of(name, odd, Rejected("bad-after")),
        *not_once(name, b"1s"),
        *values_of(name, far, Rejected("delay-too-long")),
        *values_of(name, none, Delivered()),
        *values_of(name, one, Delivered(after_ms=1)),
    ]


def _level() -> list[Row]:
    name = H_LEVEL
    odd = odd_numbers(b"1") | {
        "minus alone": b"-",
        "a space behind the minus": b"- 1",
        "minus and plus": b"-+1",
        "a duration": b"1s",
        "-2^63": b"-9223372036854775808",
    }
    none = {"zero": b"0", "minus zero": b"-0", "negative": b"-1", "-2^63 + 1": b"-" + MOST}
    last = {"above the last": b"3", "2^63 - 1": MOST}
    return [
        *values_of(name, odd, Rejected("bad-level")),
        *not_once(name, b"1"),
        *values_of(name, none, Delivered()),
        *values_of(name, {"zeros in front": b"001"}, Delivered(after_ms=100)),
        *values_of(name, last, Delivered(after_ms=200)),
    ]


def _time_conflict() -> list[Row]:
    at, after, level = (H_DELIVER_AT, b"0"), (H_AFTER, b"1s"), (H_LEVEL, b"1")
    group, fate = "More than one time", Rejected("time-conflict")
    junk = ((H_DELIVER_AT, b"junk"), (H_LEVEL, b""))
    several = [*combinations((at, after, level), 2), (at, after, level), junk]
    return [
        Row(group=group, label=label, base=base, odd=odd, fate=fate)
        for base, of in (((TARGET,), ""), ((RESCHEDULE, KEPT), ", of a reschedule"))
        for odd in several
        for label in [" and ".join(name for name, _ in odd) + (", both wrong" if odd is junk else "") + of]
    ]


def _id() -> list[Row]:
    name = H_ID
    odd = {
        "empty": b"",
        "1,025 bytes": b"i" * 1_025,
        "513 characters of two bytes": "ä".encode() * 513,
        "100,000 bytes": b"i" * 100_000,
        "not UTF-8": b"\xff",
        "half a character": b"id-\xc3",
        "a surrogate": b"\xed\xa0\x80",
        "an overlong zero": b"\xc0\x80",
    }
    wrong = Rejected("wrong-partition")
    bases = {"": (TARGET,), ", of a cancel": (CANCEL,), ", of a reschedule": (RESCHEDULE,)}
    good = {
        "a space": b" ",
        "a zero byte": b"\x00",
        "a line end": b"a\nb",
        "capital letters": b"KEPT",
        "spaces around it": b" kept ",
        "1,024 bytes": b"i" * 1_024,
        "not ASCII": "bestellung-ä".encode(),
    }
    rows = [
        Row(group=name, label=label + of, base=base, odd=((name, raw),), fate=Rejected("bad-id"))
        for of, base in bases.items()
        for label, raw in odd.items()
    ]
    rows += [
        Row(group=name, label="another partition" + of, base=base, odd=(KEPT,), fate=wrong, misplaced=True)
        for of, base in bases.items()
    ]
    return [*rows, *not_once(name, b"kept"), *values_of(name, good, Delivered())]


def _if_exists() -> list[Row]:
    name = H_IF_EXISTS
    odd = {
        "empty": b"",
        "a space behind it": b"keep ",
        "capital letters": b"KEEP",
        "another word": b"ignore",
        "not UTF-8": b"\xff",
    }
    fresh: RawHeader = (H_ID, b"fresh")
    values = {"replace": b"replace", "keep": b"keep"}
    return [
        *values_of(name, odd, Rejected("bad-if-exists"), (TARGET, KEPT)),
        *not_once(name, b"keep", (TARGET, KEPT)),
        *(
            Row(group=name, label=f"{label}, no id", odd=((name, raw),), fate=Rejected("no-id"))
            for label, raw in values.items()
        ),
        Row(group=name, label="keep, a new id", odd=(fresh, (name, b"keep")), fate=Delivered()),
        Row(group=name, label="keep, known", odd=(KEPT, (name, b"keep")), fate=Answered("duplicate")),
    ]


def _expire_at() -> list[Row]:
    name = H_EXPIRE_AT
    past = {label: raw for label, (raw, _) in PAST_TIMES.items()}
    far = {"year 9999": b"9999-12-31T23:59:59.9999Z", "2^63 - 1": MOST}
    expired = Undelivered("expired", "the message came up for delivery at")
    before = ((H_AFTER, b"50ms"), (name, b"0"))
    return [
        *values_of(name, ODD_TIMES, Rejected("bad-expire-at")),
        *not_once(name, b"0"),
        *values_of(name, past, expired),
        Row(group=name, label="before the time of delivery", odd=before, fate=expired),
        *values_of(name, far, Delivered()),
    ]


def _origin() -> list[Row]:
    """What the service writes for itself, forged."""
    group = "`delay-parent` and what goes with it"
    bad = Rejected("bad-parent")

    def row(label: str, fate: Fate, *odd: RawHeader) -> Row:
        return Row(group=group, label=label, odd=odd, fate=fate)

    parents = odd_numbers(b"2") | {"negative": b"-1", "after its request": MOST}
    roots = {
        "empty": b"",
        "an offset alone": b"0",
        "another topic": b"elsewhere/0/0",
        "another partition": b"{cluster}.buffer/1/0",
        "after the parent": b"{cluster}.buffer/0/3",
        "a sign": b"{cluster}.buffer/0/+0",
        "no offset": b"{cluster}.buffer/0/",
        "not UTF-8": b"\xff",
    }
    counts = odd_numbers(b"1") | {"negative": b"-1", "zero": b"0"}
    signatures = {
        "empty": b"",
        "a key without a signature": b"0badc0de" * 3 + b":",
        "of a key that nobody has": b"0badc0de" * 3 + b":" + b"0" * 32,
        "not UTF-8": b"\xff" * 41,
    }
    ignored = (H_ROOT, H_ATTEMPT, H_OCCURRENCE, H_SOURCE, H_SCHEDULED_FOR)
    return [
        row("a parent alone", bad, PARENT),
        *(row(f"parent: {label}", bad, (H_PARENT, raw), ROOT) for label, raw in parents.items()),
        *(row(f"root: {label}", bad, PARENT, (H_ROOT, raw)) for label, raw in roots.items()),
        *(row(f"attempt: {label}", bad, PARENT, ROOT, (H_ATTEMPT, raw)) for label, raw in counts.items()),
        row("attempt: 2^31", bad, PARENT, ROOT, (H_ATTEMPT, b"2147483648")),
        *(row(f"occurrence: {x}", bad, PARENT, ROOT, (H_OCCURRENCE, raw)) for x, raw in counts.items()),
        row("parent twice", Rejected("duplicate-header"), PARENT, PARENT, ROOT),
        row("parent null", Rejected("null-header"), (H_PARENT, None), ROOT),
        row("root twice", Rejected("duplicate-header"), PARENT, ROOT, ROOT),
        row("attempt null", Rejected("null-header"), PARENT, ROOT, (H_ATTEMPT, None)),
        row("too long a delay", bad, PARENT, ROOT, (H_AFTER, MOST + b"ms")),
        row("all forged well, unsigned", bad, PARENT, ROOT, AS_OF),
        row("moved-by, unsigned", bad, PARENT, ROOT, (H_MOVED_BY, b"1")),
        row("moved-by, all forged well, unsigned", bad, PARENT, ROOT, AS_OF, (H_MOVED_BY, b"1")),
        *(
            row(f"signature: {x}", bad, PARENT, ROOT, AS_OF, (H_SIGNATURE, raw))
            for x, raw in signatures.items()
        ),
        *(row(f"{name}, no parent", Delivered(), (name, b"junk")) for name in ignored),
        *(
            row(f"{name}, no parent", Rejected("unknown-header"), (name, b"1.1"))
            for name in (H_AS_OF, H_SIGNATURE, H_MOVED_BY)
        ),
        *(row(f"{name} twice, null, no parent", Delivered(), (name, b"1"), (name, None)) for name in ignored),
    ]


def _other_headers() -> list[Row]:
    group = "Other headers"
    unknown = (
        "delay-",
        "delay-x",
        "delay-After",
        "delay-AFTER",
        "delay-after ",
        "delay-time",
        "delay-crontab",
        "delay-repeat",
        "delay-ä",
        H_ERROR,
        "delay-" + "x" * 5_000,
    )
    own = (
        "Delay-After",
        "DELAY-AFTER",
        " delay-after",
        "delay",
        "delay_after",
        "x-delay-after",
        "",
        " ",
        "ä",
    )
    bad_key = Rejected("header-key")

    def row(label: str, fate: Fate, *odd: RawHeader) -> Row:
        return Row(group=group, label=label, odd=odd, fate=fate)

    return [
        *(row(f"unknown: {name[:20]!r}", Rejected("unknown-header"), (name, b"1s")) for name in unknown),
        row("unknown, null", Rejected("unknown-header"), ("delay-x", None)),
        row("unknown, twice", Rejected("unknown-header"), ("delay-x", b"1"), ("delay-x", b"2")),
        *(row(f"your own: {name!r}", Delivered(), (name, b"1s")) for name in own),
        row("your own, twice, null, binary", Delivered(), ("h", b"\xff\x00"), ("h", None), ("h", b"")),
        row("your own, 30,000 characters", Delivered(), ("h" * 30_000, b"1")),
        row("your own, 10,000 of them", Delivered(), *((f"h{n}", b"%d" % n) for n in range(10_000))),
        row("your own, 10,000 empty ones", Delivered(), *((("", b""),) * 10_000)),
        row("more than 20,000", Rejected("undecodable"), *((("", None),) * 20_000)),
        row("10,000 times the same", Rejected("duplicate-header"), *(((H_AFTER, b"1s"),) * 10_000)),
        row("a key that is not UTF-8", bad_key, (b"\xff\xfe", b"1")),
        row("a key that ends in half a character", bad_key, (b"trace-\xc3", b"1")),
        row("a key with a surrogate", bad_key, (b"delay-\xed\xa0\x80", b"1")),
        row("a key with a zero byte", bad_key, (b"trace\x00parent", b"1")),
        row("one key of three not UTF-8", bad_key, ("h", b"1"), (b"\xff", None), ("h", b"2")),
    ]


def _controls() -> list[Row]:
    group = "Cancel and reschedule"
    misfit = Rejected("header-not-allowed")
    places = (TARGET, (H_TARGET_KEY, b"k"), (H_TARGET_KEY, None), (H_TARGET_PARTITION, b"0"), PARENT)
    times = ((H_DELIVER_AT, b"0"), (H_AFTER, b"1s"), (H_LEVEL, b"1"), (H_EXPIRE_AT, b"0"))
    # A cancel, of nothing or not, overtakes the reschedules of its id that are looked at with it.
    nobody: RawHeader = (H_ID, b"nobody")
    none: RawHeader = (H_ID, b"none")
    ignored = ((H_ROOT, b"x"), (H_ATTEMPT, b"x"), (H_OCCURRENCE, b"x"), ("own", b"x"))
    forged, signature = Rejected("bad-parent"), (H_SIGNATURE, b"0badc0de" * 3 + b":" + b"0" * 32)

    def row(label: str, fate: Fate, *headers: RawHeader) -> Row:
        return Row(group=group, label=label, base=(), odd=headers, fate=fate)

    def shown(header: RawHeader) -> str:
        return f"{header[0]!s}{' null' if header[1] is None else ''}"

    return [
        *(row(f"cancel with {shown(x)}", misfit, CANCEL, KEPT, x) for x in (*places, *times)),
        *(row(f"reschedule with {shown(x)}", misfit, RESCHEDULE, KEPT, x) for x in places if x != PARENT),
        row("reschedule with delay-parent", forged, RESCHEDULE, KEPT, PARENT),
        row("reschedule with delay-parent and delay-root", forged, RESCHEDULE, KEPT, PARENT, ROOT),
        row("reschedule deferred, unsigned", forged, RESCHEDULE, KEPT, PARENT, ROOT, AS_OF),
        row(
            "reschedule deferred, of a key that nobody has",
            *(forged, RESCHEDULE, KEPT, PARENT, ROOT, AS_OF, signature),
        ),
        row("reschedule, delay-parent and a target", misfit, RESCHEDULE, KEPT, PARENT, ROOT, TARGET),
        *(
            row(f"reschedule with {name} alone", Rejected("unknown-header"), RESCHEDULE, KEPT, (name, b"1.1"))
            for name in (H_AS_OF, H_SIGNATURE, H_MOVED_BY)
        ),
        row("cancel without an id", Rejected("no-id"), CANCEL),
        row("reschedule without an id", Rejected("no-id"), RESCHEDULE, (H_AFTER, b"1s")),
        row("reschedule to no time", Rejected("bad-deliver-at"), RESCHEDULE, KEPT, (H_DELIVER_AT, b"soon")),
        row("reschedule by no delay", Rejected("bad-after"), RESCHEDULE, KEPT, (H_AFTER, b"-1s")),
        row("reschedule by no level", Rejected("bad-level"), RESCHEDULE, KEPT, (H_LEVEL, b"one")),
        row("reschedule, no expiry", Rejected("bad-expire-at"), RESCHEDULE, KEPT, (H_EXPIRE_AT, b"never")),
        row("reschedule too far", Rejected("delay-too-long"), RESCHEDULE, KEPT, (H_DELIVER_AT, MOST)),
        row("replace by an unknown header", Rejected("unknown-header"), TARGET, KEPT, ("delay-x", b"1")),
        row("replace without a target", Rejected("no-target"), KEPT, (H_AFTER, b"1s")),
        row("cancel of nothing", Answered("unknown"), CANCEL, none),
        row("reschedule of nothing", Answered("unknown"), RESCHEDULE, nobody, (H_AFTER, b"1s")),
        row("run now of nothing", Answered("unknown"), RESCHEDULE, nobody),
        row("cancel of nothing, ignored headers", Answered("unknown"), CANCEL, none, *ignored),
        row(
            "reschedule of nothing, ignored headers",
            Answered("unknown"),
            *(RESCHEDULE, nobody, (H_SOURCE, b"x"), *ignored),
        ),
    ]


def _by_source() -> list[Row]:
    """Cancels that name a source."""
    good = b"{cluster}.buffer/0/3"
    odd = {
        "empty": b"",
        "a space": b" ",
        "an offset alone": b"1",
        "no offset": b"{cluster}.buffer/0/",
        "a sign": b"{cluster}.buffer/0/+1",
        "a space behind it": good + b" ",
        "a fourth part": good + b"/1",
        "another topic": b"{cluster}.outcomes/0/1",
        "an offset of 20 digits": b"{cluster}.buffer/0/" + b"1" * 20,
        "after the cancel": b"{cluster}.buffer/0/" + MOST,
        "not UTF-8": b"\xff",
        "long": b"x" * 5_000,
    }
    group = f"A cancel with {H_SOURCE}"

    def row(label: str, fate: Fate, *headers: RawHeader) -> Row:
        return Row(group=group, label=label, base=(), odd=headers, fate=fate)

    own: RawHeader = (H_SOURCE, good)
    return [
        *(row(label, Rejected("bad-source"), CANCEL, (H_SOURCE, raw)) for label, raw in odd.items()),
        row("another partition", Rejected("wrong-partition"), CANCEL, (H_SOURCE, b"{cluster}.buffer/1/0")),
        row("beside an id", Rejected("header-not-allowed"), CANCEL, KEPT, own),
        row("with a target", Rejected("header-not-allowed"), CANCEL, own, TARGET),
        row("with a time", Rejected("header-not-allowed"), CANCEL, own, (H_AFTER, b"1s")),
        row("twice", Rejected("duplicate-header"), CANCEL, own, own),
        row("null", Rejected("null-header"), CANCEL, (H_SOURCE, None)),
        row("a reschedule with it", Rejected("no-id"), RESCHEDULE, own),
        row("of what is no schedule", Answered("unknown"), CANCEL, own),
        row("with zeros before it", Answered("unknown"), CANCEL, (H_SOURCE, b"{cluster}.buffer/0/0003")),
    ]


BUFFER_BYTES: Final = 1_004_096
SMALL_BYTES: Final = 2_000
WIDE_BYTES: Final = 500_000_000


def _records() -> list[Row]:
    group = "Key, value and size"
    small: tuple[RawHeader, ...] = ((H_TARGET_TOPIC, b"{targets}.small"),)
    wide: tuple[RawHeader, ...] = ((H_TARGET_TOPIC, b"{targets}.wide"),)
    too_large = Undelivered("too-large", f"{{targets}}.small takes {SMALL_BYTES}")
    large = Rejected("request-too-large", whole=False)
    unread = Undelivered("undecodable", "it does not unpack by zstd to 16777216 bytes or less", whole=False)
    fine = Delivered()
    every_byte = bytes(range(256))
    return [
        Row(group=group, label="no key", key=None, fate=fine),
        Row(group=group, label="empty key", key=b"", fate=fine),
        Row(group=group, label="a key that is no text", key=b"\xff\x00", fate=fine),
        Row(group=group, label="null value", value=None, fate=fine),
        Row(group=group, label="empty value", value=b"", fate=fine),
        Row(group=group, label="a value that is no text", value=every_byte, fate=fine),
        Row(group=group, label="a value like a request", value=b"delay-op: cancel", fate=fine),
        Row(group=group, label="a producer's timestamp of 1970", timestamp_ms=1, fate=fine),
        Row(group=group, label="a producer's timestamp of year 5138", timestamp_ms=10**14, fate=fine),
        Row(
            group=group,
            label="999,900 bytes",
            batch_bytes=999_900,
            fate=fine,
        ),
        Row(
            group=group,
            label="a value of 1,000,000 bytes, and what is beside it",
            value=b"v" * 1_000_000,
            fate=Rejected("request-too-large"),
        ),
        Row(
            group=group,
            label="the largest that the buffer takes, 1,004,096 bytes, and wrong",
            odd=((H_AFTER, b"1"),),
            batch_bytes=BUFFER_BYTES,
            fate=Rejected("bad-after", whole=False),
        ),
        Row(
            group=group,
            label="larger than the 2,000 bytes its target takes",
            base=small,
            value=b"v" * 3_000,
            fate=too_large,
        ),
        Row(
            group=group,
            label="larger than that once it is delivered",
            base=small,
            batch_bytes=1_990,
            fate=too_large,
        ),
        Row(group=group, label="5 MB, compressed with gzip", zeros=5_000_000, codec="gzip", fate=large),
        Row(group=group, label="5 MB, compressed with snappy", zeros=5_000_000, codec="snappy", fate=large),
        Row(
            group=group,
            label="5 MB, compressed with lz4, for a wide topic",
            base=wide,
            zeros=5_000_000,
            codec="lz4",
            fate=large,
        ),
        Row(
            group=group,
            label="120 MB, compressed with zstd, for a wide topic",
            base=wide,
            zeros=120_000_000,
            codec="zstd",
            fate=unread,
        ),
    ]


def _all() -> tuple[Row, ...]:
    parts = (
        _no_request,
        _op,
        _target_topic,
        _target_key,
        _target_partition,
        _deliver_at,
        _after,
        _level,
        _time_conflict,
        _id,
        _if_exists,
        _expire_at,
        recurring,
        _controls,
        _by_source,
        _other_headers,
        _origin,
        _records,
    )
    return tuple(row for part in parts for row in part())


TABLE: Final = _all()
