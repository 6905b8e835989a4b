"""A node without a store begins with a snapshot of a peer's, or with the log where none fits."""

from __future__ import annotations

import http.client
import random
from contextlib import closing
from typing import Any

import msgspec
import pytest

from delayline.signing import Keyring
from node.beginning import expect_in_log, looked_at
from node.own_stores import store_folder
from node.snapshot import peer
from node.snapshot.errors import Unfit, Withheld
from node.snapshot.manifest import Manifest
from node.snapshot.peer import PeerSource
from node.snapshot.secrets import Asked, Secrets
from node.status import NodeState, NodeStatus
from store import keys
from store.identity import Identity, stored_identity
from store.rocks import RocksStore
from tests.integration.test_carrying import ends_of
from tests.integration.test_node_refusals import refused, run_once
from tests.support import bad_peer
from tests.support.bad_peer import Answer, BadServer, name_of
from tests.support.cluster import Cluster
from tests.support.requests import Sender, key_in, now_ms
from tests.support.retention import alter_buffer, applied_by, delete_records
from tests.support.waiting import eventually

HOUR_MS = 3_600_000
PENDING = 20_000
SPACES = (
    *(keys.ROW, keys.LATE, keys.PENDING_ANSWER, keys.ENDING, keys.INDEX, keys.SOURCE),
    *(keys.COUNT, keys.PARK_MARK),
)
VECTORS = keys.APPLIED, keys.NEWEST, keys.SERIALS
"""Not what depends on how the log came in batches, on the checkpoint, nor what is forgotten by the clock."""


def fill(cluster: Cluster, count: int = PENDING) -> None:
    """Some have ids, of which some are cancelled, replaced or moved; nothing is due soon."""
    with Sender(cluster) as sender:
        for number in range(count):
            at_ms = now_ms() + HOUR_MS + number
            sender.schedule(at_ms=at_ms, id=f"id-{number}" if number % 2 else None)
        for number in range(1, count, 20):
            sender.cancel(f"id-{number}")
        for number in range(3, count, 40):
            sender.schedule(b"instead", at_ms=now_ms() + 2 * HOUR_MS, id=f"id-{number}")
        for number in range(5, count, 200):
            sender.reschedule(f"id-{number}", at_ms=now_ms() + 3 * HOUR_MS)
        sender.flush()


def content(cluster: Cluster, node_id: str) -> dict[bytes, Any]:
    """What the store of a node that has ended says of the log."""
    with closing(RocksStore(store_folder(cluster.data_dir(node_id)))) as store:
        found = {key: value for space in SPACES for key, value in store.scan(space, keys.end_of(space))}
        vectors = {name: msgspec.msgpack.decode(store.get(name) or b"", strict=False) for name in VECTORS}
        return found | vectors


def wait_applied_alike(cluster: Cluster, *nodes: str) -> None:
    """Until they have applied as much, and what they say is of after that."""

    def applied() -> bool:
        said = [cluster.member(node).get("applied") for node in nodes]
        return said[0] is not None and all(one == said[0] for one in said)

    eventually(applied, f"{nodes} have applied as much")


def giver_of(cluster: Cluster, node_id: str) -> Any:
    said = cluster.member(node_id).get("snapshot")
    return None if said is None else said["giver"]


@pytest.mark.fast
def test_a_new_node_takes_the_view_of_a_follower_and_has_what_the_log_says(cluster: Cluster) -> None:
    leader = cluster.start_here("a")
    cluster.wait_state("a", NodeState.LEADER)
    follower = cluster.start_here("b")
    fill(cluster)
    cluster.wait_state("b", NodeState.FOLLOWER)
    wait_applied_alike(cluster, "a", "b")
    taker = cluster.start_here("c")
    cluster.wait_state("c", NodeState.FOLLOWER)
    assert giver_of(cluster, "c") == "b"
    wait_applied_alike(cluster, "a", "b", "c")
    for node in (taker, follower, leader):
        cluster.stop_here(node)
    reader = cluster.start_here("d")
    cluster.wait_state("d", NodeState.LEADER)
    assert giver_of(cluster, "d") is None
    cluster.stop_here(reader)
    taken, read = content(cluster, "c"), content(cluster, "d")
    assert len(taken) > PENDING
    assert taken == read


