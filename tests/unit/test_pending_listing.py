"""What a list of what waits is made from: nodes that have read all that can be read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from node.http.answers import AnsweringNode, Listed
from node.status import NodeState
from ops.clients.nodes import LaneNodes, NodeAddress
from ops.errors import UnavailableError
from ops.pending import listing
from ops.pending.listing import page_of

ENDS = {0: 5, 2: 7}


def node(name: str, read: dict[int, int] | None, lag: int | None = 0) -> AnsweringNode:
    return AnsweringNode(name, 0, NodeState.FOLLOWER, {0: 3, 2: 3}, lag, 0, read)


class Lane(LaneNodes):
    """Nodes that answer in their turn, each with its next answer, and at the end with the same one."""

    def __init__(self, **answers: list[AnsweringNode]) -> None:
        super().__init__(0, [NodeAddress(name, "h", 1) for name in answers])
        self.asked: list[str] = []
        self._answers = answers

    def ask(self, kind: Any, path: str, params: Mapping[str, Any], timeout_s: float = 0.0) -> Any:
        name = self.nodes[0].node
        self.asked.append(name)
        answers = self._answers[name]
        return Listed(answers.pop(0) if len(answers) > 1 else answers[0], [], None, None)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "_AGAIN_S", 0.0)


def test_a_node_that_stands_behind_the_markers_at_the_end_has_read_all() -> None:
    lane = Lane(a=[node("a", {0: 5, 2: 7})])
    page_of(lane, ENDS, None)
    assert lane.asked == ["a"]


def test_a_node_that_is_behind_is_waited_for() -> None:
    lane = Lane(a=[node("a", {0: 5, 2: 6}), node("a", {0: 4, 2: 7}), node("a", {0: 5, 2: 7})])
    page_of(lane, ENDS, None)
    assert lane.asked == ["a", "a", "a"]


def test_another_node_that_has_read_more_answers() -> None:
    lane = Lane(a=[node("a", {0: 0, 2: 0})], b=[node("b", {0: 5, 2: 8})])
    assert page_of(lane, ENDS, "1-2-3").node.node == "b"
    assert page_of(lane, ENDS, "1-2-4").node.node == "b"
    assert lane.asked == ["a", "b", "b"]


@pytest.mark.parametrize("read", [{0: 5}, {0: 5, 2: 6}, {}])
def test_no_list_is_made_of_what_a_node_has_that_stays_behind(
    read: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_PATIENCE_S", 0.0)
    with pytest.raises(UnavailableError, match="a has not read the buffer to its end within 0 s"):
        page_of(Lane(a=[node("a", read)]), ENDS, None)


def test_an_older_node_is_believed_that_it_lacks_nothing() -> None:
    lane = Lane(a=[node("a", None, None), node("a", None, 2), node("a", None, 0)])
    page_of(lane, ENDS, None)
    assert lane.asked == ["a", "a", "a"]
