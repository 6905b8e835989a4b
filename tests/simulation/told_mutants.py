"""The mutants of whether the outcomes are whole (docs/design.md, rule 12): a node that begins believes what
they say of requests to keep, and what they do not say.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.simulation.carried_mutants import bare
from tests.simulation.overrides import Edit, Override
from tests.simulation.patches import Mutant

# Duplicates all the time, which would wait if they were none; the outcomes that call them so are lost, and
# nodes lose their stores.
OUTCOMES_LOST: Final = bare(
    {"id-keep": 60, "id-future": 20, "now": 10},
    {"outcomes-lost": 40, "empty": 40, "crash-leader": 5, "resign": 10},
    request_count=(150, 180),
    fault_count=(30, 50),
    nodes=(2, 3),
    partitions=(1, 1),
    ids=(1, 3),
    delay_ms=(500, 3_000),
    messages=(20, 100),
    dedup_window_ms=(300, 1_000),
    carry_rest_ms=(0,),
    retention_ms=(400,),
    skew_ms=(0, 20),
    transactional_share=0.0,
    quiet=0.3,
    begins=1,
)
# Leaders change more often than they look, so that one has an older look than the one before it.
LED_BY_MANY: Final = replace(
    OUTCOMES_LOST, faults=OUTCOMES_LOST.faults | {"resign": 40, "crash-leader": 20}, nodes=(3, 3)
)
# What it has told is lost before anybody has looked, or while it tells it; what waits is carried later.
TOLD_UNSEEN: Final = replace(
    OUTCOMES_LOST,
    requests=OUTCOMES_LOST.requests | {"id-future": 5},
    faults=OUTCOMES_LOST.faults | {"empty": 100, "outcomes-lost": 80},
    request_count=(60, 70),
    nodes=(3, 3),
    ids=(1, 2),
    delay_ms=(2_000, 9_000),
    retention_ms=(3_000,),
)

TELLING: Final = (
    Mutant(
        "begins-whatever-the-outcomes-lack",
        "rule 12, whether the outcomes are whole",
        "a node begins though what was told may be missing",
        (Override("store.told:lacks", lambda *_: None),),
        OUTCOMES_LOST,
    ),
    Mutant(
        "never-looked-at-is-whole",
        "rule 12, whether the outcomes are whole",
        "outcomes that no leader has looked at are believed",
        (Edit("store.told:lacks", "'no leader has looked at it yet'", "None"),),
        OUTCOMES_LOST,
    ),
    Mutant(
        "begins-without-a-look",
        "rule 12, a node that begins looks, too",
        "a node that begins goes by what leaders have found alone",
        (Edit("store.told:lacks", "looked(told, look).whole_since_ms", "told.whole_since_ms"),),
        OUTCOMES_LOST,
    ),
    Mutant(
        "first-look-believes-what-was-before",
        "rule 12, a lane that has seen nothing yet",
        "what is found first is whole, though the lane has told before",
        (Edit("store.told:looked", "0 if last is None and is_first else look.at_ms", "0"),),
        OUTCOMES_LOST,
    ),
    Mutant(
        "first-look-before-it-carries",
        "rule 12, a lane that has seen nothing yet",
        "what is found first is whole as long as nothing has been carried, whatever was told",
        (Edit("node.core.delivery:_told", "any(last.seen.values())", "any(last.carried.values())"),),
        TOLD_UNSEEN,
        begin=600,
    ),
    Mutant(
        "looks-once-it-has-told",
        "rule 12, a look from before the transaction",
        "a checkpoint goes by a look that comes after what its transaction tells",
        (
            Edit(
                "node.core.delivery:Delivery._send_transaction",
                "self._checkpoint(planned, offsets, look)",
                "self._checkpoint(planned, offsets, self._config.age.outcomes())",
            ),
        ),
        TOLD_UNSEEN,
        begin=1_500,
    ),
    Mutant(
        "outcomes-made-anew-are-the-same",
        "rule 12, of any other than the last one",
        "a topic of another id is taken for the last one",
        (
            Edit("store.told:looked", "last is None or last.topic_id != look.topic_id", "last is None"),
            Edit("store.told:lacks", "told.topic_id != look.topic_id", "False"),
        ),
        OUTCOMES_LOST,
    ),
    Mutant(
        "outcomes-grown-past-a-lost-end",
        "rule 12, the end alone does not tell",
        "a later leader is not asked where what the earlier ones have written ends",
        (Edit("store.told:_has_end", "end >= last.end", "True"),),
        OUTCOMES_LOST,
    ),
    Mutant(
        "outcomes-begin-unnoticed",
        "rule 12, something has gone if its beginning has moved",
        "retention takes outcomes, and they are believed to be there",
        (Edit("store.told:looked", "look.begin > last.begin", "False"),),
        OUTCOMES_LOST,
    ),
    Mutant(
        "outcomes-gone-are-young",
        "rule 12, where none is left",
        "where no outcome is left, none has been lost",
        (
            Edit(
                "store.told:looked",
                "written_ms if look.first_ms is None else look.first_ms",
                "look.first_ms or 0",
            ),
        ),
        OUTCOMES_LOST,
    ),
    Mutant(
        "outcomes-between-two-looks",
        "rule 12, where none is left",
        "what has come and gone between two looks is as old as what was there at the first",
        (
            Edit(
                "store.told:looked",
                "last.written_ms if look.end == last.end else look.at_ms",
                "last.written_ms",
            ),
        ),
        OUTCOMES_LOST,
    ),
    Mutant(
        "older-look-counts",
        "rule 12, a look that is shorter in the same epoch",
        "a look from before the last one counts",
        (Edit("store.told:_has_end", "None if is_older else True", "True"),),
        LED_BY_MANY,
        begin=1_300,
    ),
)