def test_what_is_gone_from_the_log_is_delivered_by_a_node_that_has_it_from_a_peer(cluster: Cluster) -> None:
    """One that was away, and one that has no folder: neither can read what waits."""
    run_once(cluster)
    giver = cluster.start_here("b")
    cluster.wait_state("b", NodeState.LEADER)
    with Sender(cluster) as sender:
        for number in range(20):
            sender.schedule(b"waits", at_ms=now_ms() + HOUR_MS, id=f"id-{number}")
        ends = {partition: end + 10 for partition, end in ends_of(sender.flush()).items()}
        for number in range(40):
            sender.schedule(key=key_in(number % 2))
        sender.flush()
        cluster.wait_delivered(90)
        delete_records(cluster, ends)
        for node_id in ("a", "c"):
            cluster.start_here(node_id)
            cluster.wait_state(node_id, NodeState.FOLLOWER)
            assert giver_of(cluster, node_id) is not None
        cluster.stop_here(giver)
        for number in range(20):
            sender.run_now(f"id-{number}")
        sender.flush()
    cluster.wait_delivered(110)
    cluster.tail.catch_up()
    assert [got.value for got in cluster.delivered].count(b"waits") == 20
    assert len(cluster.delivered) == 110


def test_a_node_that_cannot_begin_takes_the_view_of_a_peer_that_comes_later(cluster: Cluster) -> None:
    run_once(cluster)
    alter_buffer(cluster, "retention.ms", "3600000")  # far too short for what may be delayed by a year
    delete_records(cluster, {partition: end - 5 for partition, end in applied_by(cluster).items()})
    cluster.start_here("b")
    refused(cluster, "b", "retention-gap")
    cluster.start_here("a")
    cluster.wait_state("a", NodeState.LEADER)
    cluster.wait_state("b", NodeState.FOLLOWER)
    assert giver_of(cluster, "b") == "a"


def test_a_taker_that_is_killed_on_the_way_has_no_store_and_takes_another_snapshot(cluster: Cluster) -> None:
    cluster.start_here("a", snapshot_bytes_per_s=1 << 20)
    cluster.wait_state("a", NodeState.LEADER)
    with Sender(cluster) as sender:
        for number in range(3_000):
            sender.schedule(random.Random(number).randbytes(2_000), at_ms=now_ms() + HOUR_MS, id=str(number))
        sender.flush()
    eventually(lambda: sum(cluster.member("a")["applied"].values()) >= 3_000, "all is applied")
    folder = cluster.data_dir("c")
    taker = cluster.start("c")
    eventually(lambda: any((folder / "taken").glob("*.sst")), "parts have come")
    taker.kill()
    assert not store_folder(folder).exists()
    cluster.start("c")
    cluster.wait_state("c", NodeState.FOLLOWER)
    assert giver_of(cluster, "c") == "a"
    assert not (folder / "taken").exists()
    eventually(lambda: not (cluster.data_dir("a") / "given").exists(), "the giver has removed its links")


