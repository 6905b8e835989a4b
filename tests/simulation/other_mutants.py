"""The mutants of clauses without a number of their own."""

from __future__ import annotations

from typing import Final

from tests.simulation.patches import LATE, LATE_FAULTS, Mutant, Patch, profile_with

# Nodes that read slowly and keep house busily: ids are forgotten as soon as they may be.
FORGETFUL: Final = profile_with(
    {"reschedule": 60, "cancel": 60, "id-future": 40},
    {"stall-ingest": 80, "crash-master": 40, "resign": 60},
    delay_ms=(500, 4_000),
    replay_window_ms=(0,),
    ids=(1, 3),
    turns=(50, 8, 14, 28),
    batches=(1,),
    nodes=(2, 2),
    partitions=(1, 1),
    transactional_share=0.0,
)

OTHERS: Final = (
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
        profile_with(LATE, LATE_FAULTS),
    ),
    Mutant(
        "late-in-offset-order",
        "rule 1, late rows in key order",
        "late rows are produced in the order in which they arrived",
        (Patch("store/selection.py", "late = sorted(taking.rows)", "late = list(taking.rows)"),),
        profile_with(LATE, LATE_FAULTS, transactional_share=0.4),
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
        profile_with({"reschedule": 40, "cancel": 30, "id-now": 20}, ids=(1, 3)),
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
        FORGETFUL,
        begin=1000,
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
        profile_with({"reschedule": 30, "run-now": 20}, ids=(1, 3)),
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
        "a recovery does not give up what was selected: its tip stays where it was",
        (
            Patch(
                "store/view.py",
                "            self._tip = self._aligned\n",
                "            pass\n",
            ),
        ),
        profile_with(LATE, LATE_FAULTS),
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
        profile_with(LATE, LATE_FAULTS),
    ),
    Mutant(
        "clock-behind-the-position",
        "rule 6, not before the clock has reached the position's due",
        "a master selects while its clock is behind the position",
        (
            Patch(
                "node/delivery.py",
                "if position is not None and now_ms < position[0] else None",
                "if position is not None and now_ms < 0 else None",
            ),
        ),
        profile_with(LATE, {**LATE_FAULTS, "clock-step": 40}, skew_ms=(100, 400)),
        begin=200,
    ),
    Mutant(
        "sends-before-acknowledged",
        "rule 5, after all of n's were acknowledged: order",
        "the next transaction's messages are sent before those of the one in flight are acknowledged",
        (
            Patch(
                "node/delivery.py",
                "{} if alone and not plan.writes_back else transaction.flush()",
                "transaction.flush() if plan.writes_back else {}",
            ),
        ),
    ),
    Mutant(
        "ahead-without-a-clock",
        "I2, what was selected ahead is due when it is sent",
        "what was planned ahead is sent though the clock has been set back since",
        (
            Patch(
                "node/delivery.py",
                "if now_ms < ahead.now_ms:",
                "if now_ms < 0:",
            ),
        ),
        profile_with(faults={"clock-step": 40}),
    ),
    Mutant(
        "late-does-not-wake",
        "no polling tick",
        "late arrivals and controls do not wake the master",
        (Patch("store/view.py", "return ingest.urgent or self._wake", "return self._wake"),),
        profile_with(LATE, LATE_FAULTS),
    ),
    Mutant(
        "earlier-does-not-wake",
        "an earlier arrival wakes it",
        "an arrival that falls due before the time for which the master waits does not wake it",
        (
            Patch(
                "store/view.py",
                "ingest.first_due_ms < self._wake_due_ms",
                "ingest.first_due_ms < 0",
            ),
        ),
    ),
)
