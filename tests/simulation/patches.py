"""The mutants: each leaves one clause of the rules (docs/design.md, "Exactly-once: the rule") out.

A mutant is a change to a *copy* of the sources: production code has no switches. Each has a profile of
requests and faults that provokes what the clause is there for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tests.simulation.profile import DEFAULT, FAULTS, REQUESTS, Profile


@dataclass(frozen=True)
class Patch:
    """Replaces `old`, which stands exactly once in the file, by `new`."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    """A clause left out."""

    name: str
    clause: str  # the rule, and how often leaving it out went wrong in the model that the rules come from
    without: str  # what the mutant does
    patches: tuple[Patch, ...]
    profile: Profile = DEFAULT
    begin: int = 0  # the first seed to try
    seeds: int = 300  # give up after so many
    exhaustive: bool = False  # found by tests/simulation/fencing.py instead of by seeds


def _profile(
    requests: dict[str, int] | None = None, faults: dict[str, int] | None = None, **changes: object
) -> Profile:
    """The default profile with some weights and ranges changed."""
    return replace(
        DEFAULT,
        requests=REQUESTS | (requests or {}),
        faults=FAULTS | (faults or {}),
        **changes,  # type: ignore[arg-type]
    )


# Requests that become visible after the position has passed them: applications' transactions, slow clocks.
_LATE: Final = {"past": 20, "now": 25, "id-now": 15, "id-past": 15}
_LATE_FAULTS: Final = {"foreign-stall": 20, "broker-clock-step": 15}

# Nodes that read slowly and keep house busily: ids are forgotten as soon as they may be.
_FORGETFUL: Final = _profile(
    {"reschedule": 40, "cancel": 30, "id-future": 30},
    {"stall-ingest": 40},
    replay_window_ms=(0,),
    ids=(1, 3),
    turns=(40, 12, 20, 28),
    batches=(1, 2),
    nodes=(3, 4),
)

MUTANTS: Final = (
    Mutant(
        "no-hold-back",
        "rule 1 [48/3000]",
        "late rows that do not fit do not hold the ingested vector back",
        (
            Patch(
                "store/selection.py",
                "frontier = _moved(tip, ingested=held_back, seen=dict(ingested))",
                "frontier = _moved(tip, ingested=dict(ingested), seen=dict(ingested))",
            ),
        ),
        _profile(_LATE, _LATE_FAULTS, messages=(1, 2, 3), transactional_share=0.4),
    ),
    Mutant(
        "all-below-is-late",
        "rule 1 [132/3000]",
        "at ingest a key at or below the position is late even if the last checkpoint had ingested it "
        "(and taking over does not align to the first checkpoint, which would sweep such entries away)",
        (
            Patch(
                "node/delivery.py",
                "        self._view.align(first)\n",
                "        self._view.record(first)\n",
            ),
            Patch(
                "store/view.py",
                "    def forget(self)",
                "    def record(self, checkpoint):\n"
                "        batch = self._kv.batch()\n"
                "        batch.put(keys.ALIGNED, checkpoint.encode())\n"
                "        self._kv.write(batch)\n"
                "        self._checkpoint, self._aligned = checkpoint, checkpoint.frontier\n"
                "        self._tip = checkpoint.frontier\n"
                "\n"
                "    def forget(self)",
            ),
            Patch(
                "store/ingest.py",
                "if offset < self._aligned.ingested.get(partition, 0):\n            return due_ms",
                "if offset < 0:\n            return due_ms",
            ),
        ),
        _profile(
            faults={"empty": 60, "crash": 30, "crash-master": 40, "stall-ingest": 30},
            messages=(1, 2, 3, 5),
            replay_window_ms=(300, 2_000),
        ),
    ),
    Mutant(
        "late-gone-at-selection",
        "rule 1 [213/3000]",
        "late entries go when they are selected, not when the commit is known",
        (
            Patch(
                "store/view.py",
                "            self._tip = chosen.frontier\n",
                "            self._tip = chosen.frontier\n"
                "            batch = self._kv.batch()\n"
                "            for key, _ in chosen.late:\n"
                "                batch.delete(keys.late(key[1], key[2]))\n"
                "            self._kv.write(batch)\n",
            ),
        ),
        _profile(_LATE, _LATE_FAULTS, transactional_share=0.4),
    ),
    Mutant(
        "in-flight-taken-twice",
        "rule 1 [319/3000]",
        "late rows that a transaction in flight carries are selected again",
        (Patch("store/selection.py", "if place not in in_flight:", "if place is not None:"),),
        _profile(_LATE, _LATE_FAULTS, transactional_share=0.4),
    ),
    Mutant(
        "selected-not-removed",
        "rule 2 [367/3000]",
        "a cancel or replace leaves a row where it is that is in flight or delivered",
        (
            Patch(
                "store/ingest.py",
                "        self.batch.delete(keys.row(entry.due_ms, partition, entry.offset))\n",
                "        selected = (entry.due_ms, partition, entry.offset) <= self._bound\n"
                "        if selected and self._kv.get(keys.late(partition, entry.offset)) is None:\n"
                "            return\n"
                "        self.batch.delete(keys.row(entry.due_ms, partition, entry.offset))\n",
            ),
        ),
    ),
    Mutant(
        "answered-with-ingested",
        "rule 2 [3/6397]",
        "a control is answered in the transaction whose ingested (not seen) first passes it",
        (
            Patch(
                "store/selection.py",
                "        frontier = _moved(tip, ingested=held_back, seen=dict(ingested))\n",
                "        passed = {p: max(offset, tip.seen.get(p, 0)) for p, offset in held_back.items()}\n"
                "        answers = [one for one in answers if one.place[1] < passed[one.place[0]]]\n"
                "        frontier = _moved(tip, ingested=held_back, seen=passed)\n",
            ),
        ),
        _profile(
            {**_LATE, "cancel": 30, "id-past": 30, "id-now": 30},
            _LATE_FAULTS,
            messages=(1, 2),
            transactional_share=0.4,
            ids=(8, 20),
        ),
    ),
    Mutant(
        "rescheduled-at-ingest",
        "rule 3 [124/3000]",
        "a reschedule moves the row at ingest, if the view at hand says that it is pending",
        (
            Patch(
                "store/ingest.py",
                "            elif arrival.kind != Kind.SCHEDULE or",
                "            elif arrival.kind == Kind.RESCHEDULE:\n"
                "                self._move(arrival)\n"
                "                self._store(arrival)\n"
                "            elif arrival.kind != Kind.SCHEDULE or",
            ),
            Patch(
                "store/ingest.py",
                "    def _overtaken(self",
                "    def _move(self, arrival):\n"
                "        from store.records import decode_row\n"
                "        index_key = keys.index(arrival.partition, arrival.id)\n"
                "        entry = self._index(index_key)\n"
                "        if entry is None:\n"
                "            return\n"
                "        key = (entry.due_ms, arrival.partition, entry.offset)\n"
                "        raw = self._kv.get(keys.row(*key))\n"
                "        if raw is None or key <= self._bound:\n"
                "            return\n"
                "        due_ms = max(arrival.timestamp_ms, decode_row(arrival.raw).scheduled_for_ms)\n"
                "        self.batch.delete(keys.row(*key))\n"
                "        self.batch.put(keys.row(due_ms, *key[1:]), raw)\n"
                "        self._set_index(index_key, IndexEntry(due_ms, *key[2:], entry.origin, entry.root))\n"
                "\n"
                "    def _overtaken(self",
            ),
        ),
        _profile({"reschedule": 30, "run-now": 20}),
    ),
    Mutant(
        "origin-is-own-offset",
        "rule 3 [108/3445]",
        "which request is older is told by its own offset, not by its parent's",
        (
            Patch(
                "store/ingest.py",
                "origin = arrival.offset if arrival.parent is None else arrival.parent",
                "origin = arrival.offset",
            ),
        ),
        _profile({"reschedule": 30, "run-now": 20}, ids=(1, 3)),
    ),
    Mutant(
        "written-back-never-dropped",
        "rule 4 [378/3000]",
        "a written-back request is stored though a later schedule or cancel of its id stands before it",
        (
            Patch(
                "store/ingest.py",
                "if arrival.parent is not None and self._overtaken(",
                "if arrival.parent == -1 and self._overtaken(",
            ),
        ),
        _profile({"reschedule": 30, "run-now": 20, "cancel": 20}, ids=(1, 3)),
    ),
    Mutant(
        "checkpoint-record-too-soon",
        "rule 5 [334/3000]",
        "the checkpoint record of n+1 is produced, and n+1 committed, before n is known to be committed",
        (
            Patch(
                "node/delivery.py",
                "        yield Step.AFTER_PRODUCE\n        yield from self._settle()\n",
                "        yield Step.AFTER_PRODUCE\n",
            ),
            Patch(
                "node/delivery.py",
                "        self._in_flight = _InFlight(chosen, checkpoint, transaction.commit())\n",
                "        commit = transaction.commit()\n"
                "        yield from self._settle()\n"
                "        self._in_flight = _InFlight(chosen, checkpoint, commit)\n",
            ),
        ),
        _profile(faults={"commit-aborted": 40, "commit-lost": 30}),
    ),
    Mutant(
        "recovery-reads-only-stable",
        "rule 6 [275/3000]",
        "a new master ingests up to the last stable offset only, not up to what was written back",
        (
            Patch(
                "node/delivery.py",
                "vectors = () if last is None else (last.seen, last.written_back)",
                "vectors: tuple[Vector, ...] = ()",
            ),
        ),
        _profile(
            {"reschedule": 30, "run-now": 10, "id-future": 30},
            {"foreign-stall": 40, "crash-master": 30, "commit-answer-lost": 20},
            transactional_share=0.5,
        ),
    ),
    Mutant(
        "no-first-checkpoint",
        "rule 6 [1906/1982]",
        "a new master begins without committing a first checkpoint",
        (
            Patch(
                "node/delivery.py",
                "            yield from self._take_over(last)\n",
                "            self._last = self._first_checkpoint(last)\n"
                "            self._view.align(self._last)\n",
            ),
        ),
    ),
    Mutant(
        "first-checkpoint-passes",
        "rule 6 [1906/1982]",
        "the first checkpoint says that all that was ingested is covered",
        (
            Patch(
                "node/delivery.py",
                "ingested=nowhere if last is None else last.ingested,",
                "ingested=self._view.reached().ingested,",
            ),
            Patch(
                "node/delivery.py",
                "seen=nowhere if last is None else last.seen,",
                "seen=self._view.reached().ingested,",
            ),
        ),
        _profile(_LATE, _LATE_FAULTS | {"crash-master": 30}),
    ),
    Mutant(
        "first-checkpoint-answers",
        "rule 6 [1906/1982]",
        "the first checkpoint says that all controls that were ingested are answered",
        (
            Patch(
                "node/delivery.py",
                "seen=nowhere if last is None else last.seen,",
                "seen=self._view.reached().ingested,",
            ),
        ),
    ),
    Mutant(
        "no-sweep-if-equal",
        "rule 6 [243/3000]",
        "aligning to a checkpoint that passes nothing leaves the late entries as they are",
        (
            Patch(
                "store/view.py",
                "        for raw_key, raw_due in self._kv.scan(keys.LATE, keys.end_of(keys.LATE)):\n"
                "            key = ",
                "        late = self._kv.scan(keys.LATE, keys.end_of(keys.LATE)) if frontier != old else ()\n"
                "        for raw_key, raw_due in late:\n"
                "            key = ",
            ),
        ),
        _profile(_LATE, _LATE_FAULTS | {"commit-aborted": 30, "send-fails": 20}),
    ),
    Mutant(
        "ingested-is-position",
        "rule 7 [1479/3000 stall]",
        "ingested is the consumer's position, which also passes markers",
        (
            Patch(
                "store/view.py",
                "ingested = self._ingested | {a.partition: a.offset + 1 for a in fresh}",
                "ingested = self._ingested | {a.partition: a.offset + 1 for a in fresh} | positions",
            ),
        ),
        _profile(transactional_share=0.5, end_of_partition=0.5),
    ),
    Mutant(
        "prunes-past-late",
        "rule 9 [109/3000]",
        "pruning does not stop below the smallest late key",
        (
            Patch(
                "store/view.py",
                "            end = min(end, keys.row(keys.unpack_due(raw_due), *keys.placed(raw_key)))\n",
                "            del raw_key, raw_due\n",
            ),
        ),
        _profile(_LATE, _LATE_FAULTS, replay_window_ms=(0, 20), messages=(1, 2, 3), transactional_share=0.4),
    ),
    Mutant(
        "covered-old-rows-ignored",
        "rule 9 [1/1938]",
        "a row that is done and older than the window is passed over at ingest: it replaces nothing",
        (
            Patch(
                "store/ingest.py",
                "        for arrival in arrivals:\n",
                "        for arrival in arrivals:\n"
                "            key = (arrival.due_ms, arrival.partition, arrival.offset)\n"
                "            covered = arrival.offset < self._aligned.ingested.get(arrival.partition, 0)\n"
                "            if arrival.kind == Kind.SCHEDULE and key <= self._bound and covered:\n"
                "                if arrival.due_ms < self._window_start_ms:\n"
                "                    continue\n",
            ),
        ),
        _profile(
            {"id-far": 40, "id-now": 40, "id-past": 20, "id-future": 20, "cancel": 3, "reschedule": 3},
            {"empty": 40, "crash-master": 20, "expire-session": 15},
            replay_window_ms=(0, 20),
            ids=(4, 12),
        ),
    ),
    # Clauses without a number of their own.
    Mutant(
        "late-by-alignment-only",
        "rule 1, max(aligned, in-memory)",
        "ingest classifies by the aligned position alone",
        (
            Patch(
                "store/ingest.py",
                "max(aligned.position or NO_KEY, position or NO_KEY)",
                "aligned.position or NO_KEY",
            ),
        ),
        _profile(_LATE, _LATE_FAULTS),
    ),
    Mutant(
        "late-in-offset-order",
        "rule 1, late rows in key order",
        "late rows are produced in the order in which they arrived",
        (Patch("store/selection.py", "late = sorted(taking.rows)", "late = list(taking.rows)"),),
        _profile(_LATE, _LATE_FAULTS, transactional_share=0.4),
    ),
    Mutant(
        "no-tombstone",
        "rule 2, tombstones",
        "a cancel leaves no tombstone",
        (
            Patch(
                "store/ingest.py",
                "        self._tombstones[tombstone_key] = arrival.offset\n"
                "        self.batch.put(tombstone_key, encode(arrival.offset))\n",
                "",
            ),
        ),
        _profile({"reschedule": 40, "cancel": 30, "id-now": 20}, ids=(1, 3)),
    ),
    Mutant(
        "ids-go-before-covered",
        "rule 2, until the aligned ingested has passed it",
        "an id is forgotten though the aligned ingested has not passed its last request",
        (
            Patch(
                "store/view.py",
                "if len(found) == most or key[2] >= self._aligned.ingested.get(key[1], 0):",
                "if len(found) == most:",
            ),
        ),
        _FORGETFUL,
        begin=180,
    ),
    Mutant(
        "ids-go-before-the-end",
        "rule 2, the high watermark noted then",
        "an id is forgotten before the consumer has reached the end of the log as it was then",
        (
            Patch(
                "store/view.py",
                "        if not self.has_read_to(log_ends):\n            return False\n",
                "",
            ),
        ),
        _FORGETFUL,
        begin=500,
    ),
    Mutant(
        "selects-before-written-back",
        "rule 3, until then the master selects nothing",
        "a master selects though what it wrote back is not ingested yet",
        (
            Patch(
                "node/delivery.py",
                "            self._awaited = written_back\n",
                "            self._awaited = {}\n",
            ),
        ),
        _profile({"reschedule": 30, "run-now": 20}, ids=(1, 3)),
    ),
    Mutant(
        "reads-before-fencing",
        "rule 6, init_transactions, then read",
        "a new master reads the checkpoint topic before it has fenced the others",
        (
            Patch(
                "node/delivery.py",
                "        self._outbox.open()\n        yield Step.OPENED\n"
                "        last = yield from self._last_checkpoint()\n",
                "        last = yield from self._last_checkpoint()\n"
                "        self._outbox.open()\n        yield Step.OPENED\n",
            ),
        ),
    ),
    Mutant(
        "recovery-reads-only-seen",
        "rule 6, the last stable offset as it is now",
        "a new master does not read on to the end of the buffer: a cancel made meanwhile may not count",
        (
            Patch(
                "node/delivery.py",
                "while not (self._view.has_ingested(*vectors) and self._view.has_read_to(ends)):",
                "while not self._view.has_ingested(*vectors):",
            ),
        ),
    ),
    Mutant(
        "in-flight-not-forgotten",
        "rule 6, having forgotten what was in flight",
        "a recovery does not forget which late rows were taken",
        (
            Patch(
                "store/view.py",
                "            self._tip = self._aligned\n            self._in_flight.clear()\n",
                "            self._tip = self._aligned\n",
            ),
        ),
        _profile(_LATE, _LATE_FAULTS),
    ),
    Mutant(
        "passed-rows-not-late",
        "rule 6, align",
        "aligning makes no late rows of those that the checkpoint passed without having ingested them",
        (
            Patch(
                "store/view.py",
                "if new.position is None or not behind:",
                "if new.position is None or behind in {True, False}:",
            ),
        ),
        _profile(_LATE, _LATE_FAULTS),
    ),
    Mutant(
        "clock-behind-the-position",
        "rule 6, not before the clock has reached the position's due",
        "a master selects while its clock is behind the position",
        (
            Patch(
                "node/delivery.py",
                "if position is not None and now_ms < position[0]:",
                "if position is not None and now_ms < 0:",
            ),
        ),
        _profile(_LATE, {**_LATE_FAULTS, "clock-step": 40}, skew_ms=(100, 400)),
        begin=200,
    ),
    Mutant(
        "turn-goes-on",
        "rule 5, first on -a",
        "the first transaction of a mastership is on the id whose turn it was in the one before",
        (
            Patch(
                "node/outbox.py",
                'self._initialised("b")]\n        self._turn = 0\n',
                'self._initialised("b")]\n',
            ),
        ),
        exhaustive=True,
    ),
)