def test_a_stranger_gets_nothing(cluster: Cluster) -> None:
    cluster.start_here("a")
    said = cluster.wait_state("a", NodeState.LEADER)
    where = ("a", said["http_host"], said["http_port"])
    with (
        closing(PeerSource(*where, Secrets(b"x" * 32), "c")) as stranger,
        pytest.raises(Withheld, match="403"),
    ):
        stranger.manifest()
    secrets = Secrets(cluster.keys.root)
    with closing(PeerSource(*where, secrets, "c")) as taker:
        manifest = secrets.opened(taker.manifest())
        heard = Asked.new("a", "c", "GET", f"/snapshot/{manifest.id}/0/0", now_ms())
        answers = [_answer(where, heard, secrets) for _ in range(2)]
        assert [status for status, _ in answers] == [200, 403], "what was heard counts once"
        raw = b"".join(_answer(where, _part(manifest, n), secrets)[1] for n in range(len(manifest.files)))
    secrets_of_cluster = [key.secret.hex().encode() for key in cluster.keys.keys]
    assert raw
    assert not any(secret in raw for secret in secrets_of_cluster), "what goes over the network is sealed"
    status, _ = _answer(where, heard._replace(path="/snapshot", method="POST"), Secrets(b"x" * 32))
    assert status == 403


def test_what_was_heard_counts_no_more_once_the_node_has_begun_anew(cluster: Cluster) -> None:
    node = cluster.start_here("a")
    said = cluster.wait_state("a", NodeState.LEADER)
    where, secrets = ("a", said["http_host"], said["http_port"]), Secrets(cluster.keys.root)
    with closing(PeerSource(*where, secrets, "c")) as taker:
        manifest = secrets.opened(taker.manifest())
        heard = _part(manifest, 0)
        assert _answer(where, heard, secrets)[0] == 200
        node._halt.set()  # as where its place is lost
        eventually(
            lambda: _answer(where, _part(manifest, 0), secrets)[0] == 409,
            "the node gives again, and knows nothing of that snapshot",
        )
        assert _answer(where, heard, secrets)[0] == 403


def test_what_a_giver_has_left_is_gone_before_the_store_is_opened(cluster: Cluster) -> None:
    """Its links may be what keeps the disk full."""
    folder = cluster.data_dir("a")
    (folder / "given" / "0").mkdir(parents=True)
    (folder / "given" / "0" / "000001.sst").write_bytes(b"of a process before")
    store_folder(folder).touch()  # no folder: the store cannot be opened
    cluster.start_here("a")
    cluster.wait_state("a", NodeState.REFUSING)
    assert list(folder.iterdir()) == [store_folder(folder)]


def _part(manifest: Manifest, file: int) -> Asked:
    return Asked.new("a", "c", "GET", f"/snapshot/{manifest.id}/{file}/0", now_ms())


def _answer(where: tuple[str, str, int], asked: Asked, secrets: Secrets) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(where[1], where[2], timeout=10)
    headers = {
        peer.TIME: str(asked.at_ms),
        peer.ONCE: asked.once,
        peer.TAKER: asked.taker,
        peer.SIGNATURE: secrets.sign(asked),
    }
    with closing(connection):
        connection.request(asked.method, asked.path, headers=headers)
        response = connection.getresponse()
        return response.status, response.read()


# -- peers that are none


class BadPeer(BadServer):
    """Says in ZooKeeper that it is a follower."""

    def __init__(self, cluster: Cluster, answer: Answer) -> None:
        super().__init__(answer)
        said = NodeStatus("bad", 0, NodeState.FOLLOWER, http_host="127.0.0.1", http_port=self.where[1])
        cluster.kazoo.create(cluster.znodes.member("bad"), said.encode(), ephemeral=True, makepath=True)


def test_a_taker_that_is_to_end_waits_for_no_manifest(cluster: Cluster) -> None:
    secrets = Secrets(b"x" * 32)
    with (
        closing(BadPeer(cluster, bad_peer.Keyed(secrets))) as bad,
        closing(PeerSource("bad", *bad.where, secrets, "c", is_to_end=lambda: len(bad.asked) > 2)) as source,
        pytest.raises(Withheld, match="nobody waits for it any more"),
    ):
        source.manifest()


