"""A node without a store, and peers that give it none: it begins with the log, whatever they do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from delayline.settings import ClusterSettings
from delayline.settings_versions import SettingsVersions
from delayline.signing import Keyring
from node import beginning
from node.beginning import Beginning
from node.config import NodeConfig
from node.ground import Ground
from node.kafka.topics import TopicIdentity
from node.snapshot.giver import GIVEN
from node.status import NodeState, NodeStatus

RING = Keyring.make(0)


class Registry:
    """What ZooKeeper says: there is one follower."""

    def keys(self) -> Keyring:
        return RING

    def members(self) -> dict[str, bytes]:
        return {"b": NodeStatus("b", 0, NodeState.FOLLOWER, http_host="127.0.0.1", http_port=1).encode()}


@pytest.fixture
def begun(tmp_path: Path) -> Beginning:
    where: dict[str, Any] = {"bootstrap_servers": "kafka:9092", "zookeeper": "zk:2181"}
    config = NodeConfig(node_id="a", data_dir=tmp_path / "data", **where)
    registry: Any = Registry()
    return Beginning(config, registry, lambda: False)


def ground() -> Ground:
    return Ground(SettingsVersions.of(ClusterSettings()), "kafka-id", None, TopicIdentity("topic-id", 2))


class Odd:
    """A source that does what nobody has thought of."""

    name = "b"

    def __init__(self, *_: Any) -> None:
        pass

    def manifest(self) -> bytes:
        raise KeyError("error")

    def close(self) -> None:
        pass


def test_whatever_a_peer_does_it_is_passed_over(begun: Beginning, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beginning, "PeerSource", Odd)
    assert (begun.fetch(ground()), begun.passed_over) == (False, 1)


def test_what_a_process_before_has_left_goes(begun: Beginning, tmp_path: Path) -> None:
    store = tmp_path / "data" / "store-1"
    for folder in (tmp_path / "data" / beginning.TAKEN, tmp_path / "data" / GIVEN / "1", store):
        folder.mkdir(parents=True)
        (folder / "000001.sst").write_bytes(b"")
    begun.remove_leftovers()
    assert list((tmp_path / "data").iterdir()) == [store]
