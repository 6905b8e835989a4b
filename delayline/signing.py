"""What the service alone may say is signed: requests that it writes back into the buffer, and checkpoints.

A signature is keyed BLAKE2b over all that it vouches for, each part behind its length, so that nothing can be
altered, moved from one part to another, or used in another partition. The keys stand in a znode that only
nodes and operators read; one of them signs, the others are known for what they have signed before.

A key's id proves that it is a key of this cluster: a part of it is a keyed hash of the rest, by a secret that
the cluster keeps for ever, the root. So a node tells a key that it does not know yet from what strangers make
up.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from struct import Struct
from typing import Any, Final, TypeAlias

from delayline.headers import H_SIGNATURE, Header

Serial: TypeAlias = tuple[int, int]
"""Where a leader's reader stood in the partition, and its count of what it writes back there: each request
that is written back into a partition has a higher one than all before it.
"""

FORMAT_VERSION: Final = 1
SECRET_BYTES: Final = 32
ID_BYTES: Final = 4
PROOF_BYTES: Final = 8
SIGNATURE_BYTES: Final = 16

_REQUEST: Final = b"delayline.back"  # what is signed for one purpose is nothing for another
_CHECKPOINT: Final = b"delayline.check"
_KEY_ID: Final = b"delayline.key-id"
_ID: Final = re.compile(r"[0-9a-f]{24}", re.ASCII)
_SECRET: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_SIGNATURE: Final = re.compile(rb"([0-9a-f]{24}):([0-9a-f]{32})")
_pack: Final = Struct(">q").pack


class NewerKeys(ValueError):
    """The keys have a format that only a newer version knows: not damaged, and not to be replaced."""


class BadSignatureError(ValueError):
    """It is not the service's, as far as can be told. `unknown_key`: the id of the key that it names, where
    that is one of this cluster's and not known here: who knew it might find that it is the service's.
    """

    def __init__(self, what: str, unknown_key: str | None = None) -> None:
        super().__init__(what)
        self.unknown_key = unknown_key


@dataclass(frozen=True, slots=True)
class SigningKey:
    """One key: its name in signatures, and the secret."""

    id: str
    secret: bytes = field(repr=False)
    made_ms: int

    @classmethod
    def make(cls, root: bytes, now_ms: int) -> SigningKey:
        """A new one, from the system's randomness. `root`: the cluster's."""
        return cls(key_id(root, secrets.token_hex(ID_BYTES)), secrets.token_bytes(SECRET_BYTES), now_ms)


def key_id(root: bytes, digits: str) -> str:
    """The id of a key: its own 8 hexadecimal digits, and 16 that nobody finds without the root."""
    proof = blake2b(digits.encode(), digest_size=PROOF_BYTES, key=root, person=_KEY_ID)
    return digits + proof.hexdigest()


@dataclass(frozen=True, slots=True)
class Keyring:
    """The keys of a cluster, and the id of the one that signs.

    `root`: the secret that ids are proved by. It is made with the first key, and stays: with another one they
    are the keys of another cluster.

    `requests_from`, `checkpoints_from`: in a cluster that is older than its keys, where the partitions of the
    buffer and of the checkpoint topic ended when these were made. Below, signatures are not looked at: all
    counts as it did before.
    """

    root: bytes = field(default=b"", repr=False)
    keys: tuple[SigningKey, ...] = ()
    signs: str = ""
    requests_from: Mapping[int, int] = field(default_factory=dict)
    checkpoints_from: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def make(
        cls,
        now_ms: int,
        requests_from: Mapping[int, int] | None = None,
        checkpoints_from: Mapping[int, int] | None = None,
    ) -> Keyring:
        """That of a new cluster, or of one that had none: with one key."""
        root = secrets.token_bytes(SECRET_BYTES)
        key = SigningKey.make(root, now_ms)
        return cls(root, (key,), key.id, requests_from or {}, checkpoints_from or {})

    def with_another(self, now_ms: int) -> Keyring:
        """And a new key, which signs nothing yet. It is the youngest, whatever the clock says."""
        made_ms = max(now_ms, *(key.made_ms + 1 for key in self.keys))
        key = SigningKey.make(self.root, made_ms)
        while key.id in self.ids:
            key = SigningKey.make(self.root, made_ms)
        return replace(self, keys=(*self.keys, key))

    @property
    def waiting(self) -> SigningKey | None:
        """The key that was added last, where it does not sign yet."""
        youngest = max(self.keys, key=lambda key: key.made_ms, default=None)
        return None if youngest is None or youngest.id == self.signs else youngest

    @property
    def ids(self) -> frozenset[str]:
        """The names of the keys."""
        return frozenset(key.id for key in self.keys)

    def is_younger_than(self, partition: int, offset: int) -> bool:
        """Whether the keys were made after that record of the buffer: it means what it meant then."""
        return offset < self.requests_from.get(partition, 0)

    def united(self, other: Keyring) -> Keyring:
        """The keys of both, which are those of one cluster at two times. ValueError if they are not.

        The one that has all the other's keys is the later one, and says which key signs; if neither has, the
        one whose key was made later.
        """
        unsigned = self.requests_from, self.checkpoints_from
        if self.root != other.root or unsigned != (other.requests_from, other.checkpoints_from):
            raise ValueError("they are the keys of two clusters")
        both = set(self.keys) | set(other.keys)
        if len(both) != len(self.ids | other.ids):
            raise ValueError("they have two keys of one id")
        if both == set(other.keys):
            return other
        if both == set(self.keys):
            return self
        made_ms = {key.id: key.made_ms for key in both}
        earlier, later = sorted((self, other), key=lambda ring: (made_ms[ring.signs], ring.signs))
        return replace(later, keys=(*(key for key in earlier.keys if key not in later.keys), *later.keys))

    def sign_request(
        self, partition: int, key: bytes | None, value: bytes | None, headers: Iterable[Header]
    ) -> bytes:
        """The signature of a request that is written back into a partition of the buffer."""
        return self._sign(_REQUEST, _parts_of(partition, key, headers), value)

    def check_request(
        self,
        signature: bytes,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[Header],
    ) -> None:
        """Raises `BadSignatureError` unless the service has written that request, into that partition.

        `headers`: all but the signature's own.
        """
        self._check(signature, _REQUEST, _parts_of(partition, key, headers), value)

    def sign_checkpoint(self, topic: str, partition: int, key: bytes | None, value: bytes | None) -> bytes:
        """The signature of a record of the checkpoint topic."""
        return self._sign(_CHECKPOINT, _parts_of(partition, key, ((topic, None),)), value)

    def check_checkpoint(
        self, signature: bytes, topic: str, partition: int, key: bytes | None, value: bytes | None
    ) -> None:
        """Raises `BadSignatureError` unless the service has written that checkpoint."""
        self._check(signature, _CHECKPOINT, _parts_of(partition, key, ((topic, None),)), value)

    def _sign(self, purpose: bytes, parts: bytes, value: bytes | None) -> bytes:
        key = self._key(self.signs)
        if key is None:
            raise ValueError("there is no key to sign with: `delayline topics create` makes one")
        return f"{key.id}:{_digest(key.secret, purpose, parts, value).hex()}".encode()

    def _check(self, signature: bytes, purpose: bytes, parts: bytes, value: bytes | None) -> None:
        match = _SIGNATURE.fullmatch(signature)
        if match is None:
            raise BadSignatureError("the signature is none")
        id_ = match[1].decode()
        key = self._key(id_)
        if key is None and self._proves(id_):
            raise BadSignatureError(f"its key {id_} is one of this cluster's, and not known here", id_)
        if key is None:
            raise BadSignatureError(f"it is signed with the key {id_}, which this cluster does not have")
        made = _digest(key.secret, purpose, parts, value).hex().encode()
        if not hmac.compare_digest(made, match[2]):
            raise BadSignatureError("it is not what was signed")

    def _proves(self, id_: str) -> bool:
        """Whether it is the id of a key of this cluster, known or not."""
        return bool(self.root) and hmac.compare_digest(key_id(self.root, id_[: 2 * ID_BYTES]), id_)

    def _key(self, id_: str) -> SigningKey | None:
        for key in self.keys:
            if key.id == id_:
                return key
        return None

    def to_json(self) -> str:
        """The content of the keys' znode."""
        keys = [{"id": key.id, "secret": key.secret.hex(), "made_ms": key.made_ms} for key in self.keys]
        known = {"format_version": FORMAT_VERSION, "root": self.root.hex(), "keys": keys, "signs": self.signs}
        unsigned = {"requests_from": self.requests_from, "checkpoints_from": self.checkpoints_from}
        return json.dumps(known | {name: dict(vector) for name, vector in unsigned.items()}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Keyring:
        """Reads `to_json`'s text; ValueError (one line, without a secret) if it is none, and
        `NewerKeys` if they are a newer version's.
        """
        try:
            raw = json.loads(text)
            _expect_known(raw["format_version"])
            ring = cls(
                _read_secret(raw["root"]),
                tuple(_read_key(one) for one in raw["keys"]),
                raw["signs"],
                _read_vector(raw["requests_from"]),
                _read_vector(raw["checkpoints_from"]),
            )
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"these are no keys of a cluster: {type(error).__name__} {error}") from None
        if not all(map(ring._proves, ring.ids)):
            raise ValueError("a key's id is not one of this cluster's")
        if ring.signs not in ring.ids:
            raise ValueError("the key that is to sign is not among them")
        return ring


