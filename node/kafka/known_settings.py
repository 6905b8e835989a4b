"""What a node knows of the cluster's settings: by which version each record of the log is read.

The settings topic says it (docs/design.md, rule 13). A change stands there, and its marks stand in the
buffer, by one transaction. So whoever reads a mark finds what it begins once the settings topic is read to
the end that it has then, what is open there included: nothing is waited for but the transaction's own end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

import structlog
from confluent_kafka import IsolationLevel

from delayline.names import ClusterNames
from delayline.settings_record import PARTITION, decode_settings
from delayline.settings_versions import SettingsVersions
from delayline.signing import BadSignatureError, Keyring
from node.core.ports import KeyringSource, Unanswered
from node.kafka.reader import OffsetsGone, TopicReader
from node.kafka.topics import TIMEOUT_S, TopicMissing, admin_client, describe, end_of

log = structlog.get_logger("delayline.settings")

POLL_S: Final = 0.1


class SettingsContradict(Exception):
    """The settings topic has others than those that the view was made with, and neither became the other."""


class KnownSettings:
    """Implements `SettingsSource`. May be used by any thread; versions become only more."""

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
        self._learning = threading.Lock()

    @property
    def versions(self) -> SettingsVersions:
        return self._versions

    def refresh(self) -> bool:
        """Learns what the topic says now; False if there is no such topic: the settings were never changed.

        Raises `Unanswered`, also where a transaction is open there, `SettingsContradict`, and
        `NewerSettings`.
        """
        found = read_settings(self._client_config, self._names, self._keys.ring)
        if found is not None:
            self.learn(found)
        return found is not None

    def learn(self, found: SettingsVersions) -> None:
        """From whoever has read them. Raises `SettingsContradict`."""
        with self._learning:
            try:
                later = self._versions.united(found)
            except ValueError as error:
                raise SettingsContradict(str(error)) from error
            if later != self._versions:
                self._keep(later)
                self._versions = later
                log.info("settings-loaded", version=later.latest.number)


def read_settings(
    client_config: dict[str, Any], names: ClusterNames, ring: Keyring
) -> SettingsVersions | None:
    """The last settings that the topic has; None if there is no such topic, or nothing of the service's
    there.

    Raises as `KnownSettings.refresh`.
    """
    topic, admin = names.settings, admin_client(client_config)
    try:
        describe(admin, topic)
    except TopicMissing:
        return None
    found: SettingsVersions | None = None
    end = end_of(admin, topic, PARTITION, IsolationLevel.READ_UNCOMMITTED)
    with closing(TopicReader(client_config, topic)) as reader:
        low, _ = reader.bounds(PARTITION)
        reader.start({PARTITION: low})
        try:
            for records in reader.read_to({PARTITION: end}, poll_s=POLL_S, patience_s=TIMEOUT_S):
                reader.expect_allowed()
                for record in records:
                    found = decode_settings(record, topic, ring) or found
        except OffsetsGone as error:
            raise Unanswered(str(error)) from error
        except BadSignatureError as error:
            raise Unanswered(f"{topic}: {error}") from error
    return found
