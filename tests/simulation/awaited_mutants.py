"""The mutants of what makes nothing wait for what it does not depend on: awaited, deferred, the last word.

Two clauses of rule 3 count only where the timestamps of a partition step back by more than a park: that what
follows from a moved row carries its word, and that a reschedule below its row's origin is deferred. They have
tests of their own (tests/unit/test_moves.py).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from delayline.names import parse_source
from store.arrivals import Kind
from store.awaited import NOTHING
from store.moves import DEFERRED, OVERTAKEN, UNKNOWN
from store.rows import message_target
from tests.simulation.overrides import Edit, Override, Wrap
from tests.simulation.patches import Mutant, profile_with
from tests.simulation.profile import Profile

STALLED: Final = {"foreign-stall": 40, "crash-leader": 20, "target-leader-lost": 10}
MOVED: Final = profile_with(
    {"reschedule": 50, "run-now": 15, "id-future": 40, "id-keep": 15}, STALLED, ids=(1, 4)
)
FOLLOWED: Final = profile_with(
    {"id-interval": 40, "id-cron": 10, "interval": 20, "cancel": 25, "cancel-source": 25, "reschedule": 20},
    STALLED,
    ids=(1, 4),
)
FULL: Final = profile_with(
    {"id-interval": 40, "interval": 30, "cancel": 25, "cancel-source": 25, "reschedule": 30, "id-future": 30},
    STALLED,
    ids=(3, 6),
    awaited=(1,),
)

WAITS: Final = """
    paused = self._pauses()
    written_back = self.write_back.written_back or {}
    if self._in_flight is None and not self._view.has_applied(written_back):
        self._view.wake_always()
        yield Wait(None)
        continue
