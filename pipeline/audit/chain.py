"""Whether each occurrence of a recurring message is followed by the right one, at the right time.

What the service has written back is held against `delayline.recurrence`, which says what follows from an
occurrence and the time at which it was taken; that time is the delivery's, or the outcome's. Cron's times are
those of this machine's time zones. Only the few rows of recurring messages go through Python.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from delayline.outcome_kinds import OutcomeKind
from delayline.recurrence import (
    ALL,
    Occurrence,
    Recurrence,
    Turn,
    UnknownTimeZoneError,
    first_turn,
    next_turn,
)
from delayline.rejects import RejectCode
from delayline.wire import H_SCHEDULED_FOR, PREFIX
from pipeline.audit.classes import BEGUN, recurs
from pipeline.audit.content import last_header
from pipeline.audit.flaw import said, violations
from pipeline.audit.meaning import SCHEDULE

_TAKEN: Final = frozenset(
    (BEGUN, OutcomeKind.DELIVERED, OutcomeKind.SKIPPED, OutcomeKind.EXPIRED, OutcomeKind.DEAD_LETTERED)
)
# Codes of dead letters: of those that surely do not end a chain, and of those that surely do. What a broker
# refuses for what it is ends it as well, with codes that others have, too.
_GOES_ON: Final = frozenset((RejectCode.TARGET_MISSING, RejectCode.TARGET_PARTITION, RejectCode.EXPIRED))
_ENDS: Final = frozenset((RejectCode.BAD_TIME_ZONE, RejectCode.NO_OCCURRENCE))
_FLAWS: Final = "array<struct<kind: string, detail: string>>"
_PARTS: Final = {
    "key": "key_sha", "value": "value_sha", "target key": "target_key_sha", "headers": "own_headers",
    "topic": "target_topic", "target partition": "target_partition", "id": "id",
}  # fmt: skip


# The columns of `Following`.
_OF_FOLLOWING: Final = ("offset", "source", "occurrence", "scheduled_for_ms", "recurrence")


class Following(NamedTuple):
    """A request that was written back after an occurrence."""

    offset: int
    source: str
    number: int | None
    at_ms: int
    recurrence: Recurrence | None


class ChainLink(NamedTuple):
    """A request of a chain, what became of it, and what was written back after it."""

    number: int | None  # None: the first occurrence is still to be found
    at_ms: int
    recurrence: Recurrence
    end: str | None
    code: str | None  # of its dead letter
    now_ms: int | None  # when a leader took it; None: nobody says so
    as_ms: int | None  # the time that the delivered message stands for
    settled: bool
    following: Following | None
    by_operator: bool = False  # it was skipped, whatever the rule says


def link() -> Column:
    """What `chain_violations` needs of a case; null where nothing recurs."""
    removed = F.col("row.removed").isNotNull() | F.col("moved")
    code = F.coalesce("letter.code", "own_ending.code")
    by_leader = F.when(~F.col("delivered.by_broker"), F.col("delivered.timestamp_ms"))
    as_ms = last_header(F.col("delivered.headers"), H_SCHEDULED_FOR).try_cast("long")
    following = F.struct(*(f"following.{name}" for name in _OF_FOLLOWING))
    facts = F.struct(
        F.col("occurrence").alias("number"),
        F.col("scheduled_for_ms").alias("at_ms"),
        F.col("recurrence"),
        F.col("end"),
        code.alias("code"),
        F.coalesce(F.col("own_ending.at_ms"), by_leader).alias("now_ms"),
        as_ms.alias("as_ms"),
        (F.col("settled_by").isNotNull() & ~removed).alias("settled"),
        F.when(F.col("following").isNotNull(), following).alias("following"),
        F.col("row.skipped").alias("by_operator"),
    )
    own_headers = F.filter("headers", lambda header: ~header["key"].startswith(PREFIX)).alias("own_headers")
    content = F.struct(*(own_headers if name == "own_headers" else F.col(name) for name in _PARTS.values()))
    root = F.coalesce("root", "source").alias("root")
    chain = F.struct(root, F.col("offset"), facts.alias("facts"), content.alias("content"))
    return F.when(recurs() & (F.col("kind") == SCHEDULE) & F.col("end").isNotNull(), chain)


def chain_violations(verdicts: DataFrame) -> DataFrame:
    """What is wrong between the links of a chain: columns `kind`, `source`, `detail`."""
    links = verdicts.filter(F.col("link").isNotNull()).select("source", "link.*")
    judge = F.udf(_judged, _FLAWS)
    order = Window.partitionBy("root").orderBy("offset")
    before = F.lag(F.struct("content", "source")).over(order)
    compared = links.withColumn("before", before)
    altered = F.array_compact(F.array(_altered(F.col("content"), F.col("before"))))
    return violations(compared, F.concat(judge("facts"), altered))


def _altered(content: Column, before: Column) -> Column:
    """The kind and the detail: what was written back is what the request before it had."""
    differing = [
        F.when(~content[column].eqNullSafe(before["content"][column]), F.lit(name))
        for name, column in _PARTS.items()
    ]
    parts = F.concat_ws(", ", *differing)
    detail = said("what was written back differs from ", before["source"], " in ", parts)
    flaw = F.struct(F.lit("altered").alias("kind"), detail.alias("detail"))
    return F.when(before.isNotNull() & (parts != ""), flaw)


def _judged(facts: Row) -> list[tuple[str, str]]:
    return flaws_of(link_of(facts))


def link_of(facts: Any) -> ChainLink:
    """The link that a row of Spark's, or a tuple like it, stands for."""
    one = ChainLink(*facts)
    following = None if one.following is None else Following(*one.following)
    if following is not None and following.recurrence is not None:
        following = following._replace(recurrence=Recurrence(*following.recurrence))
    return one._replace(recurrence=Recurrence(*one.recurrence), following=following)


