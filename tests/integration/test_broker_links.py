"""What the end of a connection to a broker says of it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from node.kafka.broker_links import WAITED_S, BrokerLinks, LinkChanges
from ops.stack.ports import HOST, free_port
from tests.support.waiting import PATIENCE_S, eventually

NONE: frozenset[int] = frozenset()
BROKER = frozenset({7})


@pytest.fixture
def links() -> Iterator[BrokerLinks]:
    links = BrokerLinks()
    yield links
    links.close()


@pytest.fixture
def broker() -> Iterator[socket.socket]:
    with socket.create_server((HOST, free_port())) as listener:
        yield listener


def held(links: BrokerLinks, broker: socket.socket) -> LinkChanges:
    return links.retain({7: broker.getsockname()})


def test_a_broker_that_accepts_connections_is_reached(links: BrokerLinks, broker: socket.socket) -> None:
    assert held(links, broker) == (NONE, NONE)


def test_a_broker_whose_process_has_ended_is_gone_and_that_ends_the_wait(
    links: BrokerLinks, broker: socket.socket
) -> None:
    address = broker.getsockname()
    links.retain({7: address})
    broker.accept()[0].close()
    broker.close()
    links.wait(PATIENCE_S)
    assert links.retain({7: address}) == (BROKER, BROKER)
    assert links.retain({7: address}) == (BROKER, NONE)


def test_a_broker_that_accepts_another_connection_may_have_died_meanwhile(
    links: BrokerLinks, broker: socket.socket
) -> None:
    held(links, broker)
    broker.accept()[0].close()
    links.wait(PATIENCE_S)
    assert held(links, broker) == (NONE, BROKER)
    assert held(links, broker) == (NONE, NONE)


def test_a_broker_that_is_back_is_reached(links: BrokerLinks) -> None:
    address = HOST, free_port()
    assert links.retain({7: address}).gone == BROKER
    with socket.create_server(address):
        assert links.retain({7: address}).gone == NONE


def test_a_name_that_is_not_found_says_nothing_of_the_broker(links: BrokerLinks) -> None:
    assert links.retain({7: ("no-such-host.invalid", 9092)}).gone == NONE


def test_a_name_server_that_does_not_answer_holds_nobody_up(
    links: BrokerLinks, broker: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()
    look_up = socket.getaddrinfo

    def slow(host: str, *rest: Any, **named: Any) -> Any:
        if host == "slow":
            answered.wait(PATIENCE_S)
        return look_up(HOST if host == "slow" else host, *rest, **named)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    brokers = {7: ("slow", broker.getsockname()[1]), 8: (HOST, free_port())}
    began_s = time.monotonic()
    assert links.retain(brokers).gone == {8}
    first_s = time.monotonic()
    assert links.retain(brokers).gone == {8}
    assert (first_s - began_s < 2 * WAITED_S, time.monotonic() - first_s < WAITED_S) == (True, True)
    answered.set()
    eventually(
        lambda: links.retain(brokers).gone == {8} and brokers[7] in links._sockets, "the name is known"
    )


def test_no_connection_is_held_to_a_broker_that_leads_nothing(
    links: BrokerLinks, broker: socket.socket
) -> None:
    held(links, broker)
    visitor, _ = broker.accept()
    links.retain({})
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
