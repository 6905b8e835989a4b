"""The mutants of what a new leader goes on from, where the checkpoint topic is lost or its end."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from node.core.ports import Unconfirmed
from node.core.steps import RETRY_MS, Wait
from node.refusal import Refusing
from tests.simulation.overrides import Edit, Override, Wrap, afterwards
from tests.simulation.patches import Mutant, profile_with
from tests.simulation.profile import CHECKPOINTS_LOST, CHECKPOINTS_TRUNCATED

# Leaders that lose what only they knew of, and come back soon.
FORKS: Final = profile_with(
    faults={"checkpoints-truncated": 40, "crash-leader": 30, "crash": 30, "zookeeper-outage": 10},
    operator_share=0.0,
)
# The end is hidden from leaders that nobody else has told of it.
HIDDEN: Final = profile_with(
    faults={
        "checkpoints-held": 60,
        "checkpoints-truncated": 20,
        "crash-leader": 60,
        "zookeeper-outage": 20,
        "stall-follower": 30,
    },
    operator_share=0.0,
)
# The topic is made anew again and again, while clocks are apart.
MADE_ANEW: Final = profile_with(
    faults={"checkpoints-lost": 40, "crash-leader": 20, "zookeeper-outage": 20, "stall-follower": 20},
    operator_share=0.0,
    skew_ms=(0, 400),
    nodes=(3, 4),
)
# Nodes that have pruned, beside what is held, by what a new leader does not know of.
PRUNED: Final = profile_with(
    requests={"past": 20, "id-past": 10, "now": 20},
    faults={
        "operator-pause": 40,
        "checkpoints-truncated": 60,
        "crash-leader": 60,
        "zookeeper-outage": 30,
        "stall-follower": 20,
    },
    operator_share=0.0,
    replay_window_ms=(0,),
    carried_ms=(1_500, 4_000),
    fault_count=(100, 140),
    nodes=(3, 4),
)
CLAUSE: Final = "rule 6, the latest that is known"


def _mirrored_at_once(self: Any) -> Any:
    try:
        return self._election.mirrored()
    except Unconfirmed:
        yield Wait(self._clock.now_ms() + RETRY_MS)
        return None
    except Refusing as refusing:
        return refusing


def _of_any_topic(last: Any, others: Any, _: Any) -> Any:
    known = [*([] if last is None else [last]), *others]
    return max(known, key=lambda one: (one.lineage.leader_epoch, one.order), default=None)


LATEST_KNOWN: Final = (
    Mutant(
        "topic-decides",
        CLAUSE,
        "the topic decides whenever it has a checkpoint, though it has lost its end",
        (
            Wrap(
                "node.core.latest_known:latest_known",
                lambda original, last, *others: original(last, *others) if last is None else last,
            ),
        ),
        CHECKPOINTS_TRUNCATED,
    ),
    Mutant(
        "znode-not-asked",
        CLAUSE,
        "the znode's checkpoint does not count where the topic has one",
        (
            Edit(
                "node.core.recovery:Recovery._last_checkpoint",
                "(mirrored, own)",
                "(mirrored, own) if last is None else (own,)",
            ),
        ),
        CHECKPOINTS_TRUNCATED,
    ),
    Mutant(
        "own-not-asked",
        CLAUSE,
        "the node's own checkpoint does not count where the topic has one",
        (
            Edit(
                "node.core.recovery:Recovery._last_checkpoint",
                "(mirrored, own)",
                "(mirrored, own) if last is None else (mirrored,)",
            ),
        ),
        CHECKPOINTS_TRUNCATED,
    ),
    Mutant(
        "znode-not-waited-for",
        CLAUSE,
        "a new leader goes on without the znode's checkpoint where ZooKeeper does not answer",
        (Override("node.core.recovery:Recovery._mirrored", _mirrored_at_once),),
        FORKS,
        begin=300,
        seeds=700,
    ),
    Mutant(
        "znode-read-last",
        "rule 6, the znode is read first",
        "the znode is read after the topic: what another leader commits meanwhile looks like a lost end",
        (
            Edit(
                "node.core.recovery:Recovery._last_checkpoint",
                "mirrored = yield from self._mirrored()\n"
                "if isinstance(mirrored, StepDown):\n"
                "    return mirrored\n"
                "last, own = self._log.last_checkpoint(), self._view.checkpoint\n"
                "self._lineage = self._log.lineage()",
                "last, own = self._log.last_checkpoint(), self._view.checkpoint\n"
                "self._lineage = self._log.lineage()\n"
                "mirrored = yield from self._mirrored()\n"
                "if isinstance(mirrored, StepDown):\n"
                "    return mirrored",
            ),
        ),
        CHECKPOINTS_TRUNCATED,
    ),
    Mutant(
        "any-topic",
        "rule 6, of the same topic",
        "a later checkpoint of a topic that was lost decides over those of the new one",
        (Override("node.core.latest_known:latest_known", _of_any_topic),),
        CHECKPOINTS_LOST,
        begin=1_130,
    ),
    Mutant(
        "times-tell-topics",
        "rule 6, the topic that came last",
        "of several topics that are gone the one with the latest time decides, whose clocks they ever were",
        (
            Edit(
                "node.core.latest_known:latest_known",
                "{topic for one in known for topic in one.lineage.before}",
                "set()",
            ),
        ),
        MADE_ANEW,
        begin=400,
    ),
    Mutant(
        "any-leader-epoch",
        "rule 6, and nobody has gone on without it",
        "a later checkpoint of the topic decides, though somebody has gone on without having known of it",
        (Override("node.core.latest_known:_order", lambda one: (0, one.order)),),
        FORKS,
    ),
    Mutant(
        "old-lineage",
        "rule 6, the lineage is read after the topic",
        "a leadership takes over the lineage of the one before",
        (
            Wrap(
                "node.core.recovery:Recovery.first_checkpoint",
                lambda original, self, last: msgspec.structs.replace(
                    original(self, last), lineage=last.lineage
                ),
            ),
        ),
        FORKS,
    ),
    Mutant(
        "epoch-used-again",
        "rule 6, no epoch is used twice",
        "the next epoch is counted from what a new leader goes on from, not from all that it knows",
        (
            Edit(
                "node.core.recovery:Recovery._last_checkpoint",
                "max(self._epoch_known, *(one.epoch for one in known))",
                "max(self._epoch_known, found.epoch)",
            ),
        ),
        MADE_ANEW,
    ),
    Mutant(
        "left-open-is-left",
        "rule 6, aborted again",
        "what is open of the lane's own in the checkpoint topic, whose marker is lost, is left as it is",
        (Override("tests.simulation.log:Partition.has_left_open", lambda *_: False),),
        CHECKPOINTS_TRUNCATED,
    ),
    Mutant(
        "left-open-on-one-id",
        "rule 6, aborted again",
        "what is open of the lane's own in the checkpoint topic is aborted on the first id alone",
        (
            Edit(
                "tests.simulation.outbox:SimulatedOutbox._settle",
                "world.coordinator",
                "world.coordinator[:1]",
            ),
        ),
        CHECKPOINTS_TRUNCATED,
    ),
    Mutant(
        "left-open-not-seen",
        "rule 6, the topic is read to its end",
        "a new leader goes on though a transaction of the lane's own hides the end of the checkpoint topic",
        (Override("tests.simulation.log:Partition.is_own_open", lambda _: False),),
        HIDDEN,
    ),
    Mutant(
        "held-not-waited-for",
        "rule 6, the topic is read to its end",
        "a new leader goes on though a stranger's transaction hides the end of the checkpoint topic",
        (Override("tests.simulation.log:Partition.is_held", lambda _: False),),
        HIDDEN,
    ),
    Mutant(
        "pruned-is-counted",
        "rule 6, a lost end is counted anew",
        "what was pruned by a checkpoint that was lost counts as pending behind an earlier one",
        (
            Wrap(
                "store.checkpoint:Frontier.is_behind",
                lambda original, self, last: bool(self.overruns) and original(self, last),
            ),
        ),
        PRUNED,
    ),
    Mutant(
        "pruned-is-taken-off",
        "rule 6, a lost end is counted anew",
        "a cancel of what was pruned by a checkpoint that was lost is taken from the count",
        (Override("store.apply:BatchApply._is_gone", lambda *_: False),),
        PRUNED,
    ),
    Mutant(
        "released-behind",
        "rule 6, nothing behind the position goes",
        "what was held when it was pruned past goes where a lost end has made its hold unknown",
        (Wrap("store.kept:_Staying.__init__", afterwards(_position=(1 << 62, 0, 0))),),
        PRUNED,
    ),
)
