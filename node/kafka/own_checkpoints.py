"""Which records of the checkpoint topic are the service's own, and which of them is the latest.

Whoever may write to that topic could otherwise say what is delivered. So a checkpoint is signed, over the
topic, the partition, key and value. What has no valid signature is passed over. A copy of an older checkpoint
has one: so not the last one in the topic counts, but the latest by `Checkpoint.order`. A copy of one that was
aborted would be the latest: so what was aborted is read as well, and what is the same as that is a copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import structlog

from delayline.headers import H_SIGNATURE
from delayline.record import ConsumerRecord
from delayline.signing import BadSignatureError, Keyring, signature_of
from node.kafka.fetch.records import ABORTED, LogRecord
from store.checkpoint import Checkpoint, UnreadableCheckpoint

log = structlog.get_logger("delayline.checkpoints")

UNSIGNED: Final = "unsigned"
FORGED: Final = "forged"
COPIED: Final = "copied"
MOST_ABORTED: Final = 1_000  # remembered of each kind


class KeysBehind(UnreadableCheckpoint):
    """It may be the service's: it is signed with a key of this cluster, `id`, that is not known here."""

    def __init__(self, what: str, id_: str) -> None:
        super().__init__(what)
        self.id = id_


def headers_of(checkpoint: Checkpoint, raw: bytes, topic: str, ring: Keyring) -> Any:
    """The headers of a checkpoint's record, whose value is `raw`: a list of `Header`, but the client's
    stub wants another one.
    """
    return [(H_SIGNATURE, ring.sign_checkpoint(topic, checkpoint.lane, checkpoint.record_key, raw))]


def own_checkpoint(record: ConsumerRecord, topic: str, ring: Keyring) -> Checkpoint | str:
    """The checkpoint that a record is; or, if it is not the service's, of what kind it is.

    Raises `UnreadableCheckpoint` where one of the service's own cannot be read: for a start, where its key is
    not known (`KeysBehind`). Who passed over that one would go on from an older one.
    """
    if record.offset >= ring.checkpoints_from.get(record.partition, 0):
        signature = signature_of(record.headers)
        if signature is None:
            return UNSIGNED
        try:
            ring.check_checkpoint(signature, topic, record.partition, record.key, record.value)
        except BadSignatureError as error:
            if error.unknown_key is not None:
                raise KeysBehind(str(error), error.unknown_key) from error
            return FORGED
    return Checkpoint.decode(record.value or b"")


class Placed(NamedTuple):
    """A checkpoint of the service's own, and where it stands."""

    offset: int
    checkpoint: Checkpoint


def first_own(records: Iterable[ConsumerRecord], topic: str, ring: Keyring) -> Placed | None:
    """The first of the service's own. Raises `UnreadableCheckpoint`."""
    for record in records:
        found = own_checkpoint(record, topic, ring)
        if isinstance(found, Checkpoint):
            return Placed(record.offset, found)
    return None


class OwnCheckpoints:
    """The latest checkpoint of a lane among the records taken so far, in the order of the topic.

    The service never commits what it has aborted: after any abort comes a recovery, whose first checkpoint
    bears another time (node/core/recovery.py). Of what was aborted only what would be the latest is
    remembered. That is little: the next one that is committed is of a higher epoch, or the first one of the
    same. That may be tried again and again, so first ones are kept apart. Should they be too many, the oldest
    are forgotten: they repeat the one before, so that their copies say nothing new but an epoch.
    """

    def __init__(self, topic: str) -> None:
        self.latest: Checkpoint | None = None
        self._aborted: tuple[list[Checkpoint], list[Checkpoint]] = [], []  # of these, the first ones: apart
        self.rejected: Counter[str] = Counter()  # by kind: what was not the service's, or a copy
        self._topic = topic
        self._reported_to = 0  # so that what is read twice is counted once

    def take(self, record: LogRecord, ring: Keyring) -> None:
        """Raises `UnreadableCheckpoint`."""
        aborted = record.flaw is ABORTED
        try:
            found = own_checkpoint(record, self._topic, ring)
        except KeysBehind:
            raise
        except UnreadableCheckpoint:
            if aborted:
                return
            raise
        self.weigh(record, found, aborted=aborted)

    def weigh(self, record: ConsumerRecord, found: Checkpoint | str, *, aborted: bool) -> None:
        """The same, of a record that was looked at."""
        if aborted:
            self._remember(found)
        elif isinstance(found, str):
            self._report(found, record)
        elif self._is_not_older(found) and found not in self._aborted[found.first]:
            self.latest = found
            for spent in self._aborted:
                spent[:] = filter(self._is_not_older, spent)
        else:
            self._report(COPIED, record)

    def _is_not_older(self, found: Checkpoint) -> bool:
        return self.latest is None or found.order >= self.latest.order

    def _remember(self, aborted: Checkpoint | str) -> None:
        if isinstance(aborted, Checkpoint) and self._is_not_older(aborted):
            spent = self._aborted[aborted.first]
            if aborted not in spent:
                spent.append(aborted)
                del spent[:-MOST_ABORTED]

    def reset(self, *, another_topic: bool = False) -> None:
        """It is read again, from another place; or it is another topic."""
        self.latest = None
        self._aborted = [], []
        if another_topic:
            self._reported_to = 0

    def _report(self, kind: str, record: ConsumerRecord) -> None:
        if record.offset < self._reported_to:
            return
        self._reported_to = record.offset + 1
        self.rejected[kind] += 1
        if self.rejected[kind] == 1:
            log.error(
                "checkpoint-rejected",
                kind=kind,
                record=f"{self._topic}/{record.partition}/{record.offset}",
                consequence="it is passed over",
                way_out=f"see who may write to {self._topic}: only the nodes have to",
            )
