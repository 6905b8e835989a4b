"""What is wrong with a message: one check for each way to go wrong, null where it has not."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as Spark's own documentation has it

from delayline.wire import H_ATTEMPT, H_ID, H_OCCURRENCE, H_SCHEDULED_FOR, H_SOURCE, REJECT_CODES
from ops.audit.evidence import Evidence
from ops.audit.flaw import said, violations
from ops.audit.meaning import REJECT, SCHEDULE
from ops.audit.messages import Bounds, looked_up


def message_violations(messages: DataFrame, evidence: Evidence, bounds: Bounds) -> DataFrame:
    """What `messages` (of ops.audit.messages) shows to be wrong: columns `kind`, `source`, `detail`."""
    checks = [
        ("lost", _lost()),
        ("duplicated", _duplicated()),
        ("early", _early(bounds)),
        ("altered", _altered()),
        ("altered", _letter_altered()),
        ("false_outcome", _removed_and_yet_there()),
        ("false_outcome", _false_death(evidence, bounds)),
        ("unexplained", _unexplained(bounds)),
    ]
    return violations(messages, checks)


def _is_message() -> Column:
    return F.col("kind").isNotNull()


def _lost() -> Column:
    row = F.col("row")
    settled = said("due ", row["due_ms"], ", passed by checkpoint ", row["settled_by"], ", and it is nowhere")
    removed = said("removed by ", row["removed"]["source"], ", and no outcome says so")
    overdue = said("overdue since ", row["due_ms"])
    reason = F.when(row["removed"].isNotNull(), removed).when(row["settled_by"].isNotNull(), settled)
    return F.when(F.col("class") == "lost", reason.otherwise(overdue))


def _duplicated() -> Column:
    ends = F.col("delivered_count") + F.col("letter_count")
    twice = (ends > 1) | (F.col("applied_count") > 1) | (F.col("ending_count") > 1)
    text = said(
        "delivered ",
        F.col("delivered_count"),
        " times, dead-lettered ",
        F.col("letter_count"),
        " times, with ",
        F.col("ending_count"),
        " outcomes of an end and ",
        F.col("applied_count"),
        " of a cancel or replace",
    )
    return F.when(_is_message() & twice, text)


def _early(bounds: Bounds) -> Column:
    """By the master's clock, or by the broker's where that has set the timestamp."""
    allowed_ms = F.when(F.col("delivered.by_broker"), bounds.clock_skew_ms).otherwise(0)
    early_ms = F.col("row.due_ms") - F.col("delivered.timestamp_ms")
    return F.when(_is_message() & (early_ms > allowed_ms), said(_place(), " is ", early_ms, " ms early"))


def _place() -> Column:
    return F.concat_ws("/", "delivered.topic", "delivered.partition", "delivered.offset")


def _altered() -> Column:
    got = F.col("delivered")
    parts = F.concat_ws(
        ", ",
        F.when(~got["key_sha"].eqNullSafe(F.col("target_key_sha")), "key"),
        F.when(~got["value_sha"].eqNullSafe(F.col("value_sha")), "value"),
        F.when(~got["user_sha"].eqNullSafe(F.col("user_sha")), "headers"),
        F.when(got["topic"] != F.col("target_topic"), "topic"),
        F.when(got["partition"] != F.col("target_partition"), "partition"),
        F.when(
            got["service"] != _service_headers(), said("service headers, ", F.array_join(got["service"], " "))
        ),
    )
    told = (F.col("kind") == SCHEDULE) & got.isNotNull() & (parts != "")
    return F.when(told, said(_place(), " differs in ", parts))


def _service_headers() -> Column:
    row = F.col("row")
    wanted = (
        (H_ID, F.col("id")),
        (H_SOURCE, F.col("source")),
        (H_SCHEDULED_FOR, row["scheduled_for_ms"]),
        (H_ATTEMPT, row["attempt"]),
        (H_OCCURRENCE, row["occurrence"]),
    )
    texts = [F.concat(F.lit(f"{key}="), value.cast("string")) for key, value in wanted]
    return F.array_sort(F.array_compact(F.array(*texts)))


def _letter_altered() -> Column:
    """A dead letter holds the request whole: the user's, or the one written back for it."""
    got, row = F.col("letter"), F.col("row")
    unreadable = F.col("code") == "header-key"
    parts = F.concat_ws(
        ", ",
        F.when(~got["key_sha"].eqNullSafe(row["key_sha"]), "key"),
        F.when(~got["value_sha"].eqNullSafe(row["value_sha"]), "value"),
        F.when(~F.coalesce(unreadable, F.lit(False)) & ~got["raw_sha"].eqNullSafe(row["raw_sha"]), "headers"),
    )
    return F.when(_is_message() & got.isNotNull() & (parts != ""), said(got["letter"], " differs in ", parts))