def _expect_known(version: Any) -> None:
    if version == FORMAT_VERSION:
        return
    said = f"format_version is {version!r}, this version reads {FORMAT_VERSION}"
    if type(version) is int and version > FORMAT_VERSION:
        raise NewerKeys(f"{said}: upgrade it")
    raise ValueError(said)


NO_KEYS: Final = Keyring()


def signature_of(headers: Iterable[Header] | None) -> bytes | None:
    """A record's signature, if it has one."""
    return next((value for name, value in headers or () if name == H_SIGNATURE), None)


def _parts_of(partition: int, key: bytes | None, headers: Iterable[Header]) -> bytes:
    parts = [_pack(partition), _packed(key)]
    for name, value in headers:
        # A header key of a stranger's may be any text.
        parts += (_packed(name.encode("utf-8", "surrogatepass")), _packed(value))
    return b"".join(parts)


def _packed(part: bytes | None) -> bytes:
    return _pack(-1) if part is None else _pack(len(part)) + part


def _digest(secret: bytes, purpose: bytes, parts: bytes, value: bytes | None) -> bytes:
    """The value may be large, and is not copied for it."""
    digest = blake2b(_pack(len(parts)), digest_size=SIGNATURE_BYTES, key=secret, person=purpose)
    digest.update(parts)
    digest.update(_pack(-1 if value is None else len(value)))
    if value is not None:
        digest.update(value)
    return digest.digest()


def _read_key(raw: Any) -> SigningKey:
    id_, secret, made_ms = raw["id"], _read_secret(raw["secret"]), raw["made_ms"]
    if _ID.fullmatch(id_) is None or type(made_ms) is not int:
        raise ValueError("a key is not an id of 24 hexadecimal digits, a secret and a time")
    return SigningKey(id_, secret, made_ms)


def _read_secret(raw: str) -> bytes:
    if _SECRET.fullmatch(raw) is None:
        raise ValueError("a secret is not 64 hexadecimal digits")
    return bytes.fromhex(raw)


def _read_vector(raw: dict[str, Any]) -> dict[int, int]:
    if not all(name.isdecimal() and type(offset) is int for name, offset in raw.items()):
        raise ValueError("an offset below which nothing is signed is none")
    return {int(name): offset for name, offset in raw.items()}
