"""The cluster's shared znodes on a real ZooKeeper."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from delayline.settings import ClusterSettings
from election.candidates import Candidate
from election.errors import Malformed, SettingsDiffer, Superseded, Unavailable, ZnodeMissing
from election.registry import CheckpointMirror, Registry
from election.session import Session
from election.znodes import Znodes
from tests.integration.sessions import AnswerLost, started
from tests.stacks import Stack


class Watched(Session):
    """A session that looks after each change that can take a znode away or put it there."""

    def seen(self) -> None:
        """Called after each."""

    def create(self, path: str, data: bytes, **options: Any) -> str:
        made = super().create(path, data, **options)
        self.seen()
        return made

    def delete(self, path: str, **options: Any) -> bool:
        gone = super().delete(path, **options)
        self.seen()
        return gone

    def transact(self, *changes: Any, **options: Any) -> None:
        super().transact(*changes, **options)
        self.seen()


@pytest.fixture
def session(stack: Stack) -> Iterator[AnswerLost]:
    with started(AnswerLost({"hosts": stack.zookeeper}, 10)) as it:
        yield it


@pytest.fixture
def znodes(cluster_name: str) -> Znodes:
    return Znodes(cluster_name)


@pytest.fixture
def registry(session: Session, znodes: Znodes) -> Registry:
    return Registry(session, znodes)


# -- whose turn it is


def test_of_two_that_find_a_turn_over_one_has_it(registry: Registry, stack: Stack, znodes: Znodes) -> None:
    """The other one takes it between its look and its change."""
    with (
        started(Session({"hosts": stack.zookeeper}, 10)) as second,
        started(Session({"hosts": stack.zookeeper}, 10)) as third,
    ):
        assert Registry(second, znodes).take_turn(0, "gone", lambda _: True) is None
        faster = Registry(third, znodes)

        def is_over(holder: str) -> bool:
            if holder == "gone":
                assert faster.take_turn(0, "faster", lambda _: True) is None
            return holder == "gone"

        assert registry.take_turn(0, "slower", is_over) == "faster"
        assert second.read(znodes.rebuild(0))[0] == b"faster"


# -- settings


def test_settings_are_read_as_they_were_written(registry: Registry) -> None:
    settings = ClusterSettings(cluster="orders", partitions=8, lanes=2, targets=("orders-*",))
    assert registry.create_settings(settings) is True
    assert registry.settings() == settings


def test_the_same_settings_can_be_created_again(registry: Registry) -> None:
    registry.create_settings(ClusterSettings())
    assert registry.create_settings(ClusterSettings()) is False


def test_other_settings_are_refused_and_each_difference_is_named(registry: Registry) -> None:
    registry.create_settings(ClusterSettings())
    with pytest.raises(
        SettingsDiffer, match=r"partitions is 4 there, 8 here; lanes is 1 there, 2 here; `delayline settings"
    ):
        registry.create_settings(ClusterSettings(partitions=8, lanes=2))
    assert registry.settings() == ClusterSettings()


def test_a_cluster_that_was_never_created_is_told_how(registry: Registry) -> None:
    with pytest.raises(ZnodeMissing, match="delayline topics create"):
        registry.settings()


# -- members and candidates


def test_a_member_shows_its_last_status(registry: Registry) -> None:
    registry.publish_member("n1", b'{"state":"starting"}')
    registry.publish_member("n1", b'{"state":"leader"}')
    registry.publish_member("n2", b'{"state":"follower"}')
    assert registry.members() == {"n1": b'{"state":"leader"}', "n2": b'{"state":"follower"}'}


def test_a_member_is_gone_with_its_session(stack: Stack, registry: Registry, znodes: Znodes) -> None:
    with started(Session({"hosts": stack.zookeeper}, 10)) as other:
        Registry(other, znodes).publish_member("n1", b"{}")
        assert list(registry.members()) == ["n1"]
    assert registry.members() == {}


def test_a_member_that_came_back_owns_its_znode_itself(
    stack: Stack, session: Session, registry: Registry, znodes: Znodes
) -> None:
    with started(Session({"hosts": stack.zookeeper}, 10)) as former:
        Registry(former, znodes).publish_member("n1", b"1")
        registry.publish_member("n1", b"2")
    assert registry.members() == {"n1": b"2"}


def test_a_member_that_comes_back_is_never_missing(stack: Stack, registry: Registry, znodes: Znodes) -> None:
    """Who pauses deliveries waits for every member that is there."""
    registry.publish_member("n1", b"1")
    members: list[dict[str, bytes]] = []
    with started(Watched({"hosts": stack.zookeeper}, 10)) as later:
        later.seen = lambda: members.append(registry.members())  # type: ignore[method-assign]
        Registry(later, znodes).publish_member("n1", b"2")
    assert members == [{"n1": b"2"}]


def test_a_cluster_without_nodes_has_no_members_and_no_candidates(registry: Registry) -> None:
    assert (registry.members(), registry.candidates(0)) == ({}, {})


def test_the_candidates_of_a_lane_are_told_leader_first(
    session: Session, registry: Registry, znodes: Znodes
) -> None:
    for node, guid in (("n1", "f" * 32), ("n2", "a" * 32)):
        candidate = Candidate(node, "127.0.0.1", 17400, 1)
        session.create(f"{znodes.candidates(1)}/{guid}-", candidate.encode(), ephemeral=True, sequence=True)
    assert [candidate.node for candidate in registry.candidates(1).values()] == ["n1", "n2"]
    assert registry.candidates(0) == {}
    assert registry.few_candidates(1, 2, 5.0) == registry.candidates(1)
    assert registry.few_candidates(1, 1, 5.0) == registry.few_candidates(0, 2, 5.0) == {}


# -- the checkpoint's mirror


def checkpoint(epoch: int, number: int, **more: Any) -> bytes:
    return json.dumps({"format": 1, "epoch": epoch, "number": number, **more}).encode()


@pytest.fixture
def mirror(registry: Registry) -> CheckpointMirror:
    return registry.mirror(0)


def test_a_mirror_that_was_never_written_is_empty(mirror: CheckpointMirror) -> None:
    assert mirror.read() is None


def test_a_mirror_holds_the_last_checkpoint_byte_for_byte(mirror: CheckpointMirror) -> None:
    for written in (
        checkpoint(1, 0, node="n1"),
        checkpoint(1, 5, node="n1"),
        checkpoint(1, 5, at_ms=7),
        checkpoint(1, 6, position=(5, 1, 0)),
        checkpoint(2, 4, position=(4, 0, 0)),
    ):
        mirror.write(written)
        assert mirror.read() == written


@pytest.mark.parametrize(
    "earlier",
    [checkpoint(2, 9, position=(9, 9, 9)), checkpoint(3, 4, position=(9, 9, 9))],
    ids=["epoch", "number"],
)
def test_a_mirror_never_goes_back(registry: Registry, mirror: CheckpointMirror, earlier: bytes) -> None:
    present = checkpoint(3, 5, position=(5, 0, 0))
    mirror.write(present)
    for writer in (mirror, registry.mirror(0)):
        with pytest.raises(Superseded, match="another node has become leader"):
            writer.write(earlier)
    assert mirror.read() == present


def test_a_leader_that_was_succeeded_cannot_take_the_mirror_back(
    registry: Registry, mirror: CheckpointMirror
) -> None:
    mirror.write(checkpoint(1, 5))
    successor = registry.mirror(0)
    successor.write(checkpoint(2, 5))
    with pytest.raises(Superseded):
        mirror.write(checkpoint(1, 6))
    successor.write(checkpoint(2, 6))
    assert mirror.read() == checkpoint(2, 6)


def test_settings_that_cannot_be_read_are_named(session: Session, registry: Registry, znodes: Znodes) -> None:
    session.create(znodes.settings, b"{")
    with pytest.raises(Malformed, match=f"{znodes.settings} holds no settings"):
        registry.settings()


@pytest.mark.parametrize("before", [[], [checkpoint(1, 1)]], ids=["creation", "change"])
def test_a_write_whose_answer_was_lost_does_not_stop_the_next(
    session: AnswerLost, mirror: CheckpointMirror, before: list[bytes]
) -> None:
    for written in before:
        mirror.write(written)
    session.lost = 1
    with pytest.raises(Unavailable):
        mirror.write(checkpoint(1, 2))
    mirror.write(checkpoint(1, 3))
    assert mirror.read() == checkpoint(1, 3)


def test_a_mirror_deleted_by_somebody_is_made_again(
    session: Session, mirror: CheckpointMirror, znodes: Znodes
) -> None:
    mirror.write(checkpoint(1, 1))
    session.delete(znodes.checkpoint(0))
    mirror.write(checkpoint(1, 2))
    assert mirror.read() == checkpoint(1, 2)


def test_what_is_no_checkpoint_is_not_written_over(
    session: Session, mirror: CheckpointMirror, znodes: Znodes
) -> None:
    session.create(znodes.checkpoint(0), b"precious")
    with pytest.raises(Malformed, match=f"{znodes.checkpoint(0)} holds no checkpoint"):
        mirror.write(checkpoint(1, 0))
    assert mirror.read() == b"precious"
