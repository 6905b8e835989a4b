"""Whether each reschedule of a user's was carried out or answered rightly (docs/design.md, rule 3).

What it comes to depends on what its id had become when its transaction was selected, on the later words of
the same id in that transaction, and on what had been written back by then and could not be read yet. All of
that the log and the checkpoints tell. One that was deferred is written back as it is: whether that was needed
is not judged, but the last of the copies is held to what it has met, and the answer is to the user's own.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from delayline.outcome_kinds import OutcomeKind
from pipeline.audit.flaw import Checks, flaws, said, violations
from pipeline.audit.history import is_untold, word_of
from pipeline.audit.meaning import CANCEL, RESCHEDULE

_MET: Final = ("kind", "offset", "origin", "word", "source", "root", "settled_by")
_WRITTEN: Final = ("kind", "source", "id", "root", "scheduled_for_ms", "attempt", "moved_by", "recurrence")
_ANSWER: Final = ("outcome", "message", "root")
_NO_CONCERN: Final = (OutcomeKind.UNKNOWN, OutcomeKind.OVERTAKEN)
"""These name no message."""


def move() -> Column:
    """What `move_violations` needs of a case; null for all but reschedules, a user's or deferred."""
    facts = F.struct(
        "partition",
        "id",
        "offset",
        F.coalesce("root", "source").alias("root"),
        word_of().alias("word"),
        F.col("parent").isNotNull().alias("is_copy"),
        "settled_by",
        (_is_whole() & ~is_untold("met")).alias("judged"),
        "scheduled_for_ms",
        "attempt",
        _part("met", _MET),
        _part("following", _WRITTEN).alias("written"),
        _part("answer", _ANSWER),
    )
    return F.when(F.col("kind") == RESCHEDULE, facts)


def _is_whole() -> Column:
    return F.coalesce(F.col("settled_by") > F.col("whole_from"), F.lit(False))


def _part(name: str, fields: tuple[str, ...]) -> Column:
    return F.when(F.col(name).isNotNull(), F.struct(*(f"{name}.{field}" for field in fields))).alias(name)


def move_violations(verdicts: DataFrame) -> DataFrame:
    """What is wrong with reschedules: columns `kind`, `source`, `detail`; `source` is the user's own."""
    moves = verdicts.filter(F.col("move").isNotNull()).select(F.col("source").alias("own"), "move.*")
    of_id = Window.partitionBy("partition", "id", "settled_by")
    of_row = Window.partitionBy("partition", "id", "met.offset").orderBy("settled_by")
    before = of_row.rangeBetween(Window.unboundedPreceding, -1)
    of_root = Window.partitionBy("root")
    written, word = F.col("written"), F.col("word")
    moves_it = written.isNotNull() & (written["kind"] != RESCHEDULE)
    told = moves.withColumns(
        {
            "said": F.first(F.when(~F.col("is_copy"), F.col("answer")), ignorenulls=True).over(of_root),
            "latest": F.max(word).over(of_id),
            "carried_out": F.max(F.when(written.isNotNull(), word)).over(of_id),
            "moved_by": F.max(F.when(moves_it, word)).over(before),
        }
    )
    return violations(told.withColumn("source", F.col("root")), flaws(_checks()))


def _checks() -> Checks:
    return [("false_outcome", _false_answer()), ("altered", _altered())]


def _deferred() -> Column:
    return F.coalesce(F.col("written.kind") == RESCHEDULE, F.lit(False))


def _false_answer() -> Column:
    """Of the last of its copies; of those that are settled."""
    told, met, written = F.col("said"), F.col("met"), F.col("written")
    outcome, expected = told["outcome"], _expected()
    judged = F.col("judged") & F.col("settled_by").isNotNull()
    named = F.when(~outcome.isin(*_NO_CONCERN), met)
    placed = told["message"].eqNullSafe(named["source"]) & told["root"].eqNullSafe(named["root"])
    allowed = F.array_join(expected, " or ")
    moved = (outcome == OutcomeKind.RESCHEDULED) & written.isNull()
    text = (
        F.when(
            judged & (F.size(expected) == 0),
            said(outcome, " by ", F.col("own"), ", and what it is about was to be read first"),
        )
        .when(judged & ~F.array_contains(expected, outcome), said(outcome, " instead of ", allowed))
        .when(
            judged & (outcome != OutcomeKind.UNKNOWN) & ~placed,
            said(outcome, " ", told["message"], ", for ", told["root"], " instead of ", named["source"]),
        )
        .when(moved, F.lit("rescheduled, and nothing was written back for it"))
        .when(
            written.isNotNull() & (outcome != OutcomeKind.RESCHEDULED),
            said(outcome, ", and yet ", written["source"], " was written back for it"),
        )
    )
    return F.when(told.isNotNull() & ~_deferred(), text)


def _expected() -> Column:
    """The outcomes that may be; none: it was to be deferred.

    A node may have forgotten what is done: then nothing is known of the id any more.
    """
    met, word, settled_by, moved_by = (F.col(name) for name in ("met", "word", "settled_by", "moved_by"))
    overtaken, cancelled = met["word"] > word, met["kind"] == CANCEL
    done = F.coalesce(met["settled_by"] < settled_by, F.lit(False))
    over = F.coalesce(met["settled_by"] <= settled_by, F.lit(False))
    return (
        F.when(met.isNull() | (cancelled & ~overtaken), _outcomes(OutcomeKind.UNKNOWN))
        .when(overtaken & (cancelled | over), _outcomes(OutcomeKind.OVERTAKEN, OutcomeKind.UNKNOWN))
        .when(overtaken, _outcomes(OutcomeKind.OVERTAKEN))
        # Its row was moved before, and what was written back for that had not been read.
        .when(
            moved_by.isNotNull() & (F.greatest(moved_by, "carried_out") > word),
            _outcomes(OutcomeKind.OVERTAKEN),
        )
        .when(moved_by.isNotNull(), _outcomes())
        # Something else may have been hidden, for which a later word was deferred.
        .when(
            done & (F.col("latest") > word),
            _outcomes(OutcomeKind.TOO_LATE, OutcomeKind.UNKNOWN, OutcomeKind.OVERTAKEN),
        )
        .when(done, _outcomes(OutcomeKind.TOO_LATE, OutcomeKind.UNKNOWN))
        .when(F.col("carried_out") > word, _outcomes(OutcomeKind.OVERTAKEN))
        # What it would write back would be dropped.
        .when(met["origin"] > F.col("offset"), _outcomes())
        .otherwise(_outcomes(OutcomeKind.RESCHEDULED))
    )


def _outcomes(*names: OutcomeKind) -> Column:
    return F.array(*map(F.lit, names)).cast("array<string>")


def _altered() -> Column:
    """What was written back for it is the same again, or the message as this one has it."""
    written, deferred = F.col("written"), _deferred()
    # A cron expression's own request is for the time at which it is taken.
    at_its_time = deferred | written["recurrence"].isNull()
    differing = {
        "id": written["id"] != F.col("id"),
        "time": at_its_time & (written["scheduled_for_ms"] != F.col("scheduled_for_ms")),
        "root": deferred & (written["root"] != F.col("root")),
        "attempt": deferred & ~(written["attempt"] - F.col("attempt")).isin(0, 1),
        "delay-moved-by": ~deferred & (written["moved_by"] != F.col("word")),
    }
    parts = F.concat_ws(", ", *(F.when(differs, F.lit(name)) for name, differs in differing.items()))
    return F.when(
        written.isNotNull() & (parts != ""),
        said(written["source"], " was written back for ", F.col("own"), ", and differs in ", parts),
    )
