"""What the log and the checkpoints together say of each request, recomputed from them alone.

*Settled by* is the transaction that took a row: the first checkpoint with key <= position and offset <
applied, or of what waited for the end of a pause, the one that has let it go (pipeline/audit/holds.py). *Seen
by* is the first checkpoint with offset < seen, which answers a cancel or replace. Vectors never go back,
and a position does not within a *spell*, from one rewind to the next: so each is the first checkpoint of
a running minimum, by spell; a checkpoint is named by its offset in its lane's log. A row is late iff the
transaction before had passed its key already, which is to say: its position was reached by an earlier
checkpoint than its offset. One task sorts a lane by key (spilling to disk), one sorts each partition.

The id index is replayed in log order (docs/design.md, rules 2 to 4): a schedule sets it, a cancel clears
it, a written-back request is dropped if a schedule's origin or a cancel above its parent came before it. What
a reschedule comes to depends on others in its transaction: pipeline/audit/moves.py has that. A
duplicate (pipeline/audit/duplicates.py) does nothing to it. What has no id is told by the source that it goes
back to; a cancel by source does what one of the id does, if the id's last request goes back to that source.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from delayline.outcome_kinds import OutcomeKind
from pipeline.audit.carries import OF_SUCCESSOR
from pipeline.audit.holds import holds, let_go
from pipeline.audit.meaning import CANCEL, RESCHEDULE, SCHEDULE, beside_source, root_offset


class Sorts(NamedTuple):
    """Whether there are any requests of a sort at all: what follows from those alone is not looked for else,
    for it takes its time. `written_back`: by the service; `by_source`: cancels of that kind; `keeping`:
    schedules that keep what is there already; `in_batches`: rejected with the batch that they are in.
    """

    written_back: bool
    by_source: bool
    reschedules: bool
    keeping: bool
    recurring: bool
    in_batches: bool


def sorts_of(requests: DataFrame) -> Sorts:
    """Computes `requests`, if they are to be kept and are not yet."""
    is_of = {
        "written_back": F.col("parent").isNotNull(),
        "by_source": F.col("names").isNotNull(),
        "reschedules": F.col("kind") == RESCHEDULE,
        "keeping": F.col("keep"),
        "recurring": F.col("recurrence").isNotNull(),
        "in_batches": F.col("batch").isNotNull(),
    }
    found = requests.agg(*(F.bool_or(one).alias(name) for name, one in is_of.items())).collect()[0]
    return Sorts(**{name: bool(found[name]) for name in is_of})


def with_history(requests: DataFrame, checkpoints: DataFrame, sorts: Sorts) -> DataFrame:
    """`requests`, which have `duplicate` and `of_message`, with these columns added.

    `settled_by`, `seen_by`: checkpoints, null if there is none yet. `settled_at_ms`: when the broker took
    the former, and `spell` its own; `passed_by` and `applied_by`: those that it follows from. `held`,
    `resumed_ms` and `hold`: see pipeline/audit/holds.py. `follows` and `followed_by`: the offsets of the id's
    events before and after it.
    `whole_from`: of what no later checkpoint than this covers, the order in time cannot be told. `late`:
    whether the row is (see above).
    `dropped`: a written-back request that was dropped. `removed`: the cancel or replace that removed this row
    before it was settled. `gone_by`: the checkpoint that has seen what removed it, settled or not. `moved`: a
    reschedule has put another row in its place. `met`: of a reschedule, the id's last event that had been
    seen when it was settled. `expected`: the outcomes that may answer this request, with the sources of the
    message and its root; null: none is due, or it is a reschedule. `answered_by`: the checkpoint that answers
    it. `judged`: whether an answer can be held to what is expected.
    """
    whole_from = checkpoints.groupBy("lane").agg(F.first("whole_from").alias("whole_from"))
    known = requests.join(F.broadcast(whole_from), "lane", "left")
    placed = let_go(_placed(known, checkpoints), holds(checkpoints))
    with_answers = _expected(_with_neighbours(placed, sorts))
    beside = {"follows": F.col("before.offset"), "followed_by": F.col("after.offset")}
    return with_answers.withColumns(beside).drop("before", "after", "ended", "inert")


def with_sources(requests: DataFrame) -> DataFrame:
    """`requests`, where a cancel by source has the `id` of the schedule that it names, if that has one, and
    is `of_message` if it names one at all.
    """
    named = requests.filter((F.col("kind") == SCHEDULE) & F.col("parent").isNull()).select(
        "partition", F.col("offset").alias("names"), F.col("id").alias("named_id"), F.lit(True).alias("named")
    )
    cancels = requests.filter(F.col("names").isNotNull()).select("partition", "offset", "names")
    found = cancels.join(named, ["partition", "names"]).select("partition", "offset", "named_id", "named")
    return (
        requests.join(found, ["partition", "offset"], "left")
        .withColumn("id", F.coalesce("id", "named_id"))
        .withColumn("of_message", F.coalesce("named", F.lit(False)))
        .drop("named_id", "named")
    )


def _placed(requests: DataFrame, checkpoints: DataFrame) -> DataFrame:
    """Adds `settled_by`, `settled_at_ms`, `spell`, `passed_by`, `applied_by`, `seen_by` and `late`.

    By key first, then by offset: the id's windows then find each partition's records together already.
    """
    by_key = ["due_ms", "partition", "offset"]
    told = sorted(row["spell"] for row in checkpoints.select("spell").distinct().collect())
    spells = {spell: f"passed_by_{spell}" for spell in told or [0]}
    names = list(spells.values())
    passed = _least(requests, _keys_passed(checkpoints, spells), ["lane"], by_key, names)
    bounds = _offsets_covered(checkpoints)
    placed = _least(passed, bounds, ["partition"], ["offset"], ["applied_by", "seen_by"])
    settled = F.coalesce(*(_settled_in(spell, name) for spell, name in spells.items()))
    return (
        placed.withColumn("settled", settled)
        .withColumns(
            {
                "settled_by": F.col("settled.seq"),
                "settled_at_ms": F.col("settled.at_ms"),
                "spell": F.col("settled.spell"),
                "seen_by": F.col("seen_by.seq"),
                "late": F.coalesce(F.col("settled.late"), F.lit(False)),
                "passed_by": F.col("settled.passed_by"),
                "applied_by": F.col("applied_by.seq"),
            }
        )
        .drop("settled", *names)
    )


def _settled_in(spell: int, name: str) -> Column:
    """The checkpoint that settled a row, if it is one of that spell."""
    passed, applied = F.col(name), F.col("applied_by")
    late = passed["seq"] < applied["seq"]
    last = F.when(late, applied["seq"]).otherwise(passed["seq"])
    at_ms = F.when(late, applied["at_ms"]).otherwise(passed["at_ms"])
    both = F.col("due_ms").isNotNull() & passed.isNotNull() & applied.isNotNull()
    return F.when(
        both & (last <= passed["until"]),
        F.struct(
            last.alias("seq"),
            at_ms.alias("at_ms"),
            F.lit(spell).alias("spell"),
            late.alias("late"),
            passed["seq"].alias("passed_by"),
        ),
    )


def _offsets_covered(checkpoints: DataFrame) -> DataFrame:
    """For each vector's entry, the last offset below it and the checkpoint that has it."""

    def bounds(vector: str, column: str) -> Column:
        return F.transform(
            F.map_entries(vector),
            lambda entry: F.struct(
                entry["key"].cast("int").alias("partition"),
                (entry["value"] - 1).alias("offset"),
                *(
                    (_taken() if name == column else F.lit(None).cast(_TAKEN)).alias(name)
                    for name in ("applied_by", "seen_by")
                ),
            ),
        )

    both = F.concat(bounds("applied", "applied_by"), bounds("seen", "seen_by"))
    return checkpoints.select(F.explode(both).alias("bound")).select("bound.*")


