"""What can be wrong with a message: one check for each way, null where nothing is."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from delayline.outcome_kinds import OutcomeKind
from delayline.rejects import DELIVERY_CODES, RejectCode
from delayline.wire import (
    H_ATTEMPT,
    H_ID,
    H_OCCURRENCE,
    H_SCHEDULED_FOR,
    H_SOURCE,
    PREFIX,
    REJECT_CODES,
)
from pipeline.audit.bounds import Bounds
from pipeline.audit.classes import is_beginning, is_message, is_refused_reschedule, recurs
from pipeline.audit.content import last_header
from pipeline.audit.flaw import Checks, said
from pipeline.audit.letters import altered_parts
from pipeline.audit.meaning import REJECT, SCHEDULE, source
from pipeline.audit.parks import by_parked_try, was_parked


def message_checks(bounds: Bounds) -> Checks:
    """The checks, for the columns of `pipeline.audit.cases` with their class."""
    return [
        ("lost", _lost()),
        ("duplicated", _duplicated()),
        ("early", _early(bounds)),
        ("altered", _altered()),
        ("altered", _letter_altered(bounds)),
        ("false_outcome", _removed_and_yet_there()),
        ("false_outcome", _false_death(bounds)),
        ("unexplained", _unexplained(bounds)),
        ("missing_from_buffer", _missing(bounds)),
    ]


def _lost() -> Column:
    row = F.col("row")
    parked = said(
        "parked by checkpoint ", row["settled_by"], ", and nothing was written back to be tried later"
    )
    settled = said("due ", row["due_ms"], ", passed by checkpoint ", row["settled_by"], ", and it is nowhere")
    removed = said("removed by ", row["removed"]["source"], ", and no outcome says so")
    reason = (
        F.when(was_parked(), parked)
        .when(row["removed"].isNotNull(), removed)
        .when(row["settled_by"].isNotNull(), settled)
    )
    return F.when(
        is_message() & (F.col("end") == "lost"), reason.otherwise(said("overdue since ", row["due_ms"]))
    )


def _duplicated() -> Column:
    counts = [F.col(f"{name}_count") for name in ("delivered", "letter", "ending", "effective")]
    delivered, letters, endings, effective = counts
    twice = (delivered + letters > 1) | (endings > 1) | (effective > 1)
    ends = said(
        "delivered ", delivered, " times, dead-lettered ", letters, " times; outcomes of its end: ", endings
    )
    again = said("it is at ", _there(), ", and it is a duplicate of ", F.col("expected.message"))
    parked = by_parked_try() | (was_parked() & (letters + endings > 0))
    return (
        F.when(is_message() & twice, said(ends, ", of its cancel or replace: ", effective))
        .when(is_message() & parked, said("parked, and by the same attempt it is at ", _there()))
        .when(F.col("duplicate") & _there().isNotNull(), again)
    )


def _early(bounds: Bounds) -> Column:
    """By the record's own timestamp, the leader's word unless the broker has set it; and by the broker's
    clock when it took the transaction's checkpoint: nobody could read the message before that.
    """
    due_ms, at_ms = F.col("row.due_ms"), F.col("delivered.timestamp_ms")
    allowed_ms = F.when(F.col("delivered.by_broker"), bounds.clock_skew_ms).otherwise(0)
    committed_early_ms = due_ms - F.col("row.settled_at_ms")
    text = F.when(
        due_ms - at_ms > allowed_ms, said(_delivered_as(), " is ", due_ms - at_ms, " ms early")
    ).when(
        committed_early_ms > bounds.clock_skew_ms,
        said(_delivered_as(), " was committed ", committed_early_ms, " ms early by the broker's clock"),
    )
    return F.when(is_message() & F.col("delivered").isNotNull() & ~by_parked_try(), text)


def _delivered_as() -> Column:
    return source("delivered.topic", "delivered.partition", "delivered.offset")


def _altered() -> Column:
    """The user's own headers come first, in their order; then the service's, each once."""
    got, wanted_headers = F.col("delivered"), _service_headers()
    own = F.filter("headers", lambda header: ~header["key"].startswith(PREFIX))
    parts = F.concat_ws(
        ", ",
        F.when(~got["key_sha"].eqNullSafe(F.col("target_key_sha")), "key"),
        F.when(~got["value_sha"].eqNullSafe(F.col("value_sha")), "value"),
        F.when(got["headers"] != F.concat(own, wanted_headers), _headers_differ(got["headers"], own)),
        F.when(got["topic"] != F.col("target_topic"), "topic"),
        F.when(got["partition"] != F.col("target_partition"), "partition"),
    )
    is_delivery = is_message() & (F.col("kind") == SCHEDULE) & got.isNotNull() & ~by_parked_try()
    return F.when(is_delivery & (parts != ""), said(_delivered_as(), " differs in ", parts))


def _headers_differ(got: Column, own: Column) -> Column:
    own_of_got = F.filter(got, lambda header: ~header["key"].startswith(PREFIX))
    return F.when(own_of_got != own, "headers").otherwise("the service's headers")


def _service_headers() -> Column:
    """What the service adds, in the order of `delayline.wire.delivery_headers`.

    The time that an occurrence says it stands for is held against the rule, in pipeline/audit/chain.py.
    """
    row = F.col("row")
    claimed_ms = F.when(recurs(), last_header(F.col("delivered.headers"), H_SCHEDULED_FOR))
    wanted = (
        (H_ID, F.col("id")),
        (H_SOURCE, F.coalesce("root", "source")),
        (H_SCHEDULED_FOR, F.coalesce(claimed_ms, row["scheduled_for_ms"].cast("string"))),
        (H_ATTEMPT, row["attempt"]),
        (H_OCCURRENCE, row["occurrence"]),
    )
    headers = [F.when(value.isNotNull(), _header(key, value)) for key, value in wanted]
    return F.array_compact(F.array(*headers))


def _header(key: str, value: Column) -> Column:
    return F.struct(F.lit(key).alias("key"), value.cast("string").cast("binary").alias("value"))


def _letter_altered(bounds: Bounds) -> Column:
    got, parts = F.col("letter"), altered_parts(bounds.letter_limit_bytes)
    differs = is_message() & got.isNotNull() & (parts != "")
    return F.when(differs, said(got["record"], " differs in ", parts))


def _there() -> Column:
    """Where the message has ended up, null if nowhere."""
    return F.coalesce(F.when(F.col("delivered_count") > 0, _delivered_as()), F.col("letter.record"))


def _removed_and_yet_there() -> Column:
    """I7. Where the answer itself is false, that is the answer's flaw, not the message's."""
    removed, settled_by, effective = F.col("row.removed"), F.col("row.settled_by"), F.col("effective")
    rightly = removed.isNotNull() | settled_by.isNull() | (settled_by <= F.col("whole_from"))
    claimed = F.when(
        effective.isNotNull() & rightly, said(effective["outcome"], " by ", effective["keyed_by"])
    )
    unclaimed = (removed["kind"] == SCHEDULE) & removed["judged"] & effective.isNull()
    dropped = F.when(recurs() & F.col("dropped"), F.lit("dropped, because its id had changed"))
    untold = F.col("row.skipped") & (F.col("ending_count") == 0)
    skipped = F.when(untold, F.lit("an operator has had it skipped"))
    how = F.coalesce(dropped, claimed, skipped, F.when(unclaimed, said("replaced by ", removed["source"])))
    return F.when(
        is_message() & _there().isNotNull() & how.isNotNull(), said(how, ", and yet it is at ", _there())
    )


def _false_death(bounds: Bounds) -> Column:
    """Dead letter and outcome must both be there, and name the same, true reason."""
    letter, ending, expire_at_ms = F.col("letter"), F.col("ending"), F.col("row.expire_at_ms")
    code = letter["code"]
    expired = code == RejectCode.EXPIRED
    early_ms = F.try_subtract(expire_at_ms, ending["at_ms"])  # both may be anybody's
    skipped = ending["outcome"] == OutcomeKind.SKIPPED
    by_operator = F.col("row.skipped") | (F.col("row.settled_by") <= F.col("whole_from"))
    alone = (ending["at_ms"] > bounds.letters_edge_ms) & ~skipped
    untold = ending.isNull() & (letter["timestamp_ms"] > bounds.outcomes_edge_ms)
    told_otherwise = ending.isNotNull() & (expired != (ending["outcome"] == OutcomeKind.EXPIRED))
    text = (
        F.when(skipped & _there().isNotNull(), said("skipped, and yet it is at ", _there()))
        .when(skipped & ~recurs() & ~by_operator, F.lit("skipped, and no operator has had that done"))
        .when(letter.isNull() & alone, said(ending["outcome"], " without a dead letter"))
        .when(letter.isNull(), None)
        .when(untold, said(letter["record"], " has no outcome"))
        .when(~F.coalesce(code, F.lit("")).isin(*REJECT_CODES), said(code, " is no code of a dead letter"))
        .when((F.col("kind") == REJECT) & (code != F.col("code")), said(code, " instead of ", F.col("code")))
        .when(
            (F.col("kind") == SCHEDULE) & ~code.isin(*DELIVERY_CODES),
            said(code, ", and the request was sound"),
        )
        .when(ending["code"] != code, said("the outcome says ", ending["code"], ", the dead letter ", code))
        .when(told_otherwise, said("the outcome is ", ending["outcome"], ", the dead letter's code ", code))
        .when(expired & expire_at_ms.isNull(), F.lit("expired, and it has no time of expiry"))
        .when(expired & (early_ms > 0), said("expired ", early_ms, " ms early"))
    )
    return F.when(is_message() & (letter.isNotNull() | ending.isNotNull()), text)


def _unexplained(bounds: Bounds) -> Column:
    """A record of no message, or of one that cannot be delivered."""
    known = F.coalesce(is_message() | F.col("duplicate") | is_refused_reschedule(), F.lit(False))
    of_nothing = ~known & ~bounds.before_buffer(F.col("source"))
    of_reject = (F.col("kind") == REJECT) & (F.col("delivered_count") > 0)
    of_beginning = is_beginning() & (F.col("delivered_count") > 0)
    return (
        F.when(of_nothing & _there().isNotNull(), said(_there(), " is of no message in the buffer"))
        .when(of_reject, said(_delivered_as(), " is of a request that is a reject: ", F.col("code")))
        .when(of_beginning, said(_delivered_as(), " is of no occurrence that was written down"))
    )


def _missing(bounds: Bounds) -> Column:
    """What the ledger says was acknowledged must be there, and be the same."""
    told, content = F.col("acknowledged"), F.col("content")
    gone = F.col("kind").isNull() & ~bounds.before_buffer(F.col("source"))
    return F.when(told.isNotNull() & gone, F.lit("acknowledged, and it is not there")).when(
        told != content, F.lit("acknowledged with other key, value or headers")
    )
