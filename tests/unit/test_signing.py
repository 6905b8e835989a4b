"""What is signed counts, and nothing that was altered, moved or made up."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from delayline.signing import NO_KEYS, BadSignatureError, Keyring, key_id
from delayline.wire import (
    H_AS_OF,
    H_SIGNATURE,
    Header,
    Reject,
    Request,
    Schedule,
    parse,
    signed_headers,
    spent_serial,
)
from tests.support.keys import KEYRING, ROOT, STRANGER, key_of, ring_of
from tests.unit.wire_records import NAMES, SETTINGS, BufferedRecord

OTHER = key_of("0000000b", b"o" * 32, 5)
THIRD = key_of("0000000c", b"t" * 32, 7)
TWO_KEYS = ring_of(*KEYRING.keys, OTHER)
SERIAL = (90, 7)
UNSIGNED: list[Header] = [
    ("own", b"1"),
    ("delay-target-topic", b"orders"),
    ("delay-parent", b"40"),
    ("delay-root", b"delay.buffer/0/7"),
]


def signed(keyring: Keyring = KEYRING, headers: list[Header] = UNSIGNED) -> BufferedRecord:
    return BufferedRecord(signed_headers(headers, keyring, SERIAL, 0, b"key", b"value"))


def asked(record: BufferedRecord, keyring: Keyring = KEYRING) -> Request:
    return parse(record, SETTINGS, NAMES, keyring)


def with_header(record: BufferedRecord, name: str, value: bytes) -> BufferedRecord:
    return record._replace(
        headers=[(key, value if key == name else old) for key, old in record.headers or ()]
    )


def test_what_the_service_has_signed_is_what_it_was() -> None:
    found = asked(signed())
    assert isinstance(found, Schedule)
    assert (found.parent, found.root, found.serial) == (40, "delay.buffer/0/7", SERIAL)


ALTERED: dict[str, Callable[[BufferedRecord], BufferedRecord]] = {
    "key": lambda record: record._replace(key=b"kez"),
    "no key": lambda record: record._replace(key=None),
    "value": lambda record: record._replace(value=b"valuf"),
    "no value": lambda record: record._replace(value=None),
    "a byte from value to key": lambda record: record._replace(key=b"keyv", value=b"alue"),
    "target": lambda record: with_header(record, "delay-target-topic", b"others"),
    "parent": lambda record: with_header(record, "delay-parent", b"41"),
    "root": lambda record: with_header(record, "delay-root", b"delay.buffer/0/8"),
    "as-of": lambda record: with_header(record, H_AS_OF, b"91.7"),
    "count": lambda record: with_header(record, H_AS_OF, b"90.8"),
    "the user's header": lambda record: with_header(record, "own", b"2"),
    "a header more": lambda record: record._replace(headers=[*(record.headers or ()), ("own", b"2")]),
    "a header less": lambda record: record._replace(headers=list(record.headers or ())[1:]),
    "order": lambda record: record._replace(headers=list(record.headers or ())[::-1]),
    "signature": lambda record: with_header(record, H_SIGNATURE, KEYRING.signs.encode() + b":" + b"0" * 32),
    "another key": lambda _: signed(replace(KEYRING, keys=(replace(KEYRING.keys[0], secret=b"x" * 32),))),
    "unsigned": lambda record: record._replace(headers=list(record.headers or ())[:-1]),
}


@pytest.mark.parametrize("alter", ALTERED.values(), ids=ALTERED)
def test_what_was_altered_is_a_reject(alter: Callable[[BufferedRecord], BufferedRecord]) -> None:
    found = asked(alter(signed()))
    assert isinstance(found, Reject)
    assert found.code == "bad-parent"


def test_what_was_signed_for_one_partition_is_nothing_in_another() -> None:
    headers: list[Header] = [*UNSIGNED[:-1], ("delay-root", b"delay.buffer/1/7")]
    record = signed(headers=headers)._replace(partition=1)
    found = parse(record, replace(SETTINGS, partitions=2), NAMES, KEYRING)
    assert isinstance(found, Reject)
    assert found.code == "bad-parent"


@pytest.mark.parametrize("as_of", [b"40.7", b"101.7", b"90", b"90.", b".7", b"90.-1", b"x.y"])
def test_an_as_of_that_cannot_be_is_a_reject(as_of: bytes) -> None:
    numbered = [*UNSIGNED, (H_AS_OF, as_of)]
    signature = KEYRING.sign_request(0, b"key", b"value", numbered)
    found = asked(BufferedRecord([*numbered, (H_SIGNATURE, signature)]))
    assert isinstance(found, Reject)
    assert found.code == "bad-parent"


def test_what_is_too_far_away_is_a_reject_with_its_serial() -> None:
    far: list[Header] = [*UNSIGNED, ("delay-after", b"9999d")]
    found = asked(signed(headers=far))
    assert isinstance(found, Reject)
    assert (found.code, found.serial) == ("delay-too-long", SERIAL)


def test_what_is_older_than_the_keys_counts_as_it_did() -> None:
    late = replace(KEYRING, requests_from={0: 101})
    found = asked(BufferedRecord(UNSIGNED), late)
    assert isinstance(found, Schedule)
    assert (found.parent, found.serial) == (40, None)
    assert isinstance(asked(BufferedRecord(UNSIGNED, offset=101), late), Reject)


def test_of_what_was_aborted_the_serial_is_known() -> None:
    assert spent_serial(signed(), KEYRING) == SERIAL
    assert spent_serial(signed(), replace(KEYRING, requests_from={0: 101})) is None


@pytest.mark.parametrize("alter", ALTERED.values(), ids=ALTERED)
def test_what_was_altered_and_aborted_is_nothing(alter: Callable[[BufferedRecord], BufferedRecord]) -> None:
    with pytest.raises(ValueError, match=r"sign|missing"):
        spent_serial(alter(signed()), KEYRING)


def test_a_key_that_signs_no_more_is_still_known() -> None:
    assert isinstance(asked(signed(KEYRING), TWO_KEYS), Schedule)
    assert isinstance(asked(signed(TWO_KEYS), TWO_KEYS), Schedule)


@pytest.mark.parametrize(
    ("signer", "known", "named"),
    [
        (TWO_KEYS, KEYRING, OTHER.id),
        (STRANGER, KEYRING, None),
        (ring_of(key_of("0000000b", b"o" * 32, root=b"s" * 32)), KEYRING, None),
        (ring_of(key_of("0000000b", b"o" * 32, root=b"")), NO_KEYS, None),
    ],
    ids=["of the cluster", "a stranger's", "like one of the cluster", "where there are no keys"],
)
def test_a_key_that_is_not_known_is_named_if_it_is_one_of_the_clusters(
    signer: Keyring, known: Keyring, named: str | None
) -> None:
    found = asked(signed(signer), known)
    assert isinstance(found, Reject)
    assert (found.code, found.unknown_key) == ("bad-parent", named)


def test_a_checkpoint_counts_in_its_own_place_only() -> None:
    signature = KEYRING.sign_checkpoint("delay.checkpoint", 0, b"0", b"{}")
    KEYRING.check_checkpoint(signature, "delay.checkpoint", 0, b"0", b"{}")
    for place in (
        ("other.checkpoint", 0, b"0", b"{}"),
        ("delay.checkpoint", 1, b"0", b"{}"),
        ("delay.checkpoint", 0, b"0/1", b"{}"),
        ("delay.checkpoint", 0, b"0", b"{ }"),
    ):
        with pytest.raises(BadSignatureError):
            KEYRING.check_checkpoint(signature, *place)


def test_a_request_is_no_checkpoint() -> None:
    signature = KEYRING.sign_request(0, b"0", b"{}", [("delay.checkpoint", None)])
    with pytest.raises(BadSignatureError):
        KEYRING.check_checkpoint(signature, "delay.checkpoint", 0, b"0", b"{}")


def test_keys_are_read_as_they_were_written() -> None:
    ring = replace(TWO_KEYS, requests_from={0: 5, 3: 0}, checkpoints_from={0: 9})
    assert Keyring.from_json(ring.to_json()) == ring


@pytest.mark.parametrize(
    "change",
    [
        {"format_version": 2},
        {"signs": THIRD.id},
        {"root": "00"},
        {"root": "00" * 32},
        {"keys": [{"id": KEYRING.signs, "secret": "00", "made_ms": 0}]},
        {"keys": [{"id": KEYRING.signs[:8], "secret": "00" * 32, "made_ms": 0}]},
        {"keys": [{"id": STRANGER.signs, "secret": "00" * 32, "made_ms": 0}], "signs": STRANGER.signs},
        {"keys": 7},
        {"requests_from": {"x": 1}},
        {"requests_from": {"0": None}},
    ],
    ids=str,
)
def test_what_are_no_keys_are_refused_without_a_word_of_a_secret(change: dict[str, object]) -> None:
    text = json.dumps(json.loads(KEYRING.to_json()) | change)
    with pytest.raises(ValueError, match=r"^[^\n]+$") as raised:
        Keyring.from_json(text)
    assert KEYRING.keys[0].secret.hex() not in str(raised.value)
    assert ROOT.hex() not in str(raised.value)


def test_keys_do_not_show_a_secret() -> None:
    assert "secret" not in repr(KEYRING)
    assert "root" not in repr(KEYRING)


def test_two_clusters_have_neither_root_nor_secret_in_common() -> None:
    first, second = Keyring.make(1), Keyring.make(1)
    assert len({first.root, second.root, first.keys[0].secret, second.keys[0].secret}) == 4


def test_an_id_is_some_digits_and_what_only_the_root_makes_of_them() -> None:
    made = Keyring.make(1).with_another(2)
    assert all(key_id(made.root, one.id[:8]) == one.id and len(one.id) == 24 for one in made.keys)


def test_a_new_key_signs_nothing_yet() -> None:
    first = Keyring.make(1)
    assert (first.with_another(2).signs, len(first.with_another(2).ids)) == (first.signs, 2)


def test_the_key_that_was_added_last_waits_until_it_signs_and_none_after_that() -> None:
    first = Keyring.make(9)
    second = first.with_another(2)  # by a clock that is behind
    third = replace(second, signs=second.keys[1].id).with_another(2)
    signing = replace(third, keys=third.keys[::-1], signs=third.keys[2].id)
    waiting = [ring.waiting for ring in (first, second, third, signing)]
    assert waiting == [None, second.keys[1], third.keys[2], None]


THREE_KEYS = ring_of(*TWO_KEYS.keys, THIRD)
FORKED = ring_of(*KEYRING.keys, THIRD)


@pytest.mark.parametrize(
    ("one", "other", "united"),
    [
        (KEYRING, TWO_KEYS, TWO_KEYS),
        (TWO_KEYS, KEYRING, TWO_KEYS),
        (KEYRING, replace(TWO_KEYS, signs=KEYRING.signs), replace(TWO_KEYS, signs=KEYRING.signs)),
        (replace(TWO_KEYS, signs=KEYRING.signs), TWO_KEYS, TWO_KEYS),
        (TWO_KEYS, FORKED, replace(THREE_KEYS, keys=(OTHER, *FORKED.keys))),
        (FORKED, TWO_KEYS, replace(THREE_KEYS, keys=(OTHER, *FORKED.keys))),
        (replace(FORKED, signs=KEYRING.signs), TWO_KEYS, replace(TWO_KEYS, keys=(THIRD, *TWO_KEYS.keys))),
    ],
    ids=["more", "fewer", "one that waits", "that signs now", "forked", "forked, back", "forked, one waits"],
)
def test_of_two_rings_of_a_cluster_the_later_one_says_what_signs(
    one: Keyring, other: Keyring, united: Keyring
) -> None:
    assert one.united(other) == united


@pytest.mark.parametrize(
    "other",
    [
        STRANGER,
        replace(KEYRING, checkpoints_from={0: 7}),
        replace(KEYRING, keys=(replace(KEYRING.keys[0], secret=b"x" * 32),)),
    ],
    ids=["another root", "other offsets", "another secret"],
)
def test_rings_of_two_clusters_are_not_united(other: Keyring) -> None:
    with pytest.raises(ValueError, match="two"):
        KEYRING.united(other)
