"""What stands in the buffer behind the cancels of an export, in place of what they were meant for.

Whoever may write to the buffer may send a signed record again, and again. So of each only its place is kept,
and none whose serial is not above that of the one before: that is a copy for certain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from delayline.names import parse_source
from delayline.signing import Serial
from delayline.wire import H_PARENT, H_ROOT
from node.core.ports import Unanswered
from node.kafka.fetch.records import LogRecord
from node.kafka.reader import OffsetsGone
from ops.clients.kafka import KafkaAdmin
from ops.errors import UnavailableError
from ops.pending.content import BufferContent
from ops.pending.line import Found
from ops.pending.reading import gone, reader_from
from store.keys import RecordId

_WAIT_S: Final = 0.1
_HIDDEN_PATIENCE_S: Final = 60.0

RootId = tuple[int, int]
"""Partition and offset of a user's own request."""


class Window(NamedTuple):
    """Where what was on its way stands when its message is cancelled: behind the `cancel`, and it follows
    from something `after` what the cancelled row follows from, and before the cancel. A copy of what was
    there earlier follows from what the row follows from, or from less; a copy of what was aborted since may
    be in the window.
    """

    after: int
    cancel: int

    @classmethod
    def of(cls, row: Found, cancel: int) -> Window:
        """That of a row that was there when the cancel was applied."""
        return cls(row.row[1] - 1 if row.parent is None else row.parent, cancel)

    def has(self, offset: int, parent: int | None) -> bool:
        """Whether a record at that offset may be it."""
        return offset > self.cancel and parent is not None and self.after < parent < self.cancel


class _Place(NamedTuple):
    """One that may be it. `serial`: None of one that is older than the cluster's keys."""

    row: RecordId
    serial: Serial | None


class Behind:
    """Reads what the service writes back into the buffer, on and on, and keeps where that is of the roots
    that are asked for.
    """

    def __init__(self, content: BufferContent, begins: Mapping[int, int]) -> None:
        self.reader = reader_from(content.config.client_config(), content.names.buffer, begins)
        self._content = content
        self._windows: Mapping[RootId, Window] = {}
        self._found: dict[RootId, list[_Place]] = {}

    def read(self, windows: Mapping[RootId, Window]) -> None:
        """Reads to where the buffer ends now, in the partitions of these roots: whoever has a transaction
        open in another one keeps nobody waiting. Raises UnavailableError where one hides these ends.
        """
        self._windows, self._found = windows, {}
        if not windows:
            return
        admin, buffer = KafkaAdmin(self._content.config), self._content.names.buffer
        self._content.learn()
        ends, partitions = admin.ends(buffer), {partition for partition, _ in windows}
        if ends.keys() - self.reader.reached.keys():  # partitions were added: all of these is new
            self.reader.start(admin.begins(buffer) | self.reader.reached)
        wanted = {partition: ends[partition] for partition in partitions}
        try:
            for records in self.reader.read_past(wanted, poll_s=_WAIT_S, patience_s=_HIDDEN_PATIENCE_S):
                for record in records:
                    self.note(record)
        except OffsetsGone as error:
            raise gone(error) from error
        except Unanswered as error:
            raise UnavailableError(
                f"{error}: somebody's transaction may be open there; run it again, nothing is lost"
            ) from error

    def note(self, record: LogRecord) -> None:
        """Takes a record in."""
        root = self._root_of(record)
        window = None if root is None else self._windows.get(root)
        if root is None or window is None or record.offset <= window.cancel:
            return
        schedule = self._content.schedule_of(record)
        if schedule is None or not window.has(record.offset, schedule.parent):
            return
        places = self._found.setdefault(root, [])
        if not places or _is_above(schedule.serial, places[-1].serial):
            places.append(_Place((record.partition, record.offset), schedule.serial))

    def _root_of(self, record: LogRecord) -> RootId | None:
        """As it says itself; None of a user's own."""
        headers = dict(record.headers)
        raw_root = headers.get(H_ROOT)
        if H_PARENT not in headers or raw_root is None:
            return None
        try:
            topic, partition, offset = parse_source(raw_root.decode("latin-1"))
        except ValueError:
            return None  # a stranger's
        return (partition, offset) if topic == self._content.names.buffer else None

    def of(self, root: RootId) -> Sequence[RecordId]:
        """Where that of a root is which it has read, in order."""
        return [place.row for place in self._found.get(root, ())]


def _is_above(serial: Serial | None, last: Serial | None) -> bool:
    """Nothing that the service has written since it has keys is without one."""
    return serial is not None and (last is None or serial > last)