def _removed_and_yet_there() -> Column:
    """I7. Where the answer itself is false, that is a violation of the answer's, not of the message's."""
    there = F.coalesce(F.when(F.col("delivered_count") > 0, _place()), F.col("letter.letter"))
    removed, applied = F.col("row.removed"), F.col("applied")
    rightly = (
        removed.isNotNull()
        | F.col("row.settled_by").isNull()
        | (F.col("row.settled_by") <= F.col("whole_from"))
    )
    claimed = F.when(applied.isNotNull() & rightly, said(applied["outcome"], " by ", applied["outcome_of"]))
    unclaimed = (removed["kind"] == SCHEDULE) & removed["judged"] & applied.isNull()
    text = F.coalesce(claimed, F.when(unclaimed, said("replaced by ", removed["source"])))
    return F.when(
        _is_message() & there.isNotNull() & text.isNotNull(), said(text, ", and yet it is at ", there)
    )


def _false_death(evidence: Evidence, bounds: Bounds) -> Column:
    """Dead letter and outcome must both be there, and name the same, true reason."""
    letter, ending = F.col("letter"), F.col("ending")
    code, expire_at_ms = letter["code"], F.col("row.expire_at_ms")
    letters_edge_ms = evidence.edges_ms.get(bounds.dead_letter, 0)
    outcomes_edge_ms = evidence.edges_ms.get(bounds.outcomes, 0)
    expired = code == "expired"
    text = (
        F.when(
            letter.isNull() & (ending["at_ms"] > letters_edge_ms),
            said(ending["outcome"], " without a dead letter"),
        )
        .when(letter.isNull(), None)
        .when(
            ending.isNull() & (letter["timestamp_ms"] > outcomes_edge_ms),
            said(letter["letter"], " has no outcome"),
        )
        .when(~F.coalesce(code, F.lit("")).isin(*REJECT_CODES), said(code, " is no code of a dead letter"))
        .when((F.col("kind") == REJECT) & (code != F.col("code")), said(code, " instead of ", F.col("code")))
        .when(ending["code"] != code, said("the outcome says ", ending["code"], ", the dead letter ", code))
        .when(
            ending.isNotNull() & (expired != (ending["outcome"] == "expired")),
            said(ending["outcome"], " for ", code),
        )
        .when(expired & expire_at_ms.isNull(), F.lit("expired, and it has no time of expiry"))
        .when(
            expired & (ending["at_ms"] < expire_at_ms),
            said("expired ", expire_at_ms - ending["at_ms"], " ms early"),
        )
    )
    return F.when(_is_message() & (letter.isNotNull() | ending.isNotNull()), text)


def _unexplained(bounds: Bounds) -> Column:
    """A record that names a source where there is no request, or a request that cannot be delivered."""
    there = F.coalesce(F.when(F.col("delivered_count") > 0, _place()), F.col("letter.letter"))
    parts = F.split("source", "/")
    first = looked_up(bounds.buffer_first, F.get(parts, 1).try_cast("int"), None)
    aged_out = F.coalesce(F.get(parts, 2).try_cast("long") < first, F.lit(False))
    of_nothing = F.col("kind").isNull() & there.isNotNull() & ~aged_out
    of_reject = (F.col("kind") == REJECT) & (F.col("delivered_count") > 0)
    return F.when(of_nothing, said(there, " is of no message in the buffer")).when(
        of_reject, said(there, " is of a request that is rejected: ", F.col("code"))
    )
