"""The record of the settings topic: who wrote it, and whether it stands where it was written to."""

from __future__ import annotations

import json

import pytest

from delayline.settings import ClusterSettings, NewerSettings
from delayline.settings_record import KEY, decode_settings, encode_settings, signed
from delayline.settings_versions import SettingsVersions
from tests.support.keys import KEYRING
from tests.unit.wire_records import BufferedRecord

TOPIC = "delay.settings"
VERSIONS = SettingsVersions.of(ClusterSettings())
NEWER = json.dumps({"at": 7, "settings": json.dumps({"format_version": 99})}).encode()


def record_of(value: bytes, offset: int) -> BufferedRecord:
    """One that the service has signed."""
    return BufferedRecord(signed(value, TOPIC, KEYRING), offset=offset, key=KEY, value=value)


def decoded(record: BufferedRecord) -> SettingsVersions | None:
    return decode_settings(record, TOPIC, KEYRING)


def test_a_record_says_the_settings_where_it_stands_and_a_copy_elsewhere_nothing() -> None:
    value = encode_settings(VERSIONS, 7)
    assert decoded(record_of(value, 7)) == VERSIONS
    assert decoded(record_of(value, 8)) is None


def test_what_nobody_has_signed_says_nothing() -> None:
    record = record_of(encode_settings(VERSIONS, 7), 7)
    assert decoded(record._replace(headers=[])) is None
    assert decoded(record._replace(value=encode_settings(VERSIONS, 8), offset=8)) is None


def test_settings_of_a_newer_version_are_refused_where_they_stand_and_a_copy_of_them_is_nothing() -> None:
    """It may have been aborted."""
    with pytest.raises(NewerSettings):
        decoded(record_of(NEWER, 7))
    assert decoded(record_of(NEWER, 8)) is None


@pytest.mark.parametrize(
    "value", [b"", b"[]", b'{"at": 7}', b'{"at": 7, "settings": {}}', b'{"settings": ""}']
)
def test_what_is_no_record_of_settings_says_nothing(value: bytes) -> None:
    assert decoded(record_of(value, 7)) is None
