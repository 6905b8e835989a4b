"""What operators write into ZooKeeper, each change with its entry of the history, on a real ZooKeeper."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence

import msgspec
import pytest

from election.errors import Malformed, Newer, RequestWaits, ZnodeChanged, ZnodeExists, ZnodeMissing
from election.operators import (
    BY_PREFERENCE,
    SWITCHOVER,
    VALID_S,
    Author,
    HistoryEntry,
    PauseState,
    Switchover,
    decode_switchover,
    encode,
)
from election.registry import MOST_HISTORY, Registry
from election.session import Delete, Make, Replace, Session, Stat
from election.znodes import Znodes
from store.operations import OperatorRequest, ReplayRequest, SkipRequest, StopReplay
from tests.integration.sessions import started
from tests.stacks import Stack

AUTHOR = Author("somebody", "to see what happens", 7)


@pytest.fixture(scope="module")
def session(stack: Stack) -> Iterator[Session]:
    with started(Session({"hosts": stack.zookeeper}, 10)) as it:
        yield it


@pytest.fixture
def znodes(cluster_name: str) -> Znodes:
    return Znodes(cluster_name)


@pytest.fixture
def registry(session: Session, znodes: Znodes) -> Registry:
    return Registry(session, znodes)


def entry(what: str, lane: int | None = None) -> HistoryEntry:
    return HistoryEntry(what=what, author=AUTHOR, lane=lane)


def take_up(registry: Registry, number: int, epoch: int = 1) -> None:
    """What a leader does, as its mirror shows it."""
    checkpoint = {"epoch": epoch, "position": None, "operation": {"number": number}}
    registry.mirror(0).write(json.dumps(checkpoint).encode())


def asked(registry: Registry) -> OperatorRequest:
    request: OperatorRequest = msgspec.json.decode(registry.asked(0) or b"", type=OperatorRequest)
    return request


def whats(registry: Registry) -> list[str]:
    return [one.what for one in registry.history()]


# -- a transaction


def test_of_a_transaction_that_fails_nothing_is_there(session: Session, znodes: Znodes) -> None:
    session.create(f"{znodes.root}/one", b"1")
    changes = (Make(f"{znodes.root}/two", b"2"), Replace(f"{znodes.root}/one", b"3", 5))
    with pytest.raises(ZnodeChanged, match=rf"{znodes.root}/one .*somebody else wrote it first"):
        session.transact(*changes)
    assert session.exists(f"{znodes.root}/two") is None
    assert session.read(f"{znodes.root}/one")[0] == b"1"


def test_a_transaction_says_what_its_first_wrong_change_is(session: Session, znodes: Znodes) -> None:
    session.create(f"{znodes.root}/one", b"1")
    with pytest.raises(ZnodeExists, match=f"{znodes.root}/one"):
        session.transact(Make(f"{znodes.root}/new", b""), Make(f"{znodes.root}/one", b"2"))
    with pytest.raises(ZnodeMissing, match=f"{znodes.root}/none"):
        session.transact(Replace(f"{znodes.root}/none", b"", 0))


# -- a dead node

DEAD = "dead"
CANDIDACIES = [(0, "x-0000000001"), (1, "x-0000000002")]


@pytest.fixture
def dead(session: Session, znodes: Znodes) -> list[str]:
    """The znodes of a node that is dead."""
    paths = [*(f"{znodes.candidates(lane)}/{name}" for lane, name in CANDIDACIES), znodes.member(DEAD)]
    for path in paths:
        session.create(path, b"{}")
    return paths


def test_a_dead_node_is_removed_with_the_entry(session: Session, registry: Registry, dead: list[str]) -> None:
    assert registry.remove_node(DEAD, CANDIDACIES, entry("remove")) == dead
    assert [session.exists(path) for path in dead] == [None] * 3
    assert whats(registry) == ["remove"]


def test_what_of_a_dead_node_goes_by_itself_does_not_hold_up_the_rest(
    session: Session, registry: Registry, dead: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    transact = session.transact

    def too_late(*changes: Make | Replace | Delete) -> None:
        session.delete(dead[1])
        transact(*changes)

    monkeypatch.setattr(session, "transact", too_late)
    assert registry.remove_node(DEAD, CANDIDACIES, entry("remove")) == [dead[0], dead[2]]
    assert registry.remove_node(DEAD, CANDIDACIES, entry("remove")) == []
    assert whats(registry) == ["remove"]


# -- what is paused


def test_of_a_new_cluster_nothing_is_paused(registry: Registry) -> None:
    assert registry.pauses() == (PauseState(), None)
    assert registry.history() == []


def test_a_change_of_what_is_paused_is_there_with_its_entry(registry: Registry) -> None:
    paused = registry.change_pauses(lambda _: PauseState(paused=AUTHOR), entry("pause"))
    assert paused == registry.pauses()[0] == PauseState(paused=AUTHOR)
    registry.change_pauses(lambda there: msgspec.structs.replace(there, paused=None), entry("resume"))
    assert registry.pauses() == (PauseState(), 1)
    assert whats(registry) == ["pause", "resume"]


def test_what_changes_nothing_is_neither_written_nor_recorded(registry: Registry) -> None:
    registry.change_pauses(lambda _: PauseState(paused=AUTHOR), entry("pause"))
    assert registry.change_pauses(lambda there: there, entry("again")) == PauseState(paused=AUTHOR)
    assert registry.pauses()[1] == 0
    assert whats(registry) == ["pause"]


def test_two_operators_at_once_lose_neither_change(registry: Registry) -> None:
    def second(there: PauseState) -> PauseState:
        return msgspec.structs.replace(there, paused_targets={**there.paused_targets, "two": AUTHOR})

    def first(there: PauseState) -> PauseState:
        if "two" not in there.paused_targets:
            registry.change_pauses(second, entry("second"))  # in between
        return msgspec.structs.replace(there, paused_targets={**there.paused_targets, "one": AUTHOR})

    registry.change_pauses(first, entry("first"))
    assert sorted(registry.pauses()[0].paused_targets) == ["one", "two"]
    assert whats(registry) == ["second", "first"]


def test_what_cannot_be_read_is_not_written_over(
    session: Session, registry: Registry, znodes: Znodes
) -> None:
    session.create(znodes.pauses, b"precious")
    with pytest.raises(Malformed, match=f"{znodes.pauses} does not say what is paused"):
        registry.change_pauses(lambda _: PauseState(), entry("resume"))
    assert session.read(znodes.pauses)[0] == b"precious"
    assert whats(registry) == []


# -- requests


def test_requests_are_numbered_on_from_what_was_asked_and_what_was_taken_up(registry: Registry) -> None:
    assert registry.asked(0) is None
    assert registry.ask(0, SkipRequest(0, 5), entry("skip", 0)) == 1
    assert asked(registry) == SkipRequest(1, 5)
    take_up(registry, 1)
    assert registry.ask(0, ReplayRequest(0, 5, 6), entry("replay", 0)) == 2
    take_up(registry, 8)  # of a request whose znode was lost
    assert registry.ask(0, ReplayRequest(0, 5, 6, "target"), entry("replay", 0)) == 9
    assert asked(registry) == ReplayRequest(9, 5, 6, "target")
    assert whats(registry) == ["skip", "replay", "replay"]


def test_a_request_that_waits_is_not_lost_to_a_later_one_unless_it_is_to_be(registry: Registry) -> None:
    registry.ask(0, SkipRequest(0, 5), entry("skip", 0))
    with pytest.raises(RequestWaits, match=r"request 1 at .* waits for the leader of lane 0"):
        registry.ask(0, ReplayRequest(0, 5, 6), entry("replay", 0))
    assert asked(registry) == SkipRequest(1, 5)
    assert registry.ask(0, StopReplay(0), entry("cancel", 0), instead=True) == 2
    assert asked(registry) == StopReplay(2)
    assert whats(registry) == ["skip", "cancel"]


def test_lanes_are_asked_apart(registry: Registry) -> None:
    assert registry.ask(0, SkipRequest(0, 5), entry("skip", 0)) == 1
    assert registry.ask(1, SkipRequest(0, 6), entry("skip", 1)) == 1
    assert [one.lane for one in registry.history()] == [0, 1]


# -- switchovers


def test_a_switchover_is_there_with_its_entry_until_it_is_dropped(
    session: Session, registry: Registry, znodes: Znodes
) -> None:
    for epoch in (3, 4):
        wanted = Switchover(epoch, "n2", AUTHOR)
        registry.want_switchover(0, wanted, entry("switchover", 0))
        path = znodes.switchover(0)
        assert decode_switchover(session.read(path)[0], path) == wanted
    assert [registry.drop_switchover(0), registry.drop_switchover(0)] == [True, False]
    assert whats(registry) == ["switchover", "switchover"]


def test_a_leader_s_own_replaces_none_of_its_leadership_and_takes_none_but_itself_back(
    session: Session, registry: Registry, znodes: Znodes
) -> None:
    path = znodes.switchover(0)
    own = Switchover(4, "n2", AUTHOR, by_preference=True)
    operators = Switchover(4, "n3", AUTHOR)
    registry.want_switchover(0, Switchover(3, "n3", AUTHOR), entry(SWITCHOVER, 0))
    assert registry.hand_over(0, own, entry(BY_PREFERENCE, 0))
    registry.want_switchover(0, operators, entry(SWITCHOVER, 0))
    assert not registry.hand_over(0, own, entry(BY_PREFERENCE, 0))
    registry.take_back(0, own)
    assert decode_switchover(session.read(path)[0], path) == operators
    registry.take_back(0, operators)
    registry.take_back(0, operators)
    assert session.exists(path) is None
    assert registry.hand_over(0, own, entry(BY_PREFERENCE, 0))
    assert whats(registry) == [SWITCHOVER, BY_PREFERENCE, SWITCHOVER, BY_PREFERENCE]


@pytest.mark.parametrize("epoch", [4, 1_000_000])
def test_a_leader_s_own_replaces_what_nobody_heeds_any_more(registry: Registry, epoch: int) -> None:
    """As a command leaves behind that was killed."""
    registry.want_switchover(0, Switchover(epoch, "n3", AUTHOR), entry(SWITCHOVER, 0))
    now_ms, valid_ms = time.time_ns() // 1_000_000, int(1_000 * VALID_S)
    for later_ms, replaces in ((valid_ms - 10_000, False), (valid_ms + 10_000, True)):
        author = Author("n1", "n2 is preferred", now_ms + later_ms)
        own = Switchover(4, "n2", author, by_preference=True)
        assert registry.hand_over(0, own, entry(BY_PREFERENCE, 0)) is replaces


# -- the history


def test_the_history_since_a_time_is_what_zookeeper_s_server_has_written_since_then(
    session: Session, registry: Registry, znodes: Znodes
) -> None:
    assert since(registry, 0) == []
    for what in ("first", "second", "third"):
        registry.record(entry(what))
    names = sorted(session.children(znodes.history))
    stats = [session.exists(f"{znodes.history}/{name}") for name in names]
    written_ms = [stat.written_ms for stat in stats if stat is not None]
    found = since(registry, written_ms[0])
    assert [(one.what, at_ms) for one, at_ms in found] == list(
        zip(("third", "second", "first"), reversed(written_ms), strict=True)
    )
    assert since(registry, written_ms[2] + 1) == []


def since(registry: Registry, since_ms: int) -> list[tuple[HistoryEntry, int]]:
    return list(registry.history_since(since_ms, 5.0))


def test_of_a_long_history_all_is_read_and_no_more_than_is_asked_for(
    session: Session, registry: Registry, znodes: Znodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(70):
        session.create(f"{znodes.history}/entry-", encode(entry(str(number))), sequence=True)
    assert [one.what for one, _ in since(registry, 0)] == [str(number) for number in reversed(range(70))]
    asked: list[str] = []
    read_together = session.read_together

    def counted(paths: Sequence[str], *, timeout_s: float | None = None) -> list[tuple[bytes, Stat] | None]:
        asked.extend(paths)
        return read_together(paths, timeout_s=timeout_s)

    monkeypatch.setattr(session, "read_together", counted)
    assert next(registry.history_since(0, 5.0))[0].what == "69"
    assert len(asked) < 70


def test_an_entry_that_is_older_is_no_hindrance_however_it_reads(
    session: Session, registry: Registry, znodes: Znodes
) -> None:
    session.create(f"{znodes.history}/entry-", b"\xff", sequence=True)
    with pytest.raises(Malformed, match="is no entry of the history"):
        since(registry, 0)
    assert since(registry, time.time_ns() // 1_000_000 + 60_000) == []


def test_the_history_holds_what_was_recorded_in_order_and_all_of_it(registry: Registry) -> None:
    removed = HistoryEntry(what="remove", author=AUTHOR, lane=0, before="n1", after=None)
    registry.record(removed)
    for number in range(3):
        registry.record(entry(f"change {number}"))
    assert registry.history()[0] == removed
    assert whats(registry) == ["remove", "change 0", "change 1", "change 2"]
    assert [one.what for one in registry.history(2)] == ["change 1", "change 2"]


def test_an_entry_of_a_newer_version_is_shown_as_unreadable(
    session: Session, registry: Registry, znodes: Znodes
) -> None:
    registry.record(entry("before"))
    session.create(f"{znodes.history}/entry-", b'{"format": 2}', sequence=True)
    registry.record(entry("after"))
    assert whats(registry) == ["before", "unreadable", "after"]
    assert "is of a newer version: it has format 2" in registry.history()[1].author.reason


def test_the_pauses_of_a_newer_version_are_not_written_over(
    session: Session, registry: Registry, znodes: Znodes
) -> None:
    newer = b'{"format": 2}'
    session.create(znodes.pauses, newer)
    with pytest.raises(Newer):
        registry.change_pauses(lambda _: PauseState(), entry("resume"))
    assert session.read(znodes.pauses)[0] == newer


def test_the_history_keeps_the_last_thousand(session: Session, registry: Registry, znodes: Znodes) -> None:
    registry.record(entry("first"))
    session.transact(*[Make(f"{znodes.history}/entry-", b"{}", sequence=True)] * MOST_HISTORY)
    registry.record(entry("last"))
    names = sorted(session.children(znodes.history))
    assert len(names) == MOST_HISTORY
    assert names[-1] == "entry-0000001001"
