"""What rows hold, as the log of record says: read once, in the log's order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from delayline.names import ClusterNames, source
from delayline.signing import Keyring
from delayline.wire import (
    H_OP,
    OP_CARRY,
    OP_SETTINGS,
    Carry,
    Reject,
    Request,
    Schedule,
    SettingsMark,
    parse,
)
from node.config import ConnectionConfig
from node.kafka.fetch.records import LogRecord
from ops.clients.kafka import KafkaAdmin
from ops.clients.records import records_at, records_from
from ops.clients.settings_topic import Known
from ops.errors import ConflictError, UnavailableError
from ops.pending.line import Buffer, Found, found_row, found_schedule
from ops.pending.listing import Rows
from store.rows import NewerCarry, decode_carry, decode_scheduled

_CARRY = (H_OP, OP_CARRY)
_MARK = (H_OP, OP_SETTINGS)


class BufferContent:
    """Reads rows of one cluster's buffer."""

    def __init__(
        self,
        config: ConnectionConfig,
        buffer_id: str,
        settings: Callable[[], Known],
        ring: Keyring,
    ) -> None:
        """`buffer_id`: the topic's. `settings`: asks what they are by now."""
        self.config = config
        self.names = ClusterNames(config.cluster)
        self._buffer = Buffer(self.names.buffer, buffer_id, self.names.cluster)
        self._settings = settings
        self._known = settings()
        self._ring = ring

    def rows(self, wanted: Rows) -> Iterator[Found]:
        """Those that are wanted, from the log's beginning on, until all were met: each as its own record has
        it, or, where that is gone, as it was carried.

        Raises ConflictError where a newer version has written something, UnavailableError where it is not
        known by which key or settings something is to be read, and what says that Kafka does not answer.
        """
        if not wanted.left:
            return
        self.learn()
        begins = KafkaAdmin(self.config).begins(self.names.buffer)
        for record in records_from(self.config, self.names.buffer, begins):
            if _MARK in record.headers:
                self._expect_known(record)
            found = self._carried(record) if _CARRY in record.headers else None
            if found is not None:
                if wanted.meet(*found.row):
                    yield found
            elif wanted.meet(record.partition, record.offset):
                own = self.row_of(record)
                if own is None:
                    name = source(self.names.buffer, record.partition, record.offset)
                    raise ConflictError(f"{name} waits, and this version cannot read it: upgrade delayline")
                yield own
            if not wanted.left:
                return

    def at(self, record_ids: Iterable[tuple[int, int]]) -> Iterator[Found]:
        """The rows of these records, as far as they are there."""
        self.learn()
        for record in records_at(self.config, self.names.buffer, record_ids):
            found = self.row_of(record)
            if found is not None:
                yield found

    def row_of(self, record: LogRecord) -> Found | None:
        """The row that a record makes, if it is one of a schedule."""
        schedule = self.schedule_of(record)
        if schedule is None:
            return None
        at = record.partition, record.offset
        found = found_schedule(self._buffer, at, schedule)
        return found._replace(message=msgspec.structs.replace(found.message, value=record.value))

    def schedule_of(self, record: LogRecord) -> Schedule | None:
        """What a record asks for, if that is a schedule."""
        request = None if record.flaw is not None else self._parsed(record)
        return request if isinstance(request, Schedule) else None

    def learn(self) -> None:
        """What is read from now on, and is there already, is read by the settings that hold there."""
        self._known = self._settings()

    def _expect_known(self, record: LogRecord) -> None:
        """As a node does, which reads nothing behind a mark before it knows what begins there."""
        mark = None if record.flaw is not None else self._parsed(record)
        if not isinstance(mark, SettingsMark) or self._knows(mark):
            return
        self.learn()
        if not self._knows(mark):
            name = source(self.names.buffer, record.partition, record.offset)
            raise UnavailableError(
                f"settings begin at {name} that {self.names.settings} does not have: run it again, nothing is"
                " lost; if it says so again, see 'delayline cluster status'"
            )

    def _knows(self, mark: SettingsMark) -> bool:
        """Whether what begins there is known, if anything does."""
        versions, to = self._known
        return mark.number <= versions.latest.number or to.is_behind(mark.at)

    def _parsed(self, record: LogRecord) -> Request:
        settings = self._known.versions.settings_at(record.partition, record.offset)
        request = parse(record, settings, self.names, self._ring)
        if isinstance(request, Reject) and request.unknown_key is not None:
            name = source(self.names.buffer, record.partition, record.offset)
            raise UnavailableError(
                f"{name} is signed with the key {request.unknown_key}, made since this began: run it"
                " again, nothing is lost"
            )
        return request

    def _carried(self, record: LogRecord) -> Found | None:
        """What a carry brings; a stranger's is none."""
        if record.flaw is not None:
            return None
        request = self._parsed(record)
        if not isinstance(request, Carry):
            return None
        try:
            due_ms, offset, raw_row = decode_carry(request.row)
        except NewerCarry as error:
            raise ConflictError(f"{error}: upgrade delayline") from None
        row = decode_scheduled(raw_row)
        if row is None:
            return None
        at = record.partition, offset
        return found_row(self._buffer, at, due_ms, row)
