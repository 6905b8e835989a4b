"""What a node tells systemd, read from a real socket."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from node.health.systemd import ServiceManager


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """A socket as systemd opens it, and its name in NOTIFY_SOCKET."""
    name = f"@{uuid.uuid4().hex}" if request.param == "abstract" else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(name.replace("@", "\0", 1))
        listener.setblocking(False)
        yield listener, name


def heard(listener: socket.socket) -> list[list[str]]:
    """The datagrams that have come, in lines."""
    datagrams = []
    while True:
        try:
            datagrams.append(listener.recv(4096).decode().splitlines())
        except BlockingIOError:
            return datagrams


def test_it_is_told_once_that_the_node_is_ready_and_each_state_as_it_changes(
    manager: tuple[socket.socket, str],
) -> None:
    listener, name = manager
    told = ServiceManager({"NOTIFY_SOCKET": name})
    told.tell(ready=False, words="catching-up")
    told.tell(ready=True, words="follower")
    told.tell(ready=True, words="follower")
    told.tell(ready=True, words="leader")
    told.tell(ready=False, words="refusing: disk-full:\n no room")
    told.stopping()
    assert heard(listener) == [
        ["STATUS=catching-up"],
        ["READY=1", "STATUS=follower"],
        ["STATUS=leader"],
        ["STATUS=refusing: disk-full: no room"],
        ["STOPPING=1", "STATUS=stopping"],
    ]


@pytest.mark.parametrize(
    ("given", "signs"),
    [
        ({}, 0),
        ({"WATCHDOG_USEC": "0"}, 0),
        ({"WATCHDOG_USEC": "30000000"}, 3),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 3),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, 0),
    ],
)
def test_the_watchdog_gets_a_sign_each_time_if_it_watches_this_process(
    manager: tuple[socket.socket, str], given: dict[str, str], signs: int
) -> None:
    listener, name = manager
    told = ServiceManager({"NOTIFY_SOCKET": name, **given})
    for _ in range(3):
        told.tell(ready=False, words="starting")
    assert sum("WATCHDOG=1" in lines for lines in heard(listener)) == signs


@pytest.mark.parametrize("name", ["", "vsock:2:1234", "/nowhere/notify"])
def test_who_is_not_there_is_not_told(name: str) -> None:
    told = ServiceManager({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "30000000"})
    told.tell(ready=True, words="leader")
    told.stopping()


def test_a_manager_that_does_not_read_holds_nothing_up(manager: tuple[socket.socket, str]) -> None:
    _, name = manager
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as another:
        another.setblocking(False)
        with suppress(BlockingIOError):
            while another.sendto(b"X=1", name.replace("@", "\0", 1)):
                pass
        ServiceManager({"NOTIFY_SOCKET": name}).tell(ready=True, words="leader")
