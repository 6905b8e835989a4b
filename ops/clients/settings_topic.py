"""The settings topic, as operators write it: a change, and the marks in the buffer from which on it counts,
in one Kafka transaction (docs/design.md, rule 13).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaException, Message, Producer

from delayline.names import ClusterNames
from delayline.settings_record import KEY, PARTITION, encode_settings, signed
from delayline.settings_versions import SettingsVersions
from delayline.signing import Keyring
from delayline.wire import SettingsMark, SettingsPlace, settings_mark_headers
from node.config import KafkaConfig
from node.kafka.known_settings import ReadSettings, read_settings
from ops.clients.left_open import end_left_open
from ops.errors import ConflictError, UnavailableError

TIMEOUT_S: Final = 10.0
"""Of the transaction, too: while it is open, nothing behind its marks is read."""

Begins = Mapping[int, int]
"""The offset of the mark in each partition of the buffer."""


class Known(NamedTuple):
    """Settings, and to where their topic was read for them."""

    versions: SettingsVersions
    to: SettingsPlace


class Change(NamedTuple):
    """`number`: the version's. `make`: the settings with it, of those that stand and where the marks do."""

    number: int
    make: Callable[[Begins], SettingsVersions]


class SettingsTopic:
    """One at a time writes there: whoever comes later fences the one before."""

    def __init__(self, config: KafkaConfig, names: ClusterNames, ring: Keyring) -> None:
        self._config = config
        self._names = names
        self._ring = ring
        self._client = config.client_config()

    def read(self) -> SettingsVersions | None:
        """What it has; None if there is no such topic, or nothing in it. Raises `NewerSettings`,
        `Unanswered`.
        """
        return self._read().versions

    def read_with(self, mirrored: SettingsVersions) -> Known:
        """What it and ZooKeeper know together. Raises as `read`, and ConflictError if they contradict each
        other.
        """
        read = self._read()
        return Known(united(mirrored, read.versions), read.to)

    def settle(self) -> None:
        """Ends what an earlier change has left open there: until then nobody can read it. Raises
        UnavailableError.
        """
        end_left_open(self._client, self._names)

    def write(
        self, partitions: list[int], change_of: Callable[[SettingsVersions | None], Change]
    ) -> SettingsVersions:
        """Writes a change, with marks into these partitions of the buffer; the settings after it.

        `change_of`: the change of what stands. What it raises is passed on, and nothing is written.

        Raises `KafkaException`, ConflictError if somebody else writes there, UnavailableError if it is not
        known whether it is written: then the topic says so.
        """
        producer = Producer(
            self._client
            | {
                "transactional.id": self._names.settings_transactional_id,
                "transaction.timeout.ms": int(TIMEOUT_S * 1000),
                "delivery.timeout.ms": int(TIMEOUT_S * 1000),
                "log_level": 0,
            }
        )
        producer.init_transactions(
            TIMEOUT_S
        )  # what an earlier one has left open is ended, and so is that one
        read = self._read()
        change = change_of(read.versions)
        producer.begin_transaction()
        try:
            place = self._begin(producer, read.to)
            begins = self._mark(producer, partitions, SettingsMark(change.number, place))
            versions = change.make(begins)
            self._write_record(producer, versions, place)
        except BaseException:
            with suppress(KafkaException):
                producer.abort_transaction(TIMEOUT_S)
            raise
        self._commit(producer)
        return versions

    def write_first(self, versions: SettingsVersions) -> None:
        """Writes what stands already, without marks: into a new topic. Raises as `write`."""
        self.write([], lambda there: Change(versions.latest.number, lambda _: there or versions))

    def _read(self) -> ReadSettings:
        return read_settings(self._client, self._names, self._ring)

    def _begin(self, producer: Producer, end: SettingsPlace) -> SettingsPlace:
        """Where the change is to stand. What is in front of it says nothing; but once that is there, the
        topic grows to behind the change's place, whatever becomes of the change: with the marker of an abort,
        too. So nobody waits for ever who reads a mark, or a copy of it.
        """
        sent = _Sent()
        producer.produce(self._names.settings, key=KEY, partition=PARTITION, on_delivery=sent.note)
        sent.flush(producer)
        self._expect_at(sent, end.offset)
        return end._replace(offset=end.offset + 1)

    def _mark(self, producer: Producer, partitions: list[int], mark: SettingsMark) -> dict[int, int]:
        sent = _Sent()
        for partition in partitions:
            headers: Any = settings_mark_headers(mark, partition, self._ring)
            producer.produce(self._names.buffer, headers=headers, partition=partition, on_delivery=sent.note)
        sent.flush(producer)
        return sent.offsets

    def _write_record(self, producer: Producer, versions: SettingsVersions, place: SettingsPlace) -> None:
        topic = self._names.settings
        value, sent = encode_settings(versions, place.offset), _Sent()
        headers: Any = signed(value, topic, self._ring)
        producer.produce(
            topic, key=KEY, value=value, headers=headers, partition=PARTITION, on_delivery=sent.note
        )
        sent.flush(producer)
        self._expect_at(sent, place.offset)

    def _expect_at(self, sent: _Sent, offset: int) -> None:
        if sent.offsets[PARTITION] != offset:
            raise ConflictError(
                f"somebody else writes to {self._names.settings}: see who may, and run this again"
            )

    def _commit(self, producer: Producer) -> None:
        for _ in range(3):
            try:
                producer.commit_transaction(TIMEOUT_S)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
        raise UnavailableError(
            "it is not known whether the change was written: run `delayline settings show` once Kafka answers"
        )


def united(mirrored: SettingsVersions, in_topic: SettingsVersions | None) -> SettingsVersions:
    """What ZooKeeper and the topic know together. ConflictError if they contradict each other."""
    try:
        return mirrored if in_topic is None else mirrored.united(in_topic)
    except ValueError as error:
        raise ConflictError(
            f"the settings in ZooKeeper are not those of their topic: {error}; `delayline topics create"
            " --restore` writes the topic's"
        ) from error


class _Sent:
    """Where records have come to stand."""

    def __init__(self) -> None:
        self.offsets: dict[int, int] = {}
        self._error: KafkaException | None = None

    def note(self, error: Any, message: Message) -> None:
        """As the client calls it."""
        if error is not None:
            self._error = KafkaException(error)
        else:
            self.offsets[message.partition() or 0] = message.offset() or 0

    def flush(self, producer: Producer) -> None:
        """Waits for all. Raises `KafkaException`, UnavailableError."""
        left = producer.flush(TIMEOUT_S)
        if self._error is not None:
            raise self._error
        if left:
            raise UnavailableError("Kafka does not take the change in time: the settings are as they were")
