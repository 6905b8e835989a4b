"""The pages have every state of a node and every health."""

from __future__ import annotations

import re
from pathlib import Path

from node.status import NodeState
from ops.clients.members import Health

DOCS = Path(__file__).parents[2] / "docs"


def test_the_table_of_states_has_those_that_there_are_and_no_others() -> None:
    table = (DOCS / "operations.md").read_text().partition("## States of a node")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE) == list(NodeState)


def test_the_status_s_page_has_every_health_the_worst_first() -> None:
    told = (DOCS / "cluster.md").read_text().partition("*Health* is ")[2].partition("*Delivered up to*")[0]
    assert [name for name in re.findall(r"`([a-z]+)`", told) if name in set(Health)] == [
        Health.OK,
        *(health for health in Health if health != Health.OK),
    ]