"""


def _knows_nothing_moved(original: Any, self: Any, *others: Any) -> None:
    original(self, *others)
    self._moved.clear()


def _moves_nothing(original: Any, self: Any, *others: Any, **named: Any) -> Any:
    before = set(self._moved)
    resolution = original(self, *others, **named)
    self._moved = before
    return resolution


def _of_late_ones_none(original: Any, self: Any, rows: Any) -> Any:
    tip = self._tip
    return frozenset(
        key
        for key, raw in rows
        if key in original(self, [(key, raw)])
        and (tip.position is None or key > tip.position or tip.is_held(key, message_target(raw)))
    )


def _to_written_back(original: Any, self: Any, last: Any) -> Any:
    seen = {p: max(offset, last.seen.get(p, 0)) for p, offset in last.written_back.items()}
    return original(self, msgspec.structs.replace(last, seen=last.seen | seen))


def _of_its_root(original: Any, row: Any, parent: Any, *others: Any) -> Any:
    request = original(row, parent, *others)
    return request if row.root is None else request._replace(parent=parse_source(row.root)[2])


def _deferred_instead_of_overtaken(original: Any, *arguments: Any) -> Any:
    outcome = original(*arguments)
    return DEFERRED if outcome == OVERTAKEN else outcome


AWAITED: Final = (
    Mutant(
        "waits-for-what-was-written-back",
        "rule 1, nothing waits",
        "nothing is selected before what was written back has been applied",
        (Edit("node.core.delivery:Delivery._deliver", "paused = self._pauses()", WAITS),),
        FOLLOWED,
    ),
    Mutant(
        "recovers-to-written-back",
        "rule 6, not to written-back",
        "a new leader reads the log to all that was written back",
        (Wrap("node.core.recovery:Recovery._catch_up", _to_written_back),),
        FOLLOWED,
    ),
    Mutant(
        "moved-is-delivered",
        "rule 1, a moved row is passed over",
        "a row that is awaited as moved is delivered where it was",
        (Wrap("store.moves:Moving.__init__", _knows_nothing_moved),),
        MOVED,
    ),
    Mutant(
        "moved-here-is-delivered",
        "rule 1, a moved row is passed over",
        "a row that the selection itself moves is delivered as well",
        (Wrap("store.moves:Moving._resolve", _moves_nothing),),
        MOVED,
    ),
    Mutant(
        "late-and-moved-is-delivered",
        "rule 1, late or due",
        "a late row that is moved is delivered",
        (Wrap("store.moves:Moving.moved_of", _of_late_ones_none),),
        profile_with(
            {"reschedule": 50, "run-now": 20, "id-past": 30, "id-now": 20},
            STALLED | {"broker-clock-step": 15},
            transactional_share=0.4,
            ids=(1, 4),
        ),
    ),
    Mutant(
        "forgets-awaited-when-applied",
        "rule 5, what seen has not passed",
        "what is applied is not listed any more, though it is not seen yet",
        (
            Edit(
                "node.core.delivery:Delivery._checkpoint",
                "last.awaited.beyond(frontier.seen)",
                "last.awaited.beyond(self._view.reached().applied)",
            ),
        ),
        profile_with({"cancel": 40, "reschedule": 40, "id-future": 30}, STALLED, ids=(1, 4), messages=(1, 2)),
    ),
    Mutant(
        "first-lists-nothing",
        "rule 6, repeats the last one",
        "the first checkpoint of an epoch does not say what is awaited",
        (
            Wrap(
                "node.core.recovery:Recovery.first_checkpoint",
                lambda original, *arguments: msgspec.structs.replace(original(*arguments), awaited=NOTHING),
            ),
        ),
        MOVED,
    ),
    Mutant(
        "looks-ahead-over-ids",
        "rule 5, the next selection waits for the commit",
        "what comes next is selected while what is written back with an id is sent",
        (Edit("node.core.delivery:Delivery._plan_next", "sent.plan.written_back.awaits", "False"),),
        profile_with(
            {"reschedule": 50, "id-interval": 30, "id-future": 30}, STALLED, ids=(1, 3), small=(1, 2)
        ),
    ),
    Mutant(
        "followed-is-too-late",
        "rule 2, what follows is awaited",
        "a cancel is too late though what follows the row that it removed will be dropped",
        (
            Edit(
                "store.answers:Answering._is_effective",
                "removed is not None and self._awaited.successor(partition, removed.offset) is not None",
                "False",
            ),
        ),
        FOLLOWED,
    ),
    Mutant(
        "unnamed-followed-is-too-late",
        "rule 2, what follows is awaited",
        "a cancel by source is too late though what follows will be dropped",
        (Override("store.awaited:Awaited.follows_source", lambda *_: False),),
        FOLLOWED,
    ),
    Mutant(
        "second-cancel-of-a-source-is-applied",
        "rule 2, the first pending answer",
        "a cancel by source ends what another one before it has ended",
        (
            Override(
                "store.answers:_is_first", lambda pending: pending.removed is not None or pending.id is None
            ),
        ),
        profile_with(
            {"interval": 50, "cron": 20, "cancel-source": 90},
            {"foreign-stall": 80},
            transactional_share=0.3,
            partitions=(1, 1),
            batches=(1, 3),
        ),
    ),
    Mutant(
        "answers-though-unlisted",
        "rule 2, nobody can say",
        "a cancel is answered though what follows may be awaited and not listed",
        (
            Edit(
                "store.answers:Answering._may_be_followed",
                "self._awaited.may_hide(partition, applied)",
                "False",
            ),
        ),
        FULL,
    ),
    Mutant(
        "unlisted-is-not-raised",
        "awaited, unlisted",
        "what is not listed for want of room is not said to be",
        (
            Wrap(
                "store.awaited:Awaited.with_written",
                lambda original, self, *others: msgspec.structs.replace(
                    original(self, *others), unlisted=self.unlisted
                ),
            ),
        ),
        FULL,
    ),
    Mutant(
        "moved-without-a-bound",
        "awaited, there is room",
        "a row is moved though the list of what was moved is full",
        (Override("store.moves:Moving._count", lambda *_: 0),),
        profile_with({"reschedule": 50, "id-future": 60}, STALLED, ids=(6, 12), awaited=(1, 2)),
    ),
    Mutant(
        "moves-what-is-moved",
        "rule 3, deferred",
        "a row that is awaited as moved is moved again",
        (
            Edit(
                "store.moves:Moving._against",
                "successor is not None and successor.moved_by is not None",
                "False",
            ),
        ),
        MOVED,
    ),
    Mutant(
        "deferred-for-an-earlier-word",
        "rule 3, deferred",
        "a reschedule is deferred though its row is awaited as moved by a later one",
        (Wrap("store.moves:Moving._against", _deferred_instead_of_overtaken),),
        MOVED,
    ),
    Mutant(
        "followed-is-too-late-to-move",
        "rule 3, deferred",
        "a reschedule is too late though what follows its row is awaited",
        (
            Wrap(
                "store.moves:Moving._may_be_followed",
                lambda original, self, partition, entry, stored: (
                    self._awaited.successor(partition, entry.offset) is None
                    and original(self, partition, entry, stored)
                ),
            ),
        ),
        FOLLOWED,
    ),
    Mutant(
        "too-late-though-unlisted",
        "rule 3, deferred",
        "a reschedule is too late though what follows its row may be awaited and not listed",
        (
            Wrap(
                "store.moves:Moving._may_be_followed",
                lambda original, self, partition, entry, stored: (
                    self._awaited.successor(partition, entry.offset) is not None
                    and original(self, partition, entry, stored)
                ),
            ),
        ),
        FULL,
        seeds=600,
    ),
    Mutant(
        "looks-ahead-with-what-was-awaited",
        "rule 2, what follows is awaited",
        "what is selected beside a transaction that is sent takes for awaited what that one has seen",
        (
            Edit(
                "store.selection:select",
                "write_back._replace(awaited=write_back.awaited.beyond(tip.seen))",
                "write_back",
            ),
        ),
        # The last of a chain, or what was parked, is hidden until it is due, and so delivered by the first
        # selection that sees it; another follows beside it, and meanwhile a cancel of its source is read.
        Profile(
            requests={"interval": 60, "past": 10, "now": 10, "cancel-source": 150},
            faults={"foreign-stall": 40, "stall-apply": 60, "target-leader-lost": 30},
            request_count=(250, 300),
            fault_count=(60, 90),
            nodes=(1, 1),
            partitions=(1, 1),
            ids=(1, 2),
            delay_ms=(0, 50),
            messages=(1, 2, 3),
            small=(1,),
            max_parks=(3,),
            operator_share=0.0,
            skew_ms=(0,),
            transactional_share=0.0,
            interleave=0.6,
            turns=(45, 45, 1, 4),
            batches=(1,),
        ),
        begin=4_600,
    ),
    Mutant(
        "deferred-for-ever",
        "rule 3, twice at most",
        "a reschedule of what is followed is deferred as often as may be",
        (Override("store.moves:_may_be_deferred", lambda _: True),),
        profile_with(
            {"id-interval": 90, "reschedule": 60},
            STALLED | {"target-leader-lost": 40, "operator-pause": 20},
            ids=(1, 1),
            partitions=(1, 1),
            batches=(1,),
            messages=(1, 2),
        ),
        begin=350,
        seeds=300,
    ),
    Mutant(
        "word-is-its-own-place",
        "rule 3, its word is its root's",
        "a reschedule that was deferred counts as if it had been made then",
        (Override("store.moves:last_request_of", lambda _, offset: offset),),
        MOVED,
    ),
    Mutant(
        "parent-is-the-root",
        "rule 3, the parent of what it writes",
        "what a reschedule that was deferred writes back has the user's own as its parent",
        (Wrap("node.core.written_back:moved_request", _of_its_root),),
        MOVED,
    ),
    Mutant(
        "first-word-counts",
        "rule 3, the last word counts",
        "of several reschedules of an id in a selection the first one is carried out",
        (Wrap("store.moves:_last_word_first", lambda original, reschedules: original(reschedules)[::-1]),),
        MOVED,
    ),
    Mutant(
        "expiry-is-not-passed-on",
        "rule 3, the expiry that those before it have said",
        "what an overtaken reschedule said of the expiry is gone",
        (Override("store.moves:Moving._pass_on_expiry", lambda *_: None),),
        MOVED,
    ),
    Mutant(
        "cancelled-is-unknown",
        "rule 3, overtaken",
        "a reschedule that a later cancel has overtaken is said to have found nothing",
        (Override("store.moves:Moving._without_entry", lambda *_: UNKNOWN),),
        profile_with({"reschedule": 40, "cancel": 40, "id-future": 30}, ids=(1, 4)),
    ),
    Mutant(
        "copy-of-a-deferred-counts",
        "rule 4, a copy changes nothing",
        "a copy of a reschedule that was deferred is one",
        (
            Wrap(
                "store.apply:BatchApply._is_copy",
                lambda original, self, one: original(self, one) and one.kind is not Kind.RESCHEDULE,
            ),
        ),
        profile_with({"reschedule": 50, "run-now": 15, "id-future": 40, "copied": 40}, STALLED, ids=(1, 4)),
    ),
)
