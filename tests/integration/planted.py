"""A history with faults, audited: what the tests of its page, and those who look at it, have before them."""

from __future__ import annotations

from delayline.settings import ClusterSettings
from tests.integration.audited import Audited
from tests.integration.sample_history import SampleHistory

HOSTILE_ID = "<script>window.obeyed = true</script>"
AFTER_ALL_S = 9.2e15
"""So late that no calendar has it, and microseconds of it are more than 64 bits hold."""


class Planted:
    """The history, as that of a new cluster of this name, and what the audit found."""

    def __init__(self, audited: Audited, cluster: str) -> None:
        self.history = SampleHistory(ClusterSettings(cluster=cluster, partitions=2))
        back = self.history.plant_faults()
        self.hostile = self.history.schedule("never delivered", 8.0, id=HOSTILE_ID, expire_at=AFTER_ALL_S)
        self.found = audited(self.history, back, self.hostile)
        self.config = audited.config(self.history)
