"""Records of a transaction that are there already."""

from __future__ import annotations

from node.core.ports import Outgoing


class ListedRecords(list[Outgoing]):
    """Implements `node.core.ports.Records`."""

    @property
    def topics(self) -> set[str]:
        return {record.topic for record in self}
