"""Keys for tests that sign, or read what is signed."""

from __future__ import annotations

from typing import Final, NamedTuple

from delayline.signing import Keyring, SigningKey, key_id

ROOT: Final = b"r" * 32


def key_of(digits: str, secret: bytes, made_ms: int = 0, root: bytes = ROOT) -> SigningKey:
    """A key whose id begins with these digits."""
    return SigningKey(key_id(root, digits), secret, made_ms)


def ring_of(*keys: SigningKey, root: bytes = ROOT) -> Keyring:
    """One whose last key signs."""
    return Keyring(root, keys, keys[-1].id)


KEYRING: Final = ring_of(key_of("0000000a", b"k" * 32))
STRANGERS_ROOT: Final = b"s" * 32
STRANGER: Final = ring_of(key_of("0badc0de", b"s" * 32, root=STRANGERS_ROOT), root=STRANGERS_ROOT)


class FixedKeys(NamedTuple):
    """Implements `node.core.ports.KeyringSource`."""

    ring: Keyring
