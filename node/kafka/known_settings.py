"""What a node knows of the cluster's settings: by which version each record of the log is read.

The settings topic says it (docs/design.md, rule 13). A change stands there, and its marks stand in the
buffer, by one transaction, and each mark says where its change stands. So whoever reads a mark knows what it
begins once the settings topic is read to behind that place. To the end that a broker tells would not do: one
that is cut off from the others tells an old one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any, Final, NamedTuple

import structlog
from confluent_kafka import IsolationLevel

from delayline.names import ClusterNames
from delayline.record import SettingsPlace
from delayline.settings_record import PARTITION, decode_settings
from delayline.settings_versions import SettingsVersions
from delayline.signing import BadSignatureError, Keyring
from node.core.ports import KeyringSource, Unanswered
from node.kafka.reader import OffsetsGone, TopicReader
from node.kafka.topics import TIMEOUT_S, TopicMissing, admin_client, describe, end_of

log = structlog.get_logger("delayline.settings")

POLL_S: Final = 0.1


class ReadSettings(NamedTuple):
    """What the settings topic has below a place; `versions` is None if nothing there is the service's."""

    versions: SettingsVersions | None
    to: SettingsPlace


NOTHING_READ: Final = ReadSettings(None, SettingsPlace("", -1, 0))


class SettingsContradict(Exception):
    """The settings topic has others than those that the view was made with, and neither became the other."""


class KnownSettings:
    """Implements `SettingsSource`. Versions may be read by any thread; they become only more. `refresh` is
    for one at a time: who opens apply, and then apply.
    """

    def __init__(
        self,
        client_config: dict[str, Any],
        names: ClusterNames,
        versions: SettingsVersions,
        keys: KeyringSource,
        keep: Callable[[SettingsVersions], None],
    ) -> None:
        """`versions`: those that the view was made with. `keep`: has the store say so of later ones."""
        self._client_config = client_config
        self._names = names
        self._versions = versions
        self._keys = keys
        self._keep = keep
        self._read = NOTHING_READ

    @property
    def versions(self) -> SettingsVersions:
        return self._versions

    def has_read(self, at: SettingsPlace) -> bool:
        """Whether the versions have what stands at a place, if it was committed."""
        return self._read.to.is_behind(at)

    def refresh(self) -> bool:
        """Learns what the topic says up to where a transaction is open there; False if there is no such
        topic: the settings were never changed.

        A node does not wait for what is open: the marks of such a change cannot be read either, or name a
        place behind it, and then the node waits at them. Raises `Unanswered`, `SettingsContradict`, and
        `NewerSettings`.
        """
        read = read_settings(self._client_config, self._names, self._keys.ring, self._read, committed=True)
        if read.versions is not None:
            self._learn(read.versions)
        self._read = read  # not before what stands there is known
        return read.versions is not None

    def _learn(self, found: SettingsVersions) -> None:
        try:
            later = self._versions.united(found)
        except ValueError as error:
            raise SettingsContradict(str(error)) from error
        if later != self._versions:
            self._keep(later)
            self._versions = later
            log.info("settings-loaded", version=later.latest.number)


def read_settings(
    client_config: dict[str, Any],
    names: ClusterNames,
    ring: Keyring,
    before: ReadSettings = NOTHING_READ,
    *,
    committed: bool = False,
) -> ReadSettings:
    """The last settings that the topic has; `NOTHING_READ` if there is no such topic.

    It is read to the end that a broker tells, what is open there included: whoever writes must not miss what
    is behind that. `committed`: to the first transaction that is open. `before`: what was read already.
    Where the topic was made anew since, or has another leader, which may have had less of it, it is read
    again. If the leader changes meanwhile, what was read counts as the earlier one's: then the next time.
    Raises `Unanswered`, also where a transaction stays open before the end, and `NewerSettings`.
    """
    topic, admin = names.settings, admin_client(client_config)
    try:
        describe(admin, topic)
    except TopicMissing:
        return NOTHING_READ
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    end = end_of(admin, topic, PARTITION, level)
    with closing(TopicReader(client_config, topic)) as reader:
        versions, to = before
        topic_id, epoch = reader.generation(PARTITION)
        if (topic_id, epoch) != (to.topic_id, to.epoch):
            low, _ = reader.bounds(PARTITION)
            versions, to = None, SettingsPlace(topic_id, epoch, low)
        if end <= to.offset:
            return ReadSettings(versions, to)
        reader.start({PARTITION: to.offset})
        try:
            for records in reader.read_to({PARTITION: end}, poll_s=POLL_S, patience_s=TIMEOUT_S):
                reader.expect_allowed()
                for record in records:
                    versions = decode_settings(record, topic, ring) or versions
        except OffsetsGone as error:
            raise Unanswered(str(error)) from error
        except BadSignatureError as error:
            raise Unanswered(f"{topic}: {error}") from error
        return ReadSettings(versions, to._replace(offset=end))
