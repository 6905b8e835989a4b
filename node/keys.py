"""The cluster's keys as a node has them: from their znode, and, should that be lost, from its own store.

A view depends on them: with other keys the same log would mean other rows. So a store keeps a copy of the
keys that it was made with; they may become more, and never fewer.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import structlog

from delayline.signing import Keyring
from node import refusal
from node.refusal import Refusing
from store import keys
from store.kv import KeyValue

log = structlog.get_logger("delayline.keys")


class NodeKeys:
    """Implements `node.ports.Keys`. `ring` may be read by any thread."""

    def __init__(self, ring: Keyring) -> None:
        self.ring = ring


def agreed(
    kv: KeyValue,
    found: Keyring | None,
    publish: Callable[[Keyring], object],
    znode: str,
    data_dir: Path,
) -> Keyring | None:
    """The keys that the znode has (`found`), if those are among them that the store was made with.

    If the znode is not there, what the store has is published; None if the node was stopped before that could
    be done. Raises `Refusing`.
    """
    raw = kv.get(keys.KEYS)
    own = None if raw is None else Keyring.from_json(raw)
    if found is None:
        if own is None:
            raise Refusing(refusal.keys_missing(znode))
        log.warning("keys-put-back", znode=znode, keys=sorted(own.ids))
        return None if publish(own) is None else own
    if own is not None and not own.keys_are_among(found):
        raise Refusing(refusal.keys_replaced(znode, sorted(own.ids - found.ids), data_dir))
    if own != found:
        batch = kv.batch()
        batch.put(keys.KEYS, found.to_json().encode())
        kv.write(batch)
        kv.flush()
    return found
