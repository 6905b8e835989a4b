"""Keys for tests that sign, or read what is signed."""

from __future__ import annotations

from typing import Final, NamedTuple

from delayline.signing import Keyring, SigningKey

KEYRING: Final = Keyring((SigningKey("0000000a", b"k" * 32, 0),), "0000000a")


class FixedKeys(NamedTuple):
    """Implements `node.ports.Keys`."""

    ring: Keyring
