"""Terminal screens of a running system: `python -m tests.screens terminal` writes docs/screens.md."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ops.stack import LocalStack
from ops.topics.new_settings import RETENTION_MS
from tests.support.cluster import Cluster
from tests.support.requests import Sender, now_ms
from tests.support.waiting import eventually

PAGE: Final = Path(__file__).parents[1] / "docs" / "screens.md"
_ROOT: Final = PAGE.parents[1]
_NODES: Final = ("node-1", "node-2", "node-3")
_TARGETS: Final = {"orders": 5, "reminders": 3, "retries": 1}
_HOUR_MS: Final = 3_600_000

_HEAD = """\
# Screens

What operators see, taken from a running cluster of three nodes by `python -m tests.screens terminal`. What
the commands do: [the operator's seat](cluster.md), [looking messages up](lookup.md).
"""


@dataclass(frozen=True, slots=True)
class Screen:
    """One command and what it is shown for; `columns`: on a terminal that wide, else in a pipe."""

    title: str
    command: str
    columns: int | None = None


SCREENS: Final = (
    Screen("Who is there", "cluster status"),
    Screen("The same on a terminal of 60 columns", "cluster status", 60),
    Screen("The checkpoint, in the topic and in ZooKeeper", "checkpoint show"),
    Screen("When what is pending falls due", "due"),
    Screen("Is all well", "doctor --all"),
    Screen(
        "A target is paused", "cluster pause --target delay.orders --reason 'orders is moved' --confirm delay"
    ),
    Screen("What is paused is shown", "cluster status"),
    Screen("What the doctor says of that", "doctor"),
    Screen("It goes on", "cluster resume --target delay.orders --reason 'orders is back' --confirm delay"),
    Screen("Another leader", "cluster switchover --to node-3 --reason 'node-1 is restarted' --confirm delay"),
    Screen(
        "A switchover that makes no sense", "cluster switchover --to node-9 --reason 'oops' --confirm delay"
    ),
    Screen("Nothing to accept", "cluster accept-gap --reason 'retention was too short'"),
    Screen("The cluster's settings", "settings show"),
    Screen(
        "What a change of them would change",
        "settings change --retention 14d --max-request-bytes 2000000 --reason 'longer outages'",
    ),
    Screen("What a move to another cluster would take out", "pending export --dry-run"),
    Screen("A cold copy of a node's view", "node snapshot --to copies/delay"),
)


def write_screens() -> None:
    """Start a stack and a cluster on it, type every command, write the page."""
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalStack(Path(folder) / "servers") as stack,
        Cluster(stack, "delay", Path(folder), targets=tuple(_TARGETS), retention_ms=RETENTION_MS) as cluster,
    ):
        for count, node in enumerate(_NODES, 1):
            cluster.start(node)
            cluster.wait_candidates(count)
        _schedule(cluster)
        page = _HEAD + "".join(_shown(cluster, screen, Path(folder)) for screen in SCREENS)
    PAGE.write_text(page)


def _schedule(cluster: Cluster) -> None:
    """More of it soon than later, to three targets."""
    begin_ms = now_ms()
    with Sender(cluster) as sender:
        for target, share in _TARGETS.items():
            for number in range(100 * share):
                sender.schedule(target=target, at_ms=begin_ms + 20_000 + number * number // share)
                sender.schedule(target=target, at_ms=begin_ms + number * 11 * _HOUR_MS // 100)
                sender.schedule(target=target, at_ms=begin_ms + number * 5 * _HOUR_MS)
        sender.flush()
    eventually(lambda: all(cluster.member(node).get("pending", 0) > 1_000 for node in _NODES), "all is there")


def _shown(cluster: Cluster, screen: Screen, folder: Path) -> str:
    own = {
        "DELAYLINE_BOOTSTRAP_SERVERS": cluster.bootstrap,
        "DELAYLINE_ZOOKEEPER": cluster.zookeeper,
        "DELAYLINE_CLUSTER": cluster.name,
        "NO_COLOR": "1",
        "PYTHONPATH": str(_ROOT),
    }
    if screen.columns is not None:
        own |= {"COLUMNS": str(screen.columns), "FORCE_COLOR": "1", "TERM": "xterm"}
    done = subprocess.run(
        [sys.executable, "-m", "ops.cli.main", *shlex.split(screen.command)],
        cwd=folder,
        env=os.environ | own,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    code = f"(exit code {done.returncode})\n" if done.returncode else ""
    said = "\n".join(line.rstrip() for line in done.stdout.splitlines())
    return f"\n## {screen.title}\n\n```\n$ delayline {screen.command}\n{said}\n{code}```\n"
