"""The membership worker: shows the node's status in its member znode, once a second.

On a thread of its own, which asks nobody but ZooKeeper: whoever does not answer, a node that lives says so.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import structlog

from election.errors import ElectionError, NodeIdTaken
from election.registry import Registry
from node import refusal
from node.current_refusal import CurrentRefusal
from node.report import Report
from node.worker import Worker

log = structlog.get_logger("delayline.node")

PERIOD_S: Final = 1.0
END_TIMEOUT_S: Final = 1.0


class Membership(Worker):
    """Refuses where another process is this node, and shows it by another name as long as that is there."""

    def __init__(self, registry: Registry, report: Report, current_refusal: CurrentRefusal) -> None:
        """Its end is not waited for where ZooKeeper does not answer."""
        super().__init__("membership", end_timeout_s=END_TIMEOUT_S)
        self._registry = registry
        self._report = report
        self._current_refusal = current_refusal
        self._name = report.node

    @property
    def is_itself(self) -> bool:
        """Whether no other process is this node, as far as is known."""
        return self._name == self._report.node

    def publish(self) -> None:
        """Writes the status, if there is one to write. Any thread may call it."""
        report = self._report
        if not report.has_news():
            return
        said = report.status().encode()
        try:
            if not self.is_itself:
                self._take_name_back(said)
            self._registry.publish_member(self._name, said)
        except NodeIdTaken as error:
            self._name = f"{report.node}~{report.run_id[:8]}"  # no node id has a ~
            self._current_refusal.refuse(refusal.node_id_taken(str(error)))
        except ElectionError as error:
            log.debug("status-publish-failed", detail=str(error))

    def _take_name_back(self, said: bytes) -> None:
        """Once the other one has gone."""
        with suppress(NodeIdTaken):
            self._registry.publish_member(self._report.node, said)
            self._registry.withdraw_member(self._name)
            self._name = self._report.node

    def _run(self) -> None:
        while not self.wait(PERIOD_S):
            self.publish()