_TAKEN = "struct<seq:long,at_ms:long>"


def _taken() -> Column:
    """A checkpoint, and when the broker took it; they compare by `seq`, which no two of a lane share."""
    return F.struct("seq", F.col("timestamp_ms").alias("at_ms"))


def _keys_passed(checkpoints: DataFrame, spells: Mapping[int, str]) -> DataFrame:
    """For each position the checkpoint that has it, under the name of its spell, and the spell's last."""
    position = F.col("position")
    until = F.max("seq").over(Window.partitionBy("lane", "spell"))
    passed_by = F.struct("seq", F.col("timestamp_ms").alias("at_ms"), F.col("until"))
    return (
        checkpoints.withColumn("until", until)
        .filter(position.isNotNull())
        .select(
            "lane",
            position[0].alias("due_ms"),
            position[1].cast("int").alias("partition"),
            position[2].alias("offset"),
            *(F.when(F.col("spell") == spell, passed_by).alias(name) for spell, name in spells.items()),
        )
    )


def _least(
    requests: DataFrame, bounds: DataFrame, within: list[str], order: list[str], values: list[str]
) -> DataFrame:
    """Give each request the least of each of `values` among the bounds at or above it in `order`."""
    above = (
        Window.partitionBy(*within)
        .orderBy(*(F.col(name).desc_nulls_last() for name in order), F.col("is_request"))
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    marked = requests.withColumn("is_request", F.lit(True))
    unmarked = bounds.withColumn("is_request", F.lit(False))
    both = marked.unionByName(unmarked, allowMissingColumns=True)
    return (
        both.withColumns({name: F.min(name).over(above) for name in values})
        .filter("is_request")
        .drop("is_request")
    )


def _with_neighbours(placed: DataFrame, sorts: Sorts) -> DataFrame:
    """Adds `dropped`; the id's events `before` and `after` in the log; what a reschedule has `met`.

    `ended`: a cancel or replace that was the first to come between a parent and what was written back for it.
    """
    # A request without an id is alone with what goes back to it. The hash is first: sorts look at that first.
    named = F.when(F.col("of_message"), F.col("names"))
    alone = F.when(F.col("id").isNull(), F.coalesce(named, root_offset(), "offset"))
    identity = Window.partitionBy(F.xxhash64("id", alone), "partition", "id", alone)
    earlier = identity.orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    inert = _is_inert(earlier) if sorts.by_source else F.lit(False)
    with_drops = _with_drops(placed.withColumn("inert", inert), earlier, sorts)
    event = F.when(
        F.col("is_event") & ~F.col("dropped"),
        F.struct(
            "kind", "offset", "timestamp_ms", "source", "parent", "settled_by", "seen_by", "stand_in",
            "origin", F.coalesce("root", "source").alias("root"), word_of().alias("word"),
        ),
    )  # fmt: skip
    last, is_reschedule = F.last("event", ignorenulls=True), F.col("kind") == RESCHEDULE
    # Not a frame that is open at the end: Spark takes time quadratic in its length for those.
    following = F.expr("lead(event) ignore nulls").over(identity.orderBy("offset"))
    # Without any of them it is null everywhere: the event is there for its type alone.
    met = F.when(is_reschedule, last.over(_met(identity)) if sorts.reschedules else F.col("event"))
    neighbours = {"before": last.over(earlier), "after": following, "met": met}
    ended = _ended(identity, earlier) if sorts.written_back else F.lit(False)
    return (
        with_drops.withColumn("event", event)
        .withColumns(neighbours | {"ended": ended})
        .drop("event", "is_event", "origin")
    )


def _with_drops(placed: DataFrame, earlier: WindowSpec, sorts: Sorts) -> DataFrame:
    """Adds `is_event`, whether a request may change what its id is; to which offset it goes back then, as
    `origin`; and `dropped`.
    """
    is_event = F.col("kind").isin(SCHEDULE, CANCEL) & ~F.col("duplicate") & ~F.col("inert")
    origin = F.when(F.col("is_event"), F.coalesce("parent", "offset"))
    dropped = F.lit(False)
    if sorts.written_back:
        # A reschedule that was deferred changes nothing at apply, and nothing drops it there.
        overtaken = F.coalesce(F.max("origin").over(earlier) > F.col("parent"), F.lit(False))
        dropped = overtaken & (F.col("kind") != RESCHEDULE)
    with_events = placed.withColumn("is_event", is_event).withColumn("origin", origin)
    return with_events.withColumn("dropped", dropped)


def _ended(identity: WindowSpec, earlier: WindowSpec) -> Column:
    by_user = F.when(F.col("is_event") & F.col("parent").isNull(), F.col("offset"))
    user_before = F.coalesce(F.last(by_user, ignorenulls=True).over(earlier), F.lit(-1))
    dropped_parent = F.expr("lead(if(dropped, parent, null)) ignore nulls").over(identity.orderBy("offset"))
    ended = (dropped_parent < F.col("offset")) & (user_before <= dropped_parent)
    return F.coalesce(ended, F.lit(False))


def _is_inert(earlier: WindowSpec) -> Column:
    """A cancel by source of a message whose id has another by now, or that names no message."""
    is_schedule = (F.col("kind") == SCHEDULE) & ~F.col("duplicate")
    origin = F.when(is_schedule, F.coalesce("parent", "offset"))
    dropped = F.coalesce(F.max(origin).over(earlier) > F.col("parent"), F.lit(False))
    root = F.when(is_schedule & ~dropped, F.coalesce("root", "source"))
    last = F.last(root, ignorenulls=True).over(earlier)
    return F.col("names").isNotNull() & ~(F.col("of_message") & last.eqNullSafe(_named()))


def word_of() -> Column:
    """The offset of the user's last request that counts for this one (docs/design.md, Words)."""
    return F.coalesce("moved_by", root_offset(), "offset")


def is_untold(event: str) -> Column:
    """Whether that event of the id may be another one, which stood where the log is gone."""
    found = F.col(event)
    return F.col("cut") & (found.isNull() | found["stand_in"].eqNullSafe(F.lit(OF_SUCCESSOR)))


def _named() -> Column:
    """The source that a cancel names."""
    return F.when(F.col("names").isNotNull(), beside_source("names"))


def _met(identity: WindowSpec) -> WindowSpec:
    """What the index held when a reschedule was settled: what that checkpoint or one before it has seen."""
    is_reschedule = F.col("kind") == RESCHEDULE
    moment = F.when(is_reschedule, F.col("settled_by")).otherwise(F.col("seen_by"))
    order = identity.orderBy(moment.asc_nulls_last(), is_reschedule, "offset")
    return order.rowsBetween(Window.unboundedPreceding, -1)


def _expected(history: DataFrame) -> DataFrame:
    """Adds `answered_by`, `judged`, `expected`, `removed`, `gone_by` and `moved`."""
    kind, seen_by, after = F.col("kind"), F.col("seen_by"), F.col("after")
    by_id = F.col("id").isNotNull()
    replaces = (kind == SCHEDULE) & F.col("parent").isNull()
    moved = (kind == SCHEDULE) & after["parent"].isNotNull() & (after["parent"] != F.col("offset"))
    answered_by = F.when(kind == RESCHEDULE, F.col("settled_by")).otherwise(seen_by)
    expected = (
        F.when(kind == CANCEL, _cancel_answer().withField("root", _root_answered()))
        .when(F.col("duplicate"), _answer(F.col("before"), OutcomeKind.DUPLICATE))
        .when(replaces, _replace_answer())
    )
    return history.withColumns(
        {
            "answered_by": answered_by,
            "judged": F.coalesce(answered_by > F.col("whole_from"), F.lit(False)) & ~is_untold("before"),
            "expected": F.when(answered_by.isNotNull(), expected),
            "removed": _removed(),
            "gone_by": F.when((kind == SCHEDULE) & (by_id | (after["kind"] == CANCEL)), after["seen_by"]),
            "moved": F.coalesce(moved, F.lit(False)),
        }
    )


def _removed() -> Column:
    """The cancel or replace that follows this row in its id's log, if it came before the row was settled."""
    after = F.col("after")
    by_user = (after["kind"] == CANCEL) | after["parent"].isNull()
    in_time = after["seen_by"].isNotNull() & ~_done_before(F.col("settled_by"), after["seen_by"])
    return F.when(
        (F.col("kind") == SCHEDULE) & ~F.col("duplicate") & by_user & in_time,
        F.struct(
            after["kind"].alias("kind"),
            after["source"].alias("source"),
            after["timestamp_ms"].alias("timestamp_ms"),
            F.coalesce(after["seen_by"] > F.col("whole_from"), F.lit(False)).alias("judged"),
        ),
    )


def _done_before(settled_by: Column, seen_by: Column) -> Column:
    """Whether a row was done under the checkpoint before `seen_by`."""
    return settled_by.isNotNull() & (settled_by < seen_by)


def _cancel_answer() -> Column:
    before, seen_by = F.col("before"), F.col("seen_by")
    nothing = ~_is_schedule(before) | F.col("inert")
    return (
        F.when(nothing, _answer(None, OutcomeKind.UNKNOWN))
        # The id's entry may have been pruned with its row, so that nothing was known of it any more.
        .when(
            _done_before(before["settled_by"], seen_by) & ~F.col("ended"),
            _answer(before, OutcomeKind.TOO_LATE, OutcomeKind.UNKNOWN),
        )
        .otherwise(_answer(before, OutcomeKind.CANCELLED))
    )


def _root_answered() -> Column:
    """A cancel by source is answered with that, whether anything was found or not."""
    return F.coalesce(_named(), F.when(_is_schedule(F.col("before")), F.col("before.root")))


def _replace_answer() -> Column:
    before = F.col("before")
    in_time = ~_done_before(before["settled_by"], F.col("seen_by")) | F.col("ended")
    return F.when(_is_schedule(before) & in_time, _answer(before, OutcomeKind.REPLACED))


def _is_schedule(event: Column) -> Column:
    return event.isNotNull() & (event["kind"] == SCHEDULE)


def _answer(event: Column | None, *outcomes: OutcomeKind) -> Column:
    none = F.lit(None).cast("string")
    return F.struct(
        F.array(*map(F.lit, outcomes)).alias("outcomes"),
        (none if event is None else event["source"]).alias("message"),
        (none if event is None else event["root"]).alias("root"),
    )