@pytest.mark.parametrize(
    "answer",
    [
        bad_peer.hangs,
        bad_peer.drips,
        bad_peer.closes_and_then_drips,
        bad_peer.says_too_much,
        bad_peer.is_another_service,
        bad_peer.says_no_text,
        bad_peer.breaks_off,
        bad_peer.forges,
        bad_peer.makes_its_manifest,
    ],
    ids=name_of,
)
def test_a_peer_that_is_none_costs_a_while_and_the_next_one_is_asked(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    monkeypatch.setattr(peer, "ANSWER_TIMEOUT_S", 1.0)
    cluster.start_here("a")
    cluster.wait_state("a", NodeState.LEADER)
    with closing(BadPeer(cluster, answer)) as bad:
        cluster.start_here("c")
        cluster.wait_state("c", NodeState.FOLLOWER)
        assert bad.asked, "followers are asked before the leader"
    assert giver_of(cluster, "c") == "a"


def test_where_no_peer_gives_one_the_log_is_read(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer, "ANSWER_TIMEOUT_S", 1.0)
    run_once(cluster)
    with closing(BadPeer(cluster, bad_peer.hangs)) as bad:
        cluster.start_here("c")
        cluster.wait_state("c", NodeState.LEADER)
        assert bad.asked
    assert giver_of(cluster, "c") is None
    with Sender(cluster) as sender:
        sender.schedule()
    cluster.wait_delivered(51)


def test_a_giver_that_dies_in_the_middle_costs_a_while_and_the_log_is_read(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer, "ANSWER_TIMEOUT_S", 2.0)
    giver = cluster.start("a", snapshot_bytes_per_s=1 << 20)
    cluster.wait_state("a", NodeState.LEADER)
    with Sender(cluster) as sender:
        for number in range(3_000):
            sender.schedule(random.Random(number).randbytes(2_000), at_ms=now_ms() + HOUR_MS)
        sender.flush()
    eventually(lambda: sum(cluster.member("a")["applied"].values()) >= 3_000, "all is applied")
    cluster.start_here("c")
    eventually(lambda: any((cluster.data_dir("c") / "taken").glob("*.sst")), "parts have come")
    giver.kill()
    cluster.wait_state("c", NodeState.LEADER)
    assert (giver_of(cluster, "c"), sum(cluster.member("c")["applied"].values()) >= 3_000) == (None, True)


def test_a_snapshot_with_a_shorter_replay_window_is_passed_over(cluster: Cluster) -> None:
    cluster.start_here("a", replay_window_s=10)
    cluster.wait_state("a", NodeState.LEADER)
    cluster.start_here("c", replay_window_s=20)
    cluster.wait_state("c", NodeState.FOLLOWER)
    assert giver_of(cluster, "c") is None


def test_a_store_that_is_ahead_of_the_log_is_passed_over(cluster: Cluster) -> None:
    """The log may be another one: whoever takes what its peer has read would refuse, for good."""
    run_once(cluster)
    config, topic = cluster.node_config("a"), cluster.names.buffer
    applied = applied_by(cluster)
    expect_in_log(applied, config, topic)
    with pytest.raises(Unfit, match="ends at offset"):
        expect_in_log(applied | {0: 10_000}, config, topic)
    delete_records(cluster, applied)
    with pytest.raises(Unfit, match="begins at offset"):
        expect_in_log(applied | {0: 0}, config, topic)


def test_a_store_of_another_cluster_is_passed_over_whatever_its_manifest_says(
    cluster: Cluster,
) -> None:
    run_once(cluster)
    identity = _identity(cluster, "a")
    folder = store_folder(cluster.data_dir("a"))
    looked_at(folder, identity, cluster.keys, [0, 1])
    other = Keyring.make(now_ms())
    with pytest.raises(Unfit, match="other keys"):
        looked_at(folder, identity, other, [0, 1])
    with pytest.raises(Unfit, match="another cluster"):
        looked_at(folder, msgspec.structs.replace(identity, cluster="other"), cluster.keys, [0, 1])


def _identity(cluster: Cluster, node_id: str) -> Identity:
    with closing(RocksStore(store_folder(cluster.data_dir(node_id)))) as store:
        found = stored_identity(store)
    assert found is not None
    return found
