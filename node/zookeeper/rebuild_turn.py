"""Whose turn it is: of the nodes of a lane that have a store of another version, one at a time makes its view
anew.
"""

from __future__ import annotations

from election.registry import Registry
from node.core.ports import Unanswered
from node.status import NodeState, NodeStatus, UnreadableStatus


class RebuildTurn:
    """One at a time while the lane is led: whoever reads all of the log takes what the brokers can give, and
    the sooner one is through, the sooner there is another one that can lead. While nobody can, nobody waits.
    """

    def __init__(self, registry: Registry, lane: int, node: str) -> None:
        self._registry = registry
        self._lane = lane
        self._node = node

    def take(self) -> bool:
        """True: this node may begin. Raises `Unanswered` while another one is at it, and what `Registry`
        raises.
        """
        other = self._registry.take_turn(self._lane, self._node, self._is_over)
        if other is not None:
            raise Unanswered(f"the lane's node {other} makes its view anew: this one waits for its turn")
        return True

    def _is_over(self, node: str) -> bool:
        """Whether a node that has the turn needs it no more, or nobody can lead meanwhile."""
        standing = {candidate.node for candidate in self._registry.candidates(self._lane).values()}
        return not standing or node in standing or self._refuses(node)

    def _refuses(self, node: str) -> bool:
        said = self._registry.members().get(node)
        try:
            return said is not None and NodeStatus.decode(said).state == NodeState.REFUSING
        except UnreadableStatus:
            return False
