"""What a record of the buffer topic is, and what it can turn out to ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from delayline.headers import Header
from delayline.recurrence import Recurrence
from delayline.rejects import RejectCode
from delayline.signing import Serial

BY_KEY: Final = -1


class ConsumerRecord(Protocol):
    """What the parser reads of a record of the buffer topic; any NamedTuple with these fields will do."""

    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[Header] | None: ...


# NamedTuples: one is made for every record applied, and a frozen dataclass costs several times as much.


class Schedule(NamedTuple):
    """A message to deliver: a request of a user's own, or one that the service has written back."""

    id: str | None
    scheduled_for_ms: int  # as requested; the record's timestamp if no time was given
    due_ms: int  # max(scheduled_for_ms, the record's timestamp)
    target_topic: str
    target_key: bytes | None
    target_partition: int  # BY_KEY: murmur2 of the key
    expire_at_ms: int | None
    headers: list[Header]  # the user's own, in order
    parent: int | None  # offset of the request that this one follows from; None for a user's own
    root: str | None  # source of the user's own request; None if this is it
    attempt: int  # 1 for a user's own
    occurrence: int | None  # of a recurring one: which delivery this is; None: the first is still to be found
    recurrence: Recurrence | None = None
    keep: bool = False  # it is a duplicate if its id is known: see docs/wire-format.md
    serial: Serial | None = None  # of a request that was written back, and signed
    moved_by: int | None = None  # offset of the user's last reschedule of it


class Reschedule(NamedTuple):
    """A new time for the pending message with this id. Its own row is due at the record's timestamp.

    One that the service has deferred: it is the same, behind what it has to wait for.
    """

    id: str
    scheduled_for_ms: int  # the new time; the record's timestamp if none was given: run now
    expire_at_ms: int | None  # None: the message's own stays
    parent: int | None = None  # offset of the one that was deferred; None for a user's own
    root: str | None = None  # source of the user's own; None if this is it
    attempt: int = 1  # one more each time that it is deferred
    serial: Serial | None = None


class Cancel(NamedTuple):
    """The pending message with this id, or of this source, is not to be delivered: one of the two."""

    id: str | None
    source: int | None = None  # the offset, in the cancel's own partition, of the request for the message


class Reject(NamedTuple):
    """A request that cannot be done as it stands: a message for the dead-letter topic."""

    code: RejectCode
    detail: str  # one line
    serial: Serial | None = None  # of a request that was written back, and signed
    unknown_key: str | None = None  # that of the cluster, not among the keys, with which it may be signed


class Carry(NamedTuple):
    """A row that the service has written back as it is, since it waits for long (docs/design.md, rule 12)."""

    row: bytes  # as the store has written it (store/rows.py, `encode_carry`)
    serial: Serial


class SettingsPlace(NamedTuple):
    """A place in the settings topic.

    Where a topic was made anew, or is led by a broker that lacked its end, other records may stand at the
    same offsets. So a place has the topic's id, as Kafka shows it, and the leader epoch of who was asked.
    """

    topic_id: str
    epoch: int
    offset: int

    def is_behind(self, record: SettingsPlace) -> bool:
        """Whether who has read to here has read that record, if it is there."""
        return self.topic_id == record.topic_id and self.epoch >= record.epoch and self.offset > record.offset


class SettingsMark(NamedTuple):
    """From here on the partition is read by other settings (docs/design.md, rule 13); or a copy of such a
    mark, or one of a change that was given up: then it says nothing.
    """

    number: int  # of the settings' version
    at: SettingsPlace  # of the record that has that version, if there is one


Request: TypeAlias = Schedule | Reschedule | Cancel | Carry | SettingsMark | Reject
