"""What a supervisor hears of a lane's process: what a node tells a service manager, over a real socket."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from node.health.systemd import ServiceManager
from ops.errors import ConfigError
from ops.lanes.signs import Signs, SignSocket, expect_heard


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "0"


@pytest.fixture
def heard(path: Path) -> Iterator[SignSocket]:
    made = SignSocket(path)
    yield made
    made.close()


@pytest.fixture
def node(path: Path) -> ServiceManager:
    """What speaks to it."""
    return ServiceManager({"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "30000000"})


def test_a_node_s_words_and_that_it_is_ready_are_heard(heard: SignSocket, node: ServiceManager) -> None:
    node.tell(ready=False, words="catching-up")
    node.tell(ready=True, words="follower")
    assert heard.read() == Signs(any=True, ready=True, words="follower")


def test_a_node_that_has_nothing_new_to_say_gives_a_sign(heard: SignSocket, node: ServiceManager) -> None:
    node.tell(ready=True, words="leader")
    heard.read()
    node.tell(ready=True, words="leader")
    assert heard.read() == Signs(any=True, ready=False, words=None)


def test_nothing_is_no_sign(heard: SignSocket) -> None:
    assert heard.read() == Signs(any=False)


def test_what_an_earlier_process_has_said_is_not_heard(
    heard: SignSocket, path: Path, node: ServiceManager
) -> None:
    node.tell(ready=True, words="leader")
    later = SignSocket(path)
    assert later.read() == Signs(any=False)
    later.close()


def test_what_is_no_text_is_a_sign_all_the_same(heard: SignSocket, path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"\xff\n=\nSTATUS=\xff", str(path))
    assert heard.read() == Signs(any=True, words="\ufffd")


def test_a_folder_of_too_long_a_name_is_refused_with_what_to_do(tmp_path: Path) -> None:
    expect_heard(tmp_path, "3")
    with pytest.raises(
        ConfigError, match="/3: AF_UNIX path too long; set TMPDIR to a folder with a short name"
    ):
        expect_heard(tmp_path / ("x" * 120), "3")
