"""What an audit is asked to look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from delayline.names import ClusterNames
from delayline.settings import ClusterSettings
from delayline.settings_versions import SettingsVersions
from delayline.signing import Keyring

GRACE_MS = 5_000


@dataclass(frozen=True, slots=True)
class AuditConfig:
    """One audit of one cluster.

    Args:
        bootstrap_servers: Kafka brokers, `host:port,...`.
        versions: the cluster's settings and what they were; what a request means depends on them. What they
            have become since the audit finds out (pipeline/audit/learnt_settings.py).
        keyring: the keys that the service signs with.
        ledger: a file that `LedgerWriter` wrote, to hold the buffer against; None: no ledger.
        now_ms: epoch ms up to which nothing may be outstanding; None: the time at which the audit starts.
        grace_ms: how long after its due time a message may still be on its way.
        max_clock_skew_ms: how far the brokers' clock may be off a leader's; the service's own default.
        kafka: librdkafka properties for a secured cluster (`security.protocol`, `sasl.*`, `ssl.*`).
        listed: violations that the report lists; all are counted, and all are in `Audit.violations`.
    """

    bootstrap_servers: str
    versions: SettingsVersions
    keyring: Keyring
    ledger: Path | None = None
    now_ms: int | None = None
    grace_ms: int = GRACE_MS
    max_clock_skew_ms: int = 500
    kafka: Mapping[str, str] = field(default_factory=dict)
    listed: int = 1_000

    @property
    def settings(self) -> ClusterSettings:
        """As they are now."""
        return self.versions.settings

    @property
    def client_config(self) -> dict[str, Any]:
        """As Kafka's clients in Python want it."""
        return {"bootstrap.servers": self.bootstrap_servers, **self.kafka}

    @property
    def names(self) -> ClusterNames:
        return ClusterNames(self.settings.cluster)
