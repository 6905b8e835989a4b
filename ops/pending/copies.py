"""Which records of the buffer are copies of what the service has written back: nodes take them for nothing.

Whoever may write to the buffer can send a signed record again, to the byte, and also one that was aborted.
Its serial is spent where it was first written (docs/design.md, rule 4).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Final

from delayline.signing import Keyring, Serial
from delayline.wire import spent_serial
from node.config import KafkaConfig
from node.core.ports import Unanswered
from node.kafka.fetch.records import LogRecord
from node.kafka.reader import OffsetsGone, TopicReader
from ops.errors import UnavailableError
from store.keys import RecordId

_WAIT_S: Final = 0.1
_PATIENCE_S: Final = 60.0
_NONE: Final = (-1, -1)  # below all serials


def copies(config: KafkaConfig, buffer: str, ring: Keyring, asked: Mapping[RecordId, int]) -> set[RecordId]:
    """Those of some records that are copies, by the rule that nodes go by: a serial that is no lower has been
    before it in the partition, committed or aborted. `asked`: each record, with an offset that its original
    would stand behind. Where retention has taken that, the records count as for a node that begins there.

    Raises UnavailableError.
    """
    if not asked:
        return set()
    begins: dict[int, int] = {}
    ends: dict[int, int] = {}
    for (partition, offset), after in asked.items():
        begins[partition] = min(after + 1, begins.get(partition, after + 1))
        ends[partition] = max(offset + 1, ends.get(partition, 0))
    spent = _Spent(ring)
    found: set[RecordId] = set()
    with closing(TopicReader(config.client_config(), buffer, aborted=True)) as reader:
        try:
            for partition, begin in begins.items():
                low, _ = reader.bounds(partition)
                if low > begin:
                    begins[partition] = low
                    spent.begin(partition, low)
            reader.start(begins)
            for records in reader.read_to(ends, poll_s=_WAIT_S, patience_s=_PATIENCE_S):
                spent_ones = ((one.partition, one.offset) for one in records if spent.has(one))
                found.update(asked.keys() & spent_ones)  # of the others there may be no end
        except (OffsetsGone, Unanswered) as error:
            raise UnavailableError(f"{error}: run it again, nothing is lost") from error
    return found


class _Spent:
    """The highest serial of each partition, record after record."""

    def __init__(self, ring: Keyring) -> None:
        self._ring = ring
        self._highest: dict[int, Serial] = {}

    def begin(self, partition: int, offset: int) -> None:
        """What was written by who stood below that offset is spent."""
        self._highest[partition] = offset, -1

    def has(self, record: LogRecord) -> bool:
        """Whether the record's serial is spent; if not, it is from there on."""
        try:
            serial = spent_serial(record, self._ring)
        except ValueError:
            return False  # none of the service's
        if serial is None:
            return False
        if serial <= self._highest.get(record.partition, _NONE):
            return True
        self._highest[record.partition] = serial
        return False
