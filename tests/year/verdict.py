"""What has to be true of that year: nothing lost or doubled, a log that does not grow, and views that have no
more than what waits and what is young.
"""

from __future__ import annotations

from typing import Final

from node.own_stores import store_folder
from store.rocks import RocksStore
from tests.support.fates import check_exactly_once
from tests.year.life import NODES, Life

GROWTH: Final = 2
SLACK: Final = 200
MOST_ENTRIES: Final = 8  # of a view, for each record that the log still has


def check(life: Life) -> str:
    """Raises `AssertionError` if something is wrong; what there was, in one line."""
    fates = check_exactly_once(life.cluster, life.sender.ledger)
    ledger, sizes = life.sender.ledger, [size.offsets for size in life.retention.sizes]
    middle = len(sizes) // 2
    earlier, later = (max(half, default=0) for half in (sizes[:middle], sizes[middle:]))
    assert later <= GROWTH * earlier + SLACK, f"the log has grown: {sizes}"
    young = life.retention.sizes[-1].offsets
    entries = {node: _entries(life, node) for node in NODES}
    assert max(entries.values()) <= MOST_ENTRIES * young + SLACK, f"a view has grown: {entries}, log: {young}"
    weeks = life.options.seconds / life.options.week_s
    asked = len(ledger.schedules) + len(ledger.cancels) + len(ledger.reschedules)
    return (
        f"{weeks:.0f} weeks: {asked} requests, {fates.count('delivered')} delivered; the log had {earlier}"
        f" offsets at most, later {later}; the views have {max(entries.values())} entries;"
        f" {sum(life.retention.begins.values())} are gone; {life.strikes}"
    )


def _entries(life: Life, node: str) -> int:
    """How many a node's store has, once it has been ended."""
    process = life.cluster.process(node)
    process.terminate()
    process.wait_exit()
    store = RocksStore(store_folder(life.cluster.data_dir(node)))
    try:
        return sum(1 for _ in store.scan(b"", b"\xff"))
    finally:
        store.close()
