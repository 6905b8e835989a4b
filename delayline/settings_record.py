"""The record of the settings topic: what `delayline settings change` writes, and every node reads.

It is signed as a checkpoint is, over topic, partition, key and value. Whoever may write to that topic could
send an earlier one again, to the byte; so it says at which offset it stands, and a copy stands at another.
"""

from __future__ import annotations

import json
from typing import Final

from delayline.headers import H_SIGNATURE, Header
from delayline.record import ConsumerRecord
from delayline.settings import NewerSettings, json_object
from delayline.settings_versions import SettingsVersions
from delayline.signing import BadSignatureError, Keyring, signature_of

PARTITION: Final = 0
KEY: Final = b"settings"


def encode_settings(versions: SettingsVersions, offset: int) -> bytes:
    """The value of the record that is to stand at an offset."""
    return json.dumps({"at": offset, "settings": versions.to_json()}).encode()


def signed(value: bytes, topic: str, ring: Keyring) -> list[Header]:
    """The record's headers."""
    return [(H_SIGNATURE, ring.sign_checkpoint(topic, PARTITION, KEY, value))]


def decode_settings(record: ConsumerRecord, topic: str, ring: Keyring) -> SettingsVersions | None:
    """The settings that a record has; None if it is not the service's own, or is a copy.

    Raises `NewerSettings`, and `BadSignatureError` if its key is one of the cluster's that is not known here.
    """
    signature = signature_of(record.headers)
    try:
        ring.check_checkpoint(signature or b"", topic, record.partition, record.key, record.value)
        raw = json_object(record.value or b"")
        return SettingsVersions.from_json(raw["settings"]) if raw.get("at") == record.offset else None
    except BadSignatureError as error:
        if error.unknown_key is not None:
            raise
        return None
    except NewerSettings:
        raise
    except (ValueError, KeyError, TypeError):
        return None
