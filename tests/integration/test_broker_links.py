"""What the end of a connection to a broker says of it."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from node.broker_links import BrokerLinks
from ops.stack.ports import HOST, free_port
from tests.support.waiting import PATIENCE_S, eventually

GONE = frozenset({7})
NONE: frozenset[int] = frozenset()


@pytest.fixture
def links() -> Iterator[BrokerLinks]:
    links = BrokerLinks()
    yield links
    links.close()


@pytest.fixture
def broker() -> Iterator[socket.socket]:
    with socket.create_server((HOST, free_port())) as listener:
        yield listener


def held(links: BrokerLinks, broker: socket.socket) -> frozenset[int]:
    return links.hold({7: broker.getsockname()})


def test_a_broker_that_accepts_connections_is_reached(links: BrokerLinks, broker: socket.socket) -> None:
    assert held(links, broker) == NONE


def test_a_broker_whose_process_has_ended_is_gone_and_that_ends_the_wait(
    links: BrokerLinks, broker: socket.socket
) -> None:
    address = broker.getsockname()
    links.hold({7: address})
    broker.accept()[0].close()
    broker.close()
    links.wait(PATIENCE_S)
    assert links.hold({7: address}) == GONE


def test_a_connection_that_is_closed_says_nothing_of_a_broker_that_accepts_another(
    links: BrokerLinks, broker: socket.socket
) -> None:
    held(links, broker)
    broker.accept()[0].close()
    links.wait(PATIENCE_S)
    assert held(links, broker) == NONE


def test_a_broker_that_is_back_is_reached(links: BrokerLinks) -> None:
    address = HOST, free_port()
    assert links.hold({7: address}) == GONE
    with socket.create_server(address):
        assert links.hold({7: address}) == NONE


def test_a_name_that_is_not_found_says_nothing_of_the_broker(links: BrokerLinks) -> None:
    assert links.hold({7: ("no-such-host.invalid", 9092)}) == NONE


def test_no_connection_is_held_to_a_broker_that_leads_nothing(
    links: BrokerLinks, broker: socket.socket
) -> None:
    held(links, broker)
    visitor, _ = broker.accept()
    links.hold({})
    visitor.setblocking(False)
    eventually(lambda: _is_over(visitor), "the connection is over")


def test_a_wait_ends_when_it_is_told_to(links: BrokerLinks) -> None:
    links.poke()
    links.wait(PATIENCE_S)


def _is_over(visitor: socket.socket) -> bool:
    try:
        return visitor.recv(1) == b""
    except BlockingIOError:
        return False
