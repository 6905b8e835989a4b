"""Who has been leader of a lane, and from when on: the first checkpoint of each epoch, which stays for ever.

They lie far apart among the checkpoints of the last day. Epochs only grow along the topic, so each first one
is found by halving, from the last one back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import Final

from delayline.names import ClusterNames
from delayline.signing import Keyring
from node.config import KafkaConfig
from node.core.ports import Unanswered
from node.kafka.own_checkpoints import Placed, first_own
from node.kafka.reader import TopicReader
from ops.errors import UnavailableError
from store.checkpoint import Checkpoint, UnreadableCheckpoint

PROBE_BYTES: Final = 16_384  # one checkpoint is wanted of each probe
_NONE: Final = 1 << 62  # later than any epoch
_WAIT_S: Final = 0.1
_PATIENCE_S: Final = 10.0


def leaderships(config: KafkaConfig, ring: Keyring, lane: int, most: int | None = None) -> list[Checkpoint]:
    """The first checkpoints of the last epochs, `most` of them, in order; empty if there is none.

    Raises UnavailableError and UnreadableCheckpoint.
    """
    topic = ClusterNames(config.cluster).checkpoint
    try:
        with closing(TopicReader(config.client_config(), topic, PROBE_BYTES)) as reader:
            return list(islice(_back(reader, ring, lane), most))[::-1]
    except Unanswered as error:
        raise UnavailableError(str(error)) from error


def _back(reader: TopicReader, ring: Keyring, lane: int) -> Iterator[Checkpoint]:
    low, high = reader.bounds(lane)
    epoch = _NONE
    while True:
        # In the first round none is late enough, and `before` is the last checkpoint of all.
        first, high, before = _first(reader, ring, lane, low, high, epoch)
        if first is not None:
            yield first
        if before is None:
            return
        epoch = before.epoch


def _first(
    reader: TopicReader, ring: Keyring, lane: int, low: int, high: int, epoch: int
) -> tuple[Checkpoint | None, int, Checkpoint | None]:
    """The first checkpoint of low <= offset < high of an epoch or a later one, its offset, and the checkpoint
    before it.
    """
    first: Checkpoint | None = None
    before: Checkpoint | None = None
    at = high
    while low < high:
        middle = (low + high) // 2
        own = _next(reader, ring, lane, middle, high)
        if own is None:
            high = middle
        elif own.checkpoint.epoch >= epoch:
            first, high, at = own.checkpoint, middle, own.offset
        else:
            before, low = own.checkpoint, own.offset + 1
    return first, at, before


def _next(reader: TopicReader, ring: Keyring, lane: int, begin: int, end: int) -> Placed | None:
    """The first checkpoint of the service's own of begin <= offset < end."""
    reader.start({lane: begin})
    batches = reader.read_to({lane: end}, poll_s=_WAIT_S, patience_s=_PATIENCE_S)
    records = (record for batch in batches for record in batch)
    try:
        return first_own(records, reader.topic, ring)
    except UnreadableCheckpoint as error:
        raise UnreadableCheckpoint(f"{reader.topic}/{lane}, from offset {begin} on: {error}") from error
