"""Lists of several lanes: cursors, and the merging of pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from node.http.answers import AnsweringNode, Listed, Message, cursor, parse_cursor
from node.status import NodeState, NodeStatus
from ops.clients.members import Member
from ops.clients.nodes import LaneNodes, in_order
from ops.message import lookup
from store.keys import RowKey
from store.lookup import Total

NODE = AnsweringNode("n", 0, NodeState.LEADER, {}, None, 0)


@pytest.mark.parametrize(
    "text", ["", "1-2", "1-2-3-4", "1-2-x", "1-2--3", "-1-2-3", "1-99999999999-3", "9" * 30]
)
def test_what_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no cursor"):
        parse_cursor(text)


def test_a_cursor_is_a_key() -> None:
    assert parse_cursor(cursor((1_767_225_600_000, 3, 42))) == (1_767_225_600_000, 3, 42)


class Pages(LaneNodes):
    """A lane that answers with pages of two rows, every second one of them empty."""

    def __init__(self, keys: list[RowKey]) -> None:
        super().__init__(0, [])
        self._keys = sorted(keys)
        self._asked = 0

    def ask(self, kind: Any, path: str, params: Mapping[str, Any], timeout_s: float = 0.0) -> Any:
        self._asked += 1
        after = parse_cursor(params["after"]) if params["after"] else (-1, -1, -1)
        behind = [key for key in self._keys if key > after]
        shown = behind[:2] if self._asked % 2 else []
        last = shown[-1] if shown else after
        end = not behind[len(shown) :]
        return Listed(
            NODE,
            [
                Message(state="pending", id=None, due_ms=key[0], source=f"b/{key[1]}/{key[2]}")
                for key in shown
            ],
            None if end else cursor(last),
            Total(len(self._keys), at_least=False) if params["after"] is None else None,
        )


def pages(lanes: list[list[RowKey]], limit: int, monkeypatch: pytest.MonkeyPatch) -> list[list[RowKey]]:
    """All pages, one after the other."""
    monkeypatch.setattr(lookup, "lanes_of", lambda *_: (None, [Pages(keys) for keys in lanes]), raising=True)
    found: list[list[RowKey]] = []
    after: str | None = None
    while True:
        listing = lookup.pending(None, {}, after, limit, None)  # type: ignore[arg-type]
        found.append([lookup._key(message) for message in listing.messages])
        after = listing.next
        if after is None:
            return found


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 100])
def test_lanes_are_merged_in_key_order_page_by_page(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lanes = [[(due_ms, lane, 0) for due_ms in range(lane, 30, lane + 2)] for lane in range(3)]
    found = pages(lanes, limit, monkeypatch)
    assert [key for page in found for key in page] == sorted(key for keys in lanes for key in keys)
    assert all(len(page) == limit for page in found[:-1])


def test_a_walk_that_has_no_time_left_goes_on_in_the_next_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "PATIENCE_S", -1.0)
    lanes = [[(due_ms, lane, 0) for due_ms in range(lane, 30, lane + 2)] for lane in range(3)]
    found = pages(lanes, 100, monkeypatch)
    assert [key for page in found for key in page] == sorted(key for keys in lanes for key in keys)
    assert len(found) > 1


def test_the_leader_is_asked_first_and_who_has_fallen_silent_last() -> None:
    members = [
        Member(NodeStatus(node, 0, NodeState(state)), written_ms)
        for node, state, written_ms in (
            ("silent", "leader", 1_000),
            ("refusing", "refusing", 9_000),
            ("follower", "follower", 9_000),
            ("leader", "leader", 9_500),
        )
    ]
    ordered = in_order([Member(None, 9_500), *members], {"leader", "silent"}, 10_000)
    assert [said.node for said in ordered] == ["leader", "follower", "refusing", "silent"]
