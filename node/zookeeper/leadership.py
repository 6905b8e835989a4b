"""The election as the delivery core sees it: the `LeaderElection` port."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from election.candidacy import Candidacy
from election.errors import ElectionError
from election.registry import CheckpointMirror
from node.core.ports import Unconfirmed
from node.core.steps import StepDown
from node.refusal import Refusing, checkpoint_unreadable
from node.zookeeper.mirror import Mirror
from store.checkpoint import Checkpoint, UnreadableCheckpoint

CONFIRM_TIMEOUT_S: Final = 1.0


class ZooKeeperElection:
    """Implements `LeaderElection`. `resign` and `withdraw_resignation` may be called by any thread."""

    def __init__(
        self,
        candidacy: Candidacy,
        znode: CheckpointMirror,
        mirror: Mirror,
        renew_keys: Callable[[], object],
    ) -> None:
        """`renew_keys`: asks ZooKeeper for the cluster's keys. Raises `ElectionError` and `Refusing`."""
        self._candidacy = candidacy
        self._renew_keys = renew_keys
        self._znode = znode
        self._mirror = mirror
        self._resigning = False

    def elected(self) -> bool:
        """Whether ZooKeeper's last word is that this node is leader, and it does not step down."""
        return self._candidacy.state.role == "leader" and not self._resigning

    def resign(self) -> None:
        """From now on this node resigns, after the transaction under way."""
        self._resigning = True

    def withdraw_resignation(self) -> None:
        """Takes `resign` back."""
        self._resigning = False

    def confirm(self) -> bool:
        """Who is leader knows the keys that the one before it may have signed with: it would wait for them
        later.
        """
        try:
            confirmed = self._candidacy.confirm(CONFIRM_TIMEOUT_S)
            if confirmed:
                self._renew_keys()
            return confirmed
        except ElectionError as error:
            raise Unconfirmed(str(error)) from error

    def steps_down(self) -> StepDown | None:
        """A leader that ZooKeeper knows nothing of goes on: it may have lost its session with all others;
        once another one leads, it is over.
        """
        if self._candidacy.state.role == "follower":
            return StepDown.SUPERSEDED
        return StepDown.RESIGNED if self._resigning else None

    def mirrored(self) -> Checkpoint | None:
        try:
            raw = self._znode.read(CONFIRM_TIMEOUT_S)
        except ElectionError as error:
            raise Unconfirmed(str(error)) from error
        try:
            return None if raw is None else Checkpoint.decode(raw)
        except UnreadableCheckpoint as error:
            raise Refusing(checkpoint_unreadable(self._znode.path, error)) from error

    def mirror(self, checkpoint: Checkpoint) -> None:
        self._mirror.put(checkpoint)
