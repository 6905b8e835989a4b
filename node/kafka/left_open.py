"""What the checkpoint topic itself says of a checkpoint that was left open there (rule 5).

It is read as it stands, committed or not, from where the transaction begins. How much that is, whoever may
write there decides. So nothing is kept but what decides, and what cannot be the service's own is not opened.
"""

from __future__ import annotations

from node.core.ports import KeyringSource
from node.kafka.fetch.batches import RecordBatch, open_batch
from node.kafka.fetch.compression import Scratch
from node.kafka.own_checkpoints import own_checkpoint
from store.checkpoint import Checkpoint, UnreadableCheckpoint


class LeftOpen:
    """What was read so far, up to `reached`.

    `checkpoint`: the last one that the producer has sent, None if none is the service's own, or it cannot be
    read; `appended_ms`: when, by the partition's leader. What stands behind it was sent by who knew it to be
    committed (`is_followed`): the next one of a leadership is, and so is what confirms it (`is_confirmed`).
    `is_unreadable`: the producer's last one cannot be read, or one behind it.
    """

    def __init__(self, topic: str, lane: int, keys: KeyringSource, producer: int, begin: int) -> None:
        self.reached = begin
        self.checkpoint: Checkpoint | None = None
        self.appended_ms = 0
        self.is_followed = False
        self.is_confirmed = False
        self.is_unreadable = False
        self._topic = topic
        self._lane = lane
        self._ring = keys.ring
        self._producer = producer
        self._scratch = Scratch()

    def take(self, batch: RecordBatch) -> None:
        """What stands next. The service sends checkpoints one at a time: a batch of more is a stranger's."""
        self.reached = batch.next_offset
        is_its_own = batch.producer_of_transaction == self._producer
        if batch.is_control or not (is_its_own or batch.record_count == 1):
            return
        for record in open_batch(self._lane, batch, self._scratch).records:
            try:
                found = own_checkpoint(record, self._topic, self._ring)
            except UnreadableCheckpoint:
                self._pass_over(is_its_own=is_its_own)
                continue
            if isinstance(found, Checkpoint) and is_its_own:
                self._begin_with(found)
                self.appended_ms = batch.newest_ms
            elif isinstance(found, Checkpoint):
                self._weigh(found)

    def _pass_over(self, *, is_its_own: bool) -> None:
        if is_its_own:
            self._begin_with(None)
        self.is_unreadable = True

    def _weigh(self, found: Checkpoint) -> None:
        last = self.checkpoint
        if last is not None and found != last and found.order >= last.order:
            self.is_followed = True
            self.is_confirmed |= found.order == last.order

    def _begin_with(self, checkpoint: Checkpoint | None) -> None:
        self.checkpoint = checkpoint
        self.is_followed = self.is_confirmed = self.is_unreadable = False
