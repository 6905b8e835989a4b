"""The paths of a cluster's znodes (docs/design.md, "Znodes")."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NODE = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,200}")


def can_name_node(name: str) -> bool:
    """Whether it can be the id of a node: its status stands in a znode of that name, below others."""
    return _NODE.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class Znodes:
    """Where the cluster called `cluster` keeps what its nodes share."""

    cluster: str = "delay"

    @property
    def root(self) -> str:
        """Everything of the cluster is below this znode."""
        return f"/delayline/{self.cluster}"

    @property
    def settings(self) -> str:
        """What a request means: a mirror of the settings topic."""
        return f"{self.root}/settings"

    @property
    def kafka(self) -> str:
        """Which Kafka cluster and which buffer topic it is (`election.operators.KafkaIds`)."""
        return f"{self.root}/kafka"

    @property
    def keys(self) -> str:
        """What the service signs with (`delayline.signing.Keyring`): a secret of nodes and operators."""
        return f"{self.root}/keys"

    @property
    def members(self) -> str:
        """Its children are the nodes that are there now."""
        return f"{self.root}/members"

    def member(self, node: str) -> str:
        """The status of one node; ephemeral."""
        return f"{self.members}/{node}"

    def candidates(self, lane: int) -> str:
        """Its children are the queue for the lane's leadership."""
        return f"{self.root}/lanes/{lane}/candidates"

    def checkpoint(self, lane: int) -> str:
        """The mirror of the lane's last checkpoint."""
        return f"{self.root}/lanes/{lane}/checkpoint"

    @property
    def pauses(self) -> str:
        """What operators have paused (`election.operators.PauseState`)."""
        return f"{self.root}/pauses"

    def request(self, lane: int) -> str:
        """What operators want the lane's leader to do: replay, skip, stop (store/operations.py)."""
        return f"{self.root}/lanes/{lane}/request"

    def switchover(self, lane: int) -> str:
        """Which leader is to step down, and to whom (`election.operators.Switchover`)."""
        return f"{self.root}/lanes/{lane}/switchover"

    def rebuild(self, lane: int) -> str:
        """Which node of the lane makes its view anew, since its store is of another format; ephemeral."""
        return f"{self.root}/lanes/{lane}/rebuild"

    def gap(self, lane: int) -> str:
        """What an operator has given up of the lane's log (`election.operators.Gap`)."""
        return f"{self.root}/lanes/{lane}/gap"

    def bulk(self, job: str) -> str:
        """Since where in the buffer a bulk job's requests may be (`election.operators.BulkJob`)."""
        return f"{self.root}/bulk/{job}"

    def bulk_run(self, job: str) -> str:
        """Which run of a bulk job may send (`election.operators.UnderWay`); ephemeral."""
        return f"{self.root}/bulk-runs/{job}"

    def tables_run(self, place: str) -> str:
        """Which run exports tables there (`election.operators.UnderWay`); ephemeral."""
        return f"{self.root}/tables-runs/{place}"

    @property
    def history(self) -> str:
        """Its children are what operators have changed, in order (`election.operators.Entry`)."""
        return f"{self.root}/history"
