"""The mutants of what is signed: what strangers forge or copy changes nothing; the service's own counts."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import msgspec

from delayline.headers import H_SIGNATURE
from node.kafka.own_checkpoints import FORGED, UNSIGNED, KeysBehind
from store.arrivals import Kind
from store.checkpoint import Checkpoint
from tests.simulation.overrides import Edit, Override, Wrap, beside
from tests.simulation.patches import Mutant, profile_with
from tests.simulation.profile import FAULTS, KEYS_LOST, Profile

STRANGERS: Final = {"forged": 30, "copied": 30, "interval": 20, "id-interval": 10, "reschedule": 20}
ENDED: Final = profile_with({"id-interval": 25, "id-cron": 10, "cancel": 25, "reschedule": 15, "id-keep": 10})
MUCH_WRITTEN_BACK: Final = {"interval": 30, "id-interval": 20, "reschedule": 20, "copied": 20}
STRANGE_CHECKPOINTS: Final = profile_with(faults={"strange-checkpoint": 40, "crash-leader": 20})
ABORTING: Final = {"strange-checkpoint": 60, "commit-aborted": 30, "crash-leader": 20}
ABORTED_CHECKPOINTS: Final = profile_with(faults=ABORTING)

# Chains whose rows are late, a few at a time, after a transaction that was aborted had read on.
LATE_CHAINS: Final = Profile(
    requests={"interval": 40, "now": 20},
    faults=FAULTS | {"foreign-stall": 40, "crash-leader": 40, "commit-aborted": 40, "broker-clock-step": 15},
    messages=(1, 2, 3),
    operator_share=0.0,
    transactional_share=0.5,
)

# Two cancels in a row stand before what the first of them has ended, since requests become visible many at a
# time; a transaction answers one of them, and another node, which lags, is the next leader.
ANSWERED_ONE_BY_ONE: Final = Profile(
    requests={"id-interval": 30, "id-cron": 10, "cancel": 60},
    faults={
        "foreign-stall": 60,
        "target-leader-lost": 100,
        "stall-apply": 30,
        "stall-follower": 5,
        "crash-leader": 30,
        "crash": 10,
        "resign": 20,
        "expire-session": 10,
        "commit-late": 5,
    },
    fault_count=(60, 100),
    nodes=(3, 4),
    partitions=(1, 1),
    ids=(1, 3),
    messages=(1,),
    operator_share=0.0,
    transactional_share=0.5,
    turns=(50, 10, 20, 8),
    batches=(60,),
)


def _take(kind: Any, original: Any, record: Any, *others: Any) -> Any:
    found = original(record, *others)
    return Checkpoint.decode(record.value or b"") if found == kind else found


def _forged_if_keys_are_behind(original: Any, *arguments: Any) -> Any:
    try:
        return original(*arguments)
    except KeysBehind:
        return FORGED


def _any_control_is_applied(self: Any, partition: Any, whose: Any, parent: Any, above: Any = None) -> None:
    offset = self._first_pending(partition, whose, 0 if above is None else parent + above)
    if offset is not None:
        pending = self._pending_answer(partition, offset)
        self._store_pending_answer(partition, offset, msgspec.structs.replace(pending, effective=True))


def _without_the_headers_values(original: Any, partition: Any, key: Any, headers: Any) -> Any:
    return original(partition, key, [(name, None) for name, _ in headers])


def _without_the_value(original: Any, secret: Any, purpose: Any, parts: Any, value: Any) -> Any:
    return original(secret, purpose, parts, None if value is None else bytes(len(value)))


def _as_of_the_frontier(original: Any, *arguments: Any, **named: Any) -> Any:
    chosen = original(*arguments, **named)
    return msgspec.structs.replace(chosen, as_of=dict(chosen.frontier.read) if chosen.as_of else {})


def _at_the_time(original: Any, self: Any, last: Any) -> Any:
    return msgspec.structs.replace(original(self, last), at_ms=self._clock.now_ms())


def _with_the_counts_themselves(original: Any, self: Any, keyring: Any, as_of: Any, counts: Any) -> None:
    original(self, keyring, as_of, counts)
    self.counts = counts


def _no_copy(original: Any, self: Any, arrival: Any) -> Any:
    original(self, arrival)
    return False


def _no_copy_of_the_last(original: Any, self: Any, arrival: Any) -> Any:
    return arrival.serial != self.serials.get(arrival.partition) and original(self, arrival)


def _copy_of_a_selection(original: Any, self: Any, arrival: Any) -> Any:
    last = self.serials.get(arrival.partition)
    if arrival.serial is not None and last is not None and arrival.serial[0] <= last[0]:
        return True
    return original(self, arrival)


SIGNED: Final = (
    Mutant(
        "strangers-checkpoint-taken",
        "rule 6, signed checkpoints",
        "whoever writes to the checkpoint topic says what is delivered",
        (Wrap("node.kafka.own_checkpoints:own_checkpoint", partial(_take, FORGED)),),
        STRANGE_CHECKPOINTS,
    ),
    Mutant(
        "unknown-key-passed-over",
        "rule 6, what a key of the cluster has signed that is not known",
        "a node whose keys are behind leads from an older checkpoint",
        (Wrap("node.kafka.own_checkpoints:own_checkpoint", _forged_if_keys_are_behind),),
        KEYS_LOST,
    ),
    Mutant(
        "unknown-key-rejected",
        "rule 4, what a key of the cluster has signed that is not known",
        "a node whose keys are behind rejects what the service has written back",
        (
            Wrap(
                "delayline.parser:_refuse",
                lambda original, code, detail, serial=None, _=None: original(code, detail, serial),
            ),
        ),
        KEYS_LOST,
    ),
    Mutant(
        "keys-not-put-back",
        "Znodes, keys",
        "a node that knows more keys than ZooKeeper takes over what stands there",
        (
            Wrap(
                "delayline.signing:Keyring.united",
                lambda original, self, other: (
                    other if set(self.keys) >= set(other.keys) else original(self, other)
                ),
            ),
        ),
        KEYS_LOST,
    ),
    Mutant(
        "unsigned-checkpoint-taken",
        "rule 6, signed checkpoints",
        "a checkpoint without a signature counts",
        (Wrap("node.kafka.own_checkpoints:own_checkpoint", partial(_take, UNSIGNED)),),
        STRANGE_CHECKPOINTS,
    ),
    Mutant(
        "old-checkpoint-taken",
        "rule 6, the latest checkpoint counts",
        "the last checkpoint in the topic counts, though it is a copy of an older one",
        (Override("node.kafka.own_checkpoints:OwnCheckpoints._is_not_older", lambda *_: True),),
        STRANGE_CHECKPOINTS,
    ),
    Mutant(
        "first-checkpoint-tried-again",
        "rule 6, the latest checkpoint counts",
        "a first checkpoint may be the same as one that was aborted, and is taken for its copy",
        (Wrap("node.core.recovery:Recovery.first_checkpoint", _at_the_time),),
        profile_with(
            {"forged": 20, "copied": 30},
            {"strange-checkpoint": 40, "commit-aborted": 150, "crash-leader": 60, "resign": 60},
            fault_count=(80, 120),
        ),
    ),
    Mutant(
        "aborted-checkpoint-counts",
        "rule 6, the latest checkpoint counts",
        "a copy of a checkpoint that was aborted counts",
        (Override("node.kafka.own_checkpoints:OwnCheckpoints._remember", lambda *_: None),),
        ABORTED_CHECKPOINTS,
    ),
    Mutant(
        "signature-not-checked",
        "rule 4, signed",
        "whoever sends delay-parent is believed",
        (
            Edit(
                "delayline.signing:Keyring._check",
                "not hmac.compare_digest(made, match[2])",
                "len(made) != len(match[2])",
            ),
        ),
        profile_with(STRANGERS),
    ),
    Mutant(
        "unsigned-counts",
        "rule 4, signed",
        "a request without a signature is believed to be the service's",
        (
            Wrap(
                "delayline.parser:_serial",
                lambda original, record, found, keyring: (
                    original(record, found, keyring) if H_SIGNATURE in found else None
                ),
            ),
        ),
        profile_with(STRANGERS),
    ),
    # Not the key: what is altered in that alone has a serial that is spent, and is a copy (test_signing.py).
    # What has another value is one, too; but a checkpoint is a value.
    *(
        Mutant(
            f"{what}-not-signed",
            "rules 4 and 6, signed",
            f"the {what} can be altered",
            (Wrap(name, around),),
            profile_with(STRANGERS, {"strange-checkpoint": 40}),
        )
        for what, name, around in (
            ("header", "delayline.signing:_parts_of", _without_the_headers_values),
            ("value", "delayline.signing:_digest", _without_the_value),
        )
    ),
    Mutant(
        "pending-below-the-parent",
        "rule 2, the first pending answer above the parent",
        "the first one of the id that waits is taken for the one that ended it, wherever it stands",
        (Override("store.apply:BatchApply._answer_first_pending", _any_control_is_applied),),
        ENDED,
    ),
    Mutant(
        "pending-that-took-no-place",
        "rule 2, no later one takes its place",
        "a later pending answer is taken for the one that has been answered",
        (
            Override(
                "store.apply:BatchApply._answer_first_pending", partial(_any_control_is_applied, above=1)
            ),
        ),
        ANSWERED_ONE_BY_ONE,
    ),
    Mutant(
        "pending-of-this-batch-not-found",
        "rule 2, the first pending answer above the parent",
        "a pending answer that is applied with the dropped request is not found",
        (Wrap("store.apply:BatchApply._first_pending_of", beside(_endings={})),),
        ENDED,
    ),
    Mutant(
        "serial-not-checked",
        "rule 4, a copy changes nothing",
        "a copy of what the service has written back counts",
        (Wrap("store.apply:BatchApply._is_copy", _no_copy),),
        profile_with(STRANGERS),
    ),
    Mutant(
        "aborted-serial-not-spent",
        "rule 4, a copy changes nothing",
        "a copy of what the service has written back and aborted counts",
        (
            Wrap(
                "store.apply:BatchApply._resolve",
                lambda original, self, arrival: (
                    None if arrival.kind is Kind.SPENT else original(self, arrival)
                ),
            ),
        ),
        profile_with(STRANGERS, {"commit-aborted": 30, "crash-leader": 20}),
    ),
    Mutant(
        "last-one-counts-again",
        "rule 4, a copy changes nothing",
        "a copy of what was written back last counts",
        (Wrap("store.apply:BatchApply._is_copy", _no_copy_of_the_last),),
        profile_with(STRANGERS),
    ),
    Mutant(
        "serial-without-its-count",
        "rule 4, what the service has written is no copy",
        "of what one selection writes back, only the first counts",
        (Wrap("store.apply:BatchApply._is_copy", _copy_of_a_selection),),
        profile_with(MUCH_WRITTEN_BACK),
    ),
    Mutant(
        "serial-not-stored",
        "rule 4, a copy changes nothing",
        "a node that was started again takes a copy for the service's",
        (Edit("store.frontiers:Frontiers.write_heard", "serials != known.serials", "False"),),
        profile_with(STRANGERS, {"crash": 40}),
    ),
    Mutant(
        "as-of-held-back",
        "rule 4, what the service has written is no copy",
        "as-of is the frontier's read, which late rows hold back",
        (Wrap("store.selection:select", _as_of_the_frontier),),
        LATE_CHAINS,
    ),
    Mutant(
        "counts-begin-anew",
        "rule 4, what the service has written is no copy",
        "a new leader counts from its reader's place, not from the log's end",
        (Edit("node.core.recovery:Recovery._catch_up", "self._log.high_watermarks()", "dict(ends)"),),
        profile_with(
            MUCH_WRITTEN_BACK,
            {"foreign-stall": 40, "crash-leader": 30, "commit-aborted": 20},
            transactional_share=0.5,
        ),
    ),
    Mutant(
        "plan-made-anew-counts-on",
        "rule 4, what the service has written is no copy",
        "a plan made anew takes further counts, and some are above the offsets of their records",
        (Wrap("node.core.written_back:Stamp.__init__", _with_the_counts_themselves),),
        profile_with(MUCH_WRITTEN_BACK, small=(1, 2)),
    ),
)
