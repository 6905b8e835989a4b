"""Every way to start wrong, by real processes of the real command, shows what docs/start-wrong.md says: one
line that says what is wrong, where, and what to do; the exit code; nothing hangs, and nothing is left.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from node.config import ConnectionConfig, NodeConfig
from ops.stack.ports import HOST, free_port
from ops.topics import cluster_topics
from tests.integration.wrong_ground import prepared
from tests.integration.wrong_page import PAGE, lines, names
from tests.integration.wrong_screens import Screen, Screens
from tests.integration.wrong_starts import GROUPS
from tests.leftovers import leftovers
from tests.stacks import Stack
from tests.support.process import NodeProcess
from tests.support.proxy import Proxy
from tests.support.waiting import eventually

# The first test waits for all rows, which are begun at once: a hundred processes on two cores.
pytestmark = pytest.mark.timeout(480)

ROWS = {names(group, row): row for group, rows in GROUPS.items() for row in rows}
SAID = lines()
MARK = ("WRONG_START", uuid.uuid4().hex)
MOST_LINES = 16


@pytest.fixture(scope="module")
def screens(
    stack: Stack, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Screens]:
    """All rows that were asked for run side by side from here on."""
    with (
        prepared(stack, tmp_path_factory.mktemp("wrong")) as ground,
        closing(Screens(ground, MARK)) as screens,
    ):
        asked = [name for name in ROWS if any(f"[{name}]" in item.nodeid for item in request.session.items)]
        for name in sorted(asked, key=lambda name: ROWS[name].waits, reverse=True):
            screens.begin(name, ROWS[name], SAID[name])
        yield screens


def shown(screens: Screens, name: str) -> Screen:
    return screens.begin(name, ROWS[name], SAID[name]).result()


COMMANDS = [name for name, row in ROWS.items() if isinstance(row.ends, int)]
NODES = [name for name, row in ROWS.items() if not isinstance(row.ends, int)]


def test_the_page_has_every_row_and_no_other() -> None:
    assert list(SAID) == list(ROWS), f"write it anew: python -m tests.integration.wrong_page ({PAGE.name})"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_starts_wrong_says_so_in_one_line_and_ends(screens: Screens, name: str) -> None:
    screen = shown(screens, name)

    assert (screen.line, screen.code) == (SAID[name], ROWS[name].ends), screen.err
    assert screen.out == ""
    assert [line for line in screen.rest if not line.startswith(PROGRESS)] == []


PROGRESS = ("starting ", "no node is running", "warning: lane 0 has no leader")
"""What a command says before it finds out."""


@pytest.mark.parametrize("name", NODES)
def test_a_node_that_starts_wrong_stays_up_says_so_once_and_ends_when_told(
    screens: Screens, name: str
) -> None:
    screen = shown(screens, name)

    assert screen.line == SAID[name], screen.err
    assert (screen.code, screen.stopped) == (None, 0), screen.err
    assert "Traceback" not in screen.err
    assert screen.err.count("\n") <= MOST_LINES, "it does not repeat itself"


def test_nothing_is_left_running(screens: Screens) -> None:
    screens.wait_ended()

    assert leftovers(*MARK) == []


def test_a_node_that_waits_goes_on_by_itself(stack: Stack, cluster_name: str, tmp_path: Path) -> None:
    zookeeper = Proxy(stack.zookeeper)
    zookeeper.cut()
    connection = ConnectionConfig(
        cluster=cluster_name, bootstrap_servers=stack.bootstrap, zookeeper=stack.zookeeper
    )
    config = NodeConfig(
        **connection.model_dump(exclude={"zookeeper"}, exclude_none=True),
        zookeeper=zookeeper.address,
        node_id="early",
        data_dir=tmp_path / "early",
        peer_host=HOST,
        peer_port=free_port(),
    )
    with closing(NodeProcess(config, tmp_path / "early.log")) as node:
        eventually(lambda: "the connection to ZooKeeper" in node.log_text(), "it waits for ZooKeeper")
        zookeeper.mend()
        eventually(lambda: "has no settings" in node.log_text(), "it waits for the cluster")
        cluster_topics.create(connection)
        node.wait_event("leadership-begun")
    zookeeper.close()
