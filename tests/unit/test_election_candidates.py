from __future__ import annotations

from ipaddress import ip_address

import pytest

from election.candidates import (
    UNREADABLE,
    Candidate,
    QueuePosition,
    guid_of,
    in_order,
    new_guid,
    queue_position_of,
)
from election.peer import listen_address
from election.znodes import Znodes

A, B, C = "a" * 32, "b" * 32, "c" * 32


def name(guid: str, sequence: int) -> str:
    return f"{guid}-{sequence:010d}"


def test_the_lowest_sequence_leads_whatever_the_guid() -> None:
    queue = [name(A, 3), name(C, 1), name(B, 2)]
    assert queue_position_of(C, queue) == QueuePosition(name(C, 1), ())
    assert queue_position_of(C, queue).leads


def test_those_ahead_are_told_lowest_first() -> None:
    queue = [name(A, 12), name(B, 9), name(C, 10)]
    assert queue_position_of(A, queue) == QueuePosition(name(A, 12), (name(B, 9), name(C, 10)))


def test_one_who_is_not_in_the_queue_has_everybody_ahead_and_does_not_lead() -> None:
    assert queue_position_of(A, [name(B, 1)]) == QueuePosition(None, (name(B, 1),))
    assert not queue_position_of(A, []).leads
    assert not queue_position_of(None, []).leads


def test_a_candidacy_made_twice_stands_at_its_lower_place() -> None:
    assert queue_position_of(A, [name(A, 4), name(B, 3), name(A, 2)]) == QueuePosition(
        name(A, 2), (), (name(A, 4),)
    )


@pytest.mark.parametrize(
    "stranger", ["", "lock-0000000001", A, f"{A}-", f"{A}-x000000001", f"{A.upper()}-0000000001"]
)
def test_what_has_another_kind_of_name_is_not_in_the_queue(stranger: str) -> None:
    assert in_order([stranger, name(B, 1)]) == [name(B, 1)]
    with pytest.raises(ValueError, match="is no candidacy"):
        guid_of(stranger)


def test_a_sequence_counted_over_its_end_goes_on_below_zero() -> None:
    # Java's %010d of a negative number, as ZooKeeper writes it.
    assert in_order([name(A, 5), f"{B}--000000007"]) == [f"{B}--000000007", name(A, 5)]


def test_a_name_holds_its_guid() -> None:
    guid = new_guid()
    assert guid_of(name(guid, 7)) == guid
    assert guid != new_guid()


def test_a_candidate_comes_back_from_its_json() -> None:
    candidate = Candidate("n1", "host.example", 17400, 1_700_000_000_000)
    assert Candidate.decode(candidate.encode()) == candidate


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"{}", b'{"node": 1}', b"\xff"),
        b'{"node": "\xff", "host": "h", "peer_port": 1, "at_ms": 1}',
        b'{"node": "n", "host": "h", "peer_port": 70000, "at_ms": 1}',
        b'{"a":' * 100_000,
    ],
    ids=["nothing", "empty", "else", "no JSON", "no UTF-8", "no port", "deep"],
)
def test_what_is_no_candidate_is_unreadable(data: bytes) -> None:
    assert Candidate.decode(data) is UNREADABLE


def test_the_znodes_of_a_cluster_are_all_below_its_name() -> None:
    znodes = Znodes("orders")
    assert [
        znodes.settings,
        znodes.member("n1"),
        znodes.candidates(2),
        znodes.checkpoint(2),
    ] == [
        "/delayline/orders/settings",
        "/delayline/orders/members/n1",
        "/delayline/orders/lanes/2/candidates",
        "/delayline/orders/lanes/2/checkpoint",
    ]


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("::1", "::1"),
        ("node-1.example", ""),
        ("localhost.example", ""),
    ],
)
def test_an_address_is_listened_on_as_it_is_and_for_a_name_all_interfaces(host: str, address: str) -> None:
    assert listen_address(host) == address


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "localhost.", "node-1.localhost"])
def test_a_name_that_means_this_host_alone_is_not_listened_on_for_others(host: str) -> None:
    assert ip_address(listen_address(host)).is_loopback
