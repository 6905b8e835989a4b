"""A node's view as a cold copy, and a node that is restored from it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import fsspec
import msgspec
import pytest

from node.own_stores import store_folder
from node.snapshot.secrets import Secrets
from node.status import NodeState
from tests.integration.test_node_from_peer import BadPeer, content, fill
from tests.integration.test_node_refusals import run_once
from tests.support import bad_peer
from tests.support.cluster import Cluster
from tests.support.commands import Operator, operator_of
from tests.support.fixtures import MakeCluster
from tests.support.modes import open_to_others, usual_mask
from tests.support.requests import Sender
from tests.support.retention import applied_by, delete_records
from tests.support.waiting import eventually


class Copied(NamedTuple):
    """A cluster whose node has ended, and the copy that was made of its view."""

    cluster: Cluster
    folder: Path

    @property
    def url(self) -> str:
        return str(self.folder)


@pytest.fixture
def operator(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Operator]:
    with operator_of(cluster.connection, monkeypatch, capsys, "node") as types:
        yield types


@pytest.fixture
def copied(cluster: Cluster, operator: Operator, tmp_path: Path) -> Copied:
    run_once(cluster)
    node = cluster.start_here("a")
    cluster.wait_state("a", NodeState.LEADER)
    done = operator("snapshot", "--to", str(tmp_path / "copy"), "-o", "json")
    assert (done.code, done.data["node"]) == (0, "a"), done.err
    cluster.stop_here(node)
    return Copied(cluster, tmp_path / "copy")


def refused(operator: Operator, url: str, data_dir: Path, why: str, code: int = 5) -> None:
    done = operator("restore", "--from", url, "--data", str(data_dir))
    assert (done.code, why in done.err) == (code, True), done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("kind", ["folder", "object store"])
def test_a_node_that_is_restored_has_the_view_that_was_copied_and_goes_on(
    cluster: Cluster, operator: Operator, tmp_path: Path, kind: str
) -> None:
    url = str(tmp_path / "copy") if kind == "folder" else f"memory://{cluster.name}/copy"
    node = cluster.start_here("a")
    fill(cluster, 2_000)
    eventually(lambda: cluster.member("a").get("pending", 0) >= 1_000, "they are pending")
    cluster.wait_state("a", NodeState.LEADER)
    assert operator("snapshot", "--to", url).code == 0
    with Sender(cluster) as sender:
        sender.run_now("id-7")
        sender.flush()
    cluster.wait_delivered(1)
    cluster.stop_here(node)
    assert operator("restore", "--from", url, "--data", str(cluster.data_dir("z"))).code == 0
    restored = cluster.start_here("z")
    cluster.wait_state("z", NodeState.LEADER)
    with Sender(cluster) as sender:
        sender.run_now("id-9")
        sender.flush()
    cluster.wait_delivered(2)
    cluster.stop_here(restored)
    again = cluster.start_here("a")
    cluster.wait_state("a", NodeState.LEADER)
    cluster.stop_here(again)
    assert content(cluster, "z") == content(cluster, "a")
    cluster.tail.catch_up()
    assert len(cluster.delivered) == 2


def test_nobody_else_can_read_a_copy_nor_what_is_restored(
    cluster: Cluster, operator: Operator, tmp_path: Path
) -> None:
    cluster.start_here("a")
    cluster.wait_state("a", NodeState.LEADER)
    with usual_mask():
        assert operator("snapshot", "--to", str(tmp_path / "copy")).code == 0
        assert (
            operator("restore", "--from", str(tmp_path / "copy"), "--data", str(tmp_path / "data")).code == 0
        )
    assert open_to_others(tmp_path / "copy") == []
    assert open_to_others(tmp_path / "data") == []


def test_a_copy_is_written_and_restored_where_nothing_is(
    copied: Copied, operator: Operator, tmp_path: Path
) -> None:
    done = operator("snapshot", "--to", copied.url)
    assert (done.code, "is not empty" in done.err) == (5, True)
    refused(operator, copied.url, copied.cluster.data_dir("a"), "is not empty")
    assert (store_folder(copied.cluster.data_dir("a")) / "CURRENT").exists()


def test_a_copy_of_another_cluster_is_refused(
    copied: Copied,
    make_cluster: MakeCluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    other = make_cluster()
    with operator_of(other.connection, monkeypatch, capsys, "node") as operator:
        refused(operator, copied.url, tmp_path / "data", "not sealed by a node of this cluster")
    assert not (tmp_path / "data").exists()


def test_a_copy_of_another_format_or_topic_is_refused(
    copied: Copied, operator: Operator, tmp_path: Path
) -> None:
    secrets, file = Secrets(copied.cluster.keys.root), copied.folder / "snapshot"
    manifest = secrets.opened(file.read_bytes())
    identity = manifest.identity
    for changed, why in (
        (msgspec.structs.replace(manifest, format=2), "has format 2"),
        (msgspec.structs.replace(manifest, identity=msgspec.structs.replace(identity, format=1)), "format 1"),
        (
            msgspec.structs.replace(manifest, identity=msgspec.structs.replace(identity, buffer_id="x")),
            "buffer_id 'x'",
        ),
    ):
        file.write_bytes(secrets.sealed(changed))
        refused(operator, copied.url, tmp_path / "data", why)
    assert not (tmp_path / "data").exists()


def test_a_damaged_copy_is_refused(copied: Copied, operator: Operator, tmp_path: Path) -> None:
    table = max(copied.folder.glob("*.sst"), key=lambda path: path.stat().st_size)
    whole = table.read_bytes()
    table.write_bytes(whole[:100] + b"\0" + whole[101:])
    refused(operator, copied.url, tmp_path / "data", "not what the giver has sealed")
    table.write_bytes(whole[:-1])
    refused(operator, copied.url, tmp_path / "data", "too short")
    table.unlink()
    refused(operator, copied.url, tmp_path / "data", f"lacks the file {table.name}")
    (copied.folder / "snapshot").unlink()
    refused(operator, copied.url, tmp_path / "data", "was not written to its end", code=3)
    assert not (tmp_path / "data").exists()


def test_a_copy_from_before_what_retention_has_taken_is_refused(
    copied: Copied, operator: Operator, tmp_path: Path
) -> None:
    cluster = copied.cluster
    node = cluster.start_here("a")
    with Sender(cluster) as sender:
        for _ in range(20):
            sender.schedule()
        sender.flush()
    cluster.wait_delivered(70)
    cluster.stop_here(node)
    delete_records(cluster, applied_by(cluster))
    refused(operator, copied.url, tmp_path / "data", "begins at offset")


def test_a_place_that_is_none_is_said(cluster: Cluster, operator: Operator, tmp_path: Path) -> None:
    refused(operator, "nowhere://bucket/copy", tmp_path / "data", "nowhere", code=2)
    done = operator("snapshot", "--to", str(tmp_path / "copy"))
    assert (done.code, "no node of lane 0 has caught up" in done.err) == (6, True)
    done = operator("snapshot", "--to", str(tmp_path / "copy"), "--node", "nobody")
    assert (done.code, "no node nobody is running" in done.err) == (3, True)
    assert not fsspec.filesystem("file").exists(str(tmp_path / "copy"))


def test_what_a_peer_says_instead_is_one_line_and_no_two_commands_are_one_taker(
    cluster: Cluster, operator: Operator, tmp_path: Path
) -> None:
    with closing(BadPeer(cluster, bad_peer.says_a_page)) as bad:
        for _ in range(2):
            done = operator("snapshot", "--to", str(tmp_path / "copy"))
            assert (done.code, "says 404: <html> [31m<body>Not Found" in done.err) == (6, True), done.err
            assert len(done.err.splitlines()) == 1
        takers = re.findall(rb"delayline-taker: (.*)\r", b"".join(bad.asked))
    assert len(set(takers)) == 2


def test_what_is_in_a_copy_is_sealed(copied: Copied) -> None:
    raw = b"".join(path.read_bytes() for path in copied.folder.iterdir())
    assert not any(word in raw for word in (b"later-7", copied.cluster.names.buffer.encode(), b"partitions"))
    assert not any(word in raw for word in (b"identity", b"applied", b"sha256"))
    assert not any(key.secret.hex().encode() in raw for key in copied.cluster.keys.keys)
