"""What can be wrong with an outcome: one check for each way, null where nothing is (I7)."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from delayline.outcome_kinds import OutcomeKind
from pipeline.audit.bounds import Bounds
from pipeline.audit.classes import is_control, is_reschedule
from pipeline.audit.flaw import Checks, said
from pipeline.audit.meaning import REJECT


def answer_checks(bounds: Bounds) -> Checks:
    """The checks, for the columns of `pipeline.audit.cases` with their class."""
    return [
        ("lost", _lost()),
        ("duplicated", _duplicated()),
        ("false_outcome", _false_answer(bounds)),
        ("false_outcome", _false_root()),
        ("unexplained", _unexplained(bounds)),
    ]


def _lost() -> Column:
    answered_by = F.col("answered_by")
    overdue = said("unanswered since ", F.col("timestamp_ms"))
    passed = said("checkpoint ", answered_by, " has seen it, and it has no outcome")
    return F.when(
        is_control() & (F.col("class") == "lost"), F.when(answered_by.isNotNull(), passed).otherwise(overdue)
    )


def _duplicated() -> Column:
    answers, rewrites = F.col("answer_count"), F.col("rewrites")
    twice = F.col("kind").isNotNull() & ((answers > 1) | (rewrites > 1))
    return F.when(twice, said("answered ", answers, " times, written back ", rewrites, " times"))


def _false_answer(bounds: Bounds) -> Column:
    kind, answer, expected = F.col("kind"), F.col("answer"), F.col("expected")
    outcome = answer["outcome"]
    # What it is a duplicate of may be older than the buffer.
    judged = F.col("judged") & ~((outcome == OutcomeKind.DUPLICATE) & bounds.before_buffer(answer["message"]))
    judged &= ~is_reschedule()  # see pipeline/audit/moves.py
    wrong_op = said("answered as a ", answer["op"], ", and it is a ", kind)
    allowed = F.array_join(expected["outcomes"], " or ")
    # A node that has forgotten a source's row still knows that a cancel has ended what followed it.
    forgotten = F.col("names").isNotNull() & answer["message"].isNull()
    of_message = forgotten | answer["message"].eqNullSafe(expected["message"])
    placed = of_message & answer["root"].eqNullSafe(expected["root"])
    text = (
        F.when(answer["op"] != kind, wrong_op)
        .when(judged & expected.isNull(), said(outcome, ", and nothing was to be said of it"))
        .when(
            judged & ~F.array_contains(expected["outcomes"], outcome),
            said(outcome, _whose(answer), " instead of ", allowed, _whose(expected)),
        )
        .when(
            judged & (outcome != OutcomeKind.UNKNOWN) & ~placed,
            said(outcome, _whose(answer), " instead of", _whose(expected)),
        )
    )
    return F.when(kind.isNotNull() & answer.isNotNull(), text)


def _whose(answer: Column) -> Column:
    message, root = answer["message"], answer["root"]
    return (
        F.when(message.isNull(), "")
        .when(message == root, said(" ", message))
        .otherwise(said(" ", message, ", for ", root))
    )


def _false_root() -> Column:
    """An outcome of a message's end or park is keyed by the row, and names the user's request."""
    ending = F.coalesce("own_ending", "own_park")
    root = F.coalesce(F.when(F.col("kind") != REJECT, F.col("root")), "source")
    wrong = F.col("kind").isNotNull() & ending.isNotNull() & ~ending["root"].eqNullSafe(root)
    return F.when(wrong, said(ending["outcome"], " for ", ending["root"], " instead of ", root))


def _unexplained(bounds: Bounds) -> Column:
    """An outcome of no request (unless retention has taken that), or one that is none."""
    told = F.coalesce("answer.record", "own_ending.record", "own_park.record")
    alone = F.col("kind").isNull() & ~bounds.before_buffer(F.col("source"))
    return F.when(
        F.col("no_outcome_count") > 0, said(F.col("no_outcome.record"), " is no outcome known here")
    ).when(told.isNotNull() & alone, said(told, " is of no request in the buffer"))
