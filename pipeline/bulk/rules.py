"""The rules of the wire format (delayline/parser.py, delayline/sizes.py), in Spark's own expressions.

They are in the parser's order, so that of several flaws the same one is named. What depends on where a record
comes to stand, its offset and its timestamp, the service alone can tell: a delay is counted from the
moment of the check, and whether a source is before its cancel is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F

from delayline import headers as h
from delayline.headers import ID_MAX_BYTES, PREFIX
from delayline.names import MAX_OFFSET, MAX_PARTITION, TOPIC_MAX_LENGTH, ClusterNames
from delayline.recurrence import LARGEST_FACTOR, MISSED, MOST_PASSED, MOST_TIMES, SAME_INTERVAL, SHORTEST_MS
from delayline.rejects import RejectCode
from delayline.settings import FIRST_MEANING, ClusterSettings
from delayline.sizes import HEADER_BYTES
from delayline.times import MAX_MS
from node.kafka.fetch.records import MOST_HEADERS
from pipeline.bulk.asked import Asked
from pipeline.bulk.columns import COLUMNS, CRON_FLAW, TIMES
from pipeline.bulk.first import FIRST_MS
from pipeline.bulk.patterns import java_pattern

OPS: Final = ("schedule", "cancel", "reschedule")
RECURRING: Final = ("interval", "interval_factor", "cron", "time_zone", "times", "until", "missed")
_ON_CANCEL: Final = frozenset(("op", "id", "source"))
_ON_RESCHEDULE: Final = frozenset(("op", "id", "source", "expire_at", *TIMES))
_NOT_HEADERS: Final = frozenset(name for name, column in COLUMNS.items() if column.header is None)
_SHOWN_LENGTH: Final = 77


class Rule(NamedTuple):
    """What is wrong, and what is said of it."""

    code: RejectCode
    broken: Column
    detail: Column


class Verdict:
    """What is wrong with a row, by the first rule that it breaks."""

    def __init__(self, asked: Asked, settings: ClusterSettings, now_ms: int) -> None:
        """Of rows that have their milliseconds, their first delivery and, beside `cron`, `cron_flaw`."""
        self._rules = [
            *_ops(asked),
            *_own_headers(asked),
            *_only_for(asked, asked.is_cancel, _ON_CANCEL),
            *_only_for(asked, asked.is_reschedule, _ON_RESCHEDULE),
            *_targets(asked, settings),
            *_times(asked),
            *_names(asked, settings),
            *_others(asked),
            *_recurrence(asked),
            *_first_delivery(asked, settings, now_ms),
            *_size(asked, settings),
        ]

    def rule(self) -> Column:
        """The number of the rule (int); null if it breaks none."""
        broken = F.lit(None).cast("int")
        for number, rule in reversed(list(enumerate(self._rules))):
            broken = F.when(rule.broken, F.lit(number)).otherwise(broken)
        return broken

    def code(self, rule: Column) -> Column:
        """What the number says: the code of a dead letter."""
        return F.get(F.array(*(F.lit(str(one.code)) for one in self._rules)), rule)

    def detail(self, rule: Column) -> Column:
        """And what is wrong, in a line."""
        said = F.lit(None).cast("string")
        for number, one in enumerate(self._rules):
            said = F.when(rule == number, one.detail).otherwise(said)
        return said


def _own_headers(asked: Asked) -> Iterator[Rule]:
    """As the client has it (delayline/requests.py): a delay- header has a column of its own."""
    for _ in asked.present("headers"):
        keys, of = F.transform(asked.text("headers"), lambda header: header["key"]), asked.is_schedule
        unreadable = F.exists(keys, lambda key: key.isNull() | key.contains("\0") | ~F.is_valid_utf8(key))
        yield Rule(
            RejectCode.HEADER_KEY,
            of & unreadable,
            F.lit("a key in headers is null, not UTF-8, or has a NUL byte: clients could not read it"),
        )
        reserved = F.get(F.filter(keys, lambda key: key.startswith(PREFIX)), F.lit(0))
        yield Rule(
            RejectCode.UNKNOWN_HEADER,
            of & reserved.isNotNull(),
            _says("headers has ", reserved, f": headers in {PREFIX} are the service's; rename it"),
        )
        yield Rule(
            RejectCode.UNDECODABLE,
            of & (F.size(keys) > MOST_HEADERS - len(COLUMNS)),
            F.lit(f"headers has more than {MOST_HEADERS - len(COLUMNS)}: send less"),
        )


def _ops(asked: Asked) -> Iterator[Rule]:
    for name in asked.present("op"):
        op = asked.text(name)
        yield Rule(
            RejectCode.BAD_OP,
            ~op.isin(*OPS),
            _says("op is ", op, f": write {', '.join(OPS[:-1])} or {OPS[-1]}"),
        )


def _only_for(asked: Asked, of: Column, allowed: frozenset[str]) -> Iterator[Rule]:
    """Key, value and headers are not sent with a cancel or a reschedule."""
    for name in asked.present(*COLUMNS):
        if name not in allowed | _NOT_HEADERS:
            detail = F.concat(F.lit(f"{name} has no meaning with the op "), asked.text("op"))
            yield Rule(RejectCode.HEADER_NOT_ALLOWED, of & asked.has(name), detail)


def _targets(asked: Asked, settings: ClusterSettings) -> Iterator[Rule]:
    target, names = asked.text("target"), ClusterNames(settings.cluster)
    of = asked.is_schedule
    yield Rule(RejectCode.NO_TARGET, of & target.isNull(), F.lit("target is null: say where it is to go"))
    legal = target.rlike(rf"^[a-zA-Z0-9._-]{{1,{TOPIC_MAX_LENGTH}}}\z") & ~target.isin(".", "..")
    yield Rule(
        RejectCode.BAD_TARGET_TOPIC,
        of & ~legal,
        _says("target is ", target, f": use 1 to {TOPIC_MAX_LENGTH} of a-z A-Z 0-9 . _ - not . or .."),
    )
    own = sorted(names.no_targets(later_too=settings.meaning > FIRST_MEANING))
    yield Rule(
        RejectCode.TARGET_FORBIDDEN,
        of & (target.startswith("__") | target.isin(*own)),
        _says("target ", target, " is the service's own or internal to Kafka: choose another topic"),
    )
    if settings.targets:
        yield Rule(
            RejectCode.TARGET_FORBIDDEN,
            of & ~target.rlike(java_pattern(settings.targets)),
            _says("target ", target, " is not on this cluster's allow-list"),
        )


def _times(asked: Asked) -> Iterator[Rule]:
    """A row without a time is not delivered at once, as a record is: more often a cast has failed."""
    of = ~asked.is_cancel
    yield Rule(
        RejectCode.TIME_CONFLICT,
        of & (asked.count(*TIMES) > 1),
        F.lit("more than one of due, delay, level: give one of them"),
    )
    for name in asked.present("due"):
        yield _unread(name, RejectCode.BAD_DELIVER_AT, of, asked)
    for name in asked.present("delay"):
        yield _unread(name, RejectCode.BAD_AFTER, of, asked)
    for name in asked.present("level"):
        level = asked.text(name)
        sound = _is_number(F.regexp_replace(level, "^-", ""), MAX_MS)
        yield Rule(RejectCode.BAD_LEVEL, of & ~sound, _says("level is ", level, ": write a whole number"))
    yield Rule(
        RejectCode.BAD_DELIVER_AT,
        of & ~asked.has(*TIMES, "interval", "cron"),
        F.lit("no due, delay or level: to deliver at once, give the delay 0s"),
    )


def _unread(name: str, code: RejectCode, of: Column, asked: Asked) -> Rule:
    """A text that is no time, or no duration."""
    text = asked.text(name)
    return Rule(
        code,
        of & text.isNotNull() & asked.ms(name).isNull(),
        _says(f"{name} is ", text, f": give {_meant(name)}"),
    )


def _meant(name: str) -> str:
    return COLUMNS[name].kind.value


def _names(asked: Asked, settings: ClusterSettings) -> Iterator[Rule]:
    id_ = asked.text("id")
    yield Rule(
        RejectCode.HEADER_NOT_ALLOWED,
        asked.is_by_source & id_.isNotNull(),
        F.lit("id and source are both there: give the one that is meant"),
    )
    yield Rule(
        RejectCode.NO_ID,
        ~asked.is_schedule & ~asked.is_by_source & id_.isNull(),
        F.lit("id is null: say which message is meant"),
    )
    sound = F.is_valid_utf8(id_) & F.octet_length(id_).between(1, ID_MAX_BYTES)
    yield Rule(
        RejectCode.BAD_ID,
        id_.isNotNull() & ~sound,
        _says("id is ", id_, f": use 1 to {ID_MAX_BYTES} bytes of UTF-8"),
    )
    for name in asked.present("source"):
        yield from _sources(asked.is_by_source, asked.text(name), settings)


def _sources(of: Column, source: Column, settings: ClusterSettings) -> Iterator[Rule]:
    buffer = ClusterNames(settings.cluster).buffer
    partition, offset = F.split_part(source, F.lit("/"), F.lit(2)), F.split_part(source, F.lit("/"), F.lit(3))
    is_source = source.rlike(r"^[^/]+/[0-9]{1,10}/[0-9]{1,19}\z")
    is_ours = source.startswith(f"{buffer}/") & _is_number(offset, MAX_OFFSET)
    is_there = partition.try_cast("long") < settings.partitions
    yield Rule(
        RejectCode.BAD_SOURCE,
        of & ~(is_source & is_ours & is_there),
        _says(
            "source is ", source, f": write {buffer}/partition/offset, of {settings.partitions} partitions"
        ),
    )


def _others(asked: Asked) -> Iterator[Rule]:
    for name in asked.present("partition"):
        partition = asked.text(name)
        yield Rule(
            RejectCode.BAD_TARGET_PARTITION,
            ~_is_number(partition, MAX_PARTITION),
            _says("partition is ", partition, f": write a number from 0 to {MAX_PARTITION}"),
        )
    for name in asked.present("expire_at"):
        yield _unread(name, RejectCode.BAD_EXPIRE_AT, F.lit(True), asked)
    for name in asked.present("if_exists"):
        if_exists = asked.text(name)
        yield Rule(
            RejectCode.BAD_IF_EXISTS,
            ~if_exists.isin(h.REPLACE.decode(), h.KEEP.decode()),
            _says("if_exists is ", if_exists, ": write replace or keep"),
        )


def _recurrence(asked: Asked) -> Iterator[Rule]:
    together = (
        (asked.has(*RECURRING) & (asked.count("cron", "interval") != 1), "give one of interval and cron"),
        (asked.has("time_zone") & ~asked.has("cron"), "time_zone goes with cron only"),
        (asked.has("interval_factor") & ~asked.has("interval"), "interval_factor goes with interval only"),
    )
    if not asked.present(*RECURRING):
        return
    for broken, detail in together:
        yield Rule(RejectCode.BAD_RECURRENCE, broken, F.lit(detail))
    for name in asked.present("cron"):
        cron_flaw = F.col(CRON_FLAW)
        yield Rule(
            RejectCode.BAD_CRON, cron_flaw.isNotNull(), _says("cron is ", asked.text(name), ": ", cron_flaw)
        )
    for name in asked.present("interval"):
        yield _unread(name, RejectCode.BAD_INTERVAL, F.lit(True), asked)
        yield Rule(
            RejectCode.BAD_INTERVAL,
            asked.ms(name) < SHORTEST_MS,
            _says("interval is ", asked.text(name), f": the shortest one is {SHORTEST_MS} ms"),
        )
    yield from _beside_the_interval(asked)
    yield Rule(
        RejectCode.HEADER_NOT_ALLOWED,
        asked.has(*RECURRING) & asked.has("expire_at"),
        F.lit("expire_at is for one delivery: until ends a recurring message"),
    )
    for name in asked.present("times"):
        times = asked.text(name)
        yield Rule(
            RejectCode.BAD_TIMES,
            times.try_cast("decimal(20,0)") > MOST_TIMES,
            _says("times is ", times, f": write {MOST_TIMES} at most"),
        )


def _beside_the_interval(asked: Asked) -> Iterator[Rule]:
    for name in asked.present("interval_factor"):
        yield Rule(
            RejectCode.BAD_INTERVAL_FACTOR,
            ~_is_factor(asked.text(name)),
            _says("interval_factor is ", asked.text(name), ": write 1 to 1000 with three decimals at most"),
        )
    for name in asked.present("time_zone"):
        zone = asked.text(name)
        is_name = zone.rlike(r"^[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*\z") & (F.length(zone) <= 128)
        yield Rule(
            RejectCode.BAD_TIME_ZONE, ~is_name, _says("time_zone is ", zone, ": write a name such as UTC")
        )
    for name in asked.present("times"):
        times = asked.text(name)
        sound = _is_number(times, MAX_OFFSET) & (times.try_cast("long") >= 1)
        yield Rule(RejectCode.BAD_TIMES, ~sound, _says("times is ", times, f": write 1 to {MOST_TIMES}"))
    for name in asked.present("until"):
        yield _unread(name, RejectCode.BAD_UNTIL, F.lit(True), asked)
    for name in asked.present("missed"):
        missed = asked.text(name)
        yield Rule(
            RejectCode.BAD_MISSED,
            ~missed.isin(*MISSED),
            _says("missed is ", missed, f": write {', '.join(MISSED)}"),
        )


def _first_delivery(asked: Asked, settings: ClusterSettings, now_ms: int) -> Iterator[Rule]:
    first_ms, interval_ms = F.col(FIRST_MS), asked.ms("interval")
    if asked.present("interval"):
        yield Rule(
            RejectCode.BAD_INTERVAL_FACTOR,
            interval_ms.isNotNull() & first_ms.isNull(),
            F.lit(f"interval_factor: the start is more than {MOST_PASSED} intervals ago: start later"),
        )
        yield Rule(
            RejectCode.NO_OCCURRENCE,
            interval_ms.isNotNull() & (first_ms > asked.ms("until")),
            _says("until is ", asked.text("until"), ": that is before the first delivery"),
        )
    delay_ms = first_ms - F.lit(now_ms)
    yield Rule(
        RejectCode.DELAY_TOO_LONG,
        ~asked.is_cancel & (delay_ms > settings.max_delay_ms),
        F.concat(
            F.lit("the time is "),
            delay_ms.cast("string"),
            F.lit(f" ms from now: the cluster takes {settings.max_delay_ms} ms at most"),
        ),
    )


def _size(asked: Asked, settings: ClusterSettings) -> Iterator[Rule]:
    """`delayline.sizes.request_bytes` of what is sent."""
    if settings.meaning == FIRST_MEANING:
        return
    size = _size_bytes(asked)
    yield Rule(
        RejectCode.REQUEST_TOO_LARGE,
        ~asked.is_cancel & (size > settings.max_request_bytes),
        F.concat(
            F.lit("the request has "),
            size.cast("string"),
            F.lit(f" bytes: the cluster takes {settings.max_request_bytes}"),
        ),
    )


def _size_bytes(asked: Asked) -> Column:
    size = 2 * _length(asked.text("id")) + F.when(asked.is_schedule, _length(asked.data("value"))).otherwise(
        0
    )
    for key, value, is_sent in asked.sent_headers():
        size = size + F.when(is_sent, len(key) + HEADER_BYTES + 2 * _length(value)).otherwise(0)
    for name in asked.present("headers"):
        own = F.aggregate(asked.text(name), F.lit(0), _with_header)
        size = size + F.when(asked.is_schedule, F.coalesce(own, F.lit(0))).otherwise(0)
    return size


def _length(of: Column) -> Column:
    return F.coalesce(F.octet_length(of), F.lit(0))


def _with_header(size: Column, header: Column) -> Column:
    return size + _length(header["key"]) + _length(header["value"]) + HEADER_BYTES


def _is_number(text: Column, most: int) -> Column:
    """Null of a null."""
    number = text.try_cast("decimal(20,0)")
    return text.rlike(r"^[0-9]{1,19}\z") & (number <= F.lit(most))


def _is_factor(text: Column) -> Column:
    factor = text.try_cast("decimal(20,3)")
    return text.rlike(r"^[0-9]{1,4}(?:\.[0-9]{1,3})?\z") & factor.between(1, LARGEST_FACTOR // SAME_INTERVAL)


def _says(before: str, value: Column, *after: str | Column) -> Column:
    """One line with a value in it, cut where it is long, and in quotes."""
    shown = F.regexp_replace(F.substring(value, 1, _SHOWN_LENGTH), r"[\p{Cntrl}]", "?")
    parts = [F.lit(part) if isinstance(part, str) else part for part in after]
    return F.concat(F.lit(f"{before}'"), F.coalesce(shown, F.lit("")), F.lit("'"), *parts)