def flaws_of(link: ChainLink) -> list[tuple[str, str]]:
    """Kinds of violation, each with its detail."""
    if link.end == OutcomeKind.PARKED:
        return _wrong_later_try(link)
    if link.end not in _TAKEN:
        return []
    try:
        turn = _turn(link)
    except UnknownTimeZoneError:  # on this machine: nothing can be said
        return []
    if turn is None:
        return []
    return [flaw for flaw in (_wrong_end(link, turn), _wrong_following(link, turn)) if flaw is not None]


def _wrong_later_try(link: ChainLink) -> list[tuple[str, str]]:
    """It is the same occurrence: what follows is only decided when that is taken."""
    found, same = link.following, (link.number, link.at_ms, link.recurrence)
    if found is None or found[2:] == same:
        return []
    detail = f"{found.source} is its later try, as occurrence {found.number} at {found.at_ms}"
    return [("wrong_occurrence", f"{detail}, and it was {link.number} at {link.at_ms}")]


def _turn(link: ChainLink) -> Turn | None:
    """What the leader had to do; None: that depends on a time that nobody tells."""
    if link.number is None:
        return first_turn(link.recurrence, link.at_ms)
    # The broker's time is too late for the leader's. What the message says it stands for would do: it is held
    # against the rule then.
    now_ms = link.as_ms if link.now_ms is None else link.now_ms
    if now_ms is None:
        if link.recurrence.missed != ALL:
            return None
        now_ms = link.at_ms
    return next_turn(Occurrence(link.number, link.at_ms, link.recurrence), now_ms)


def _wrong_end(link: ChainLink, turn: Turn) -> tuple[str, str] | None:
    as_ms = turn.deliver_as_ms
    if link.end == OutcomeKind.DELIVERED and as_ms is None:
        detail = "the next one had overtaken it, and it was to be skipped"
        return "wrong_occurrence", f"occurrence {link.number} was delivered: {detail}"
    if link.end == OutcomeKind.DELIVERED and link.as_ms != as_ms:
        return "wrong_occurrence", f"occurrence {link.number} stands for {link.as_ms} instead of {as_ms}"
    if link.end == OutcomeKind.SKIPPED and as_ms is not None and not link.by_operator:
        return "false_outcome", f"skipped, and nothing had overtaken occurrence {link.number}"
    if link.code == RejectCode.NO_OCCURRENCE and turn.following is not None:
        return "false_outcome", f"no-occurrence, and there is one at {turn.following.at_ms}"
    return None


def _wrong_following(link: ChainLink, turn: Turn) -> tuple[str, str] | None:
    wanted, found = turn.following, link.following
    if link.code in _ENDS:
        wanted = None
    if found is None:
        must_go_on = link.settled and (link.code is None or link.code in _GOES_ON)
        if wanted is None or not must_go_on:
            return None
        return "lost", f"occurrence {wanted.number} is missing: nothing was written back for {wanted.at_ms}"
    if wanted is None:
        return "wrong_occurrence", f"{found.source} follows, and the chain had come to its end"
    if (found.number, found.at_ms) != wanted[:2]:
        told, right = (f"occurrence {one.number} at {one.at_ms}" for one in (found, wanted))
        return "wrong_occurrence", f"{found.source} follows as {told} instead of {right}"
    if found.recurrence != wanted.recurrence:
        return "wrong_occurrence", f"{found.source} follows, and recurs in another way"
    return None
