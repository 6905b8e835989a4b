"""The settings that a store was made with: what is to be restored where ZooKeeper has lost them."""

from __future__ import annotations

from pathlib import Path

from delayline.settings import ClusterSettings
from store.identity import stored_identity
from store.kv import StoreError
from store.rocks import RocksStore


def settings_of(folder: Path, cluster: str) -> ClusterSettings | None:
    """The settings that the store in a folder was made with; None if there is none of this cluster that can
    be read. No process may have it open.
    """
    if not (folder / "CURRENT").exists():
        return None
    try:
        store = RocksStore(folder)
    except StoreError:
        return None
    try:
        identity = stored_identity(store)
    except StoreError:
        return None
    finally:
        store.close()
    return None if identity is None or identity.cluster != cluster else readable(identity.settings)


def readable(text: str) -> ClusterSettings | None:
    """Settings as a store has them; None if they are another version's."""
    try:
        return ClusterSettings.from_json(text)
    except ValueError:
        return None
