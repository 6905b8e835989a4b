"""What has to be true of that year: nothing lost or doubled, and a log that does not grow."""

from __future__ import annotations

from typing import Final

from tests.support.fates import check_exactly_once
from tests.year.life import Life

GROWTH: Final = 2
SLACK: Final = 200


def check(life: Life) -> str:
    """Raises `AssertionError` if something is wrong; what there was, in one line."""
    fates = check_exactly_once(life.cluster, life.sender.ledger)
    ledger, sizes = life.sender.ledger, [size.offsets for size in life.retention.sizes]
    middle = len(sizes) // 2
    earlier, later = (max(half, default=0) for half in (sizes[:middle], sizes[middle:]))
    assert later <= GROWTH * earlier + SLACK, f"the log has grown: {sizes}"
    weeks = life.options.seconds / life.options.week_s
    asked = len(ledger.schedules) + len(ledger.cancels) + len(ledger.reschedules)
    return (
        f"{weeks:.0f} weeks: {asked} requests, {fates.count('delivered')} delivered; the log had {earlier}"
        f" offsets at most, later {later}, and {sum(life.retention.begins.values())} are gone; {life.strikes}"
    )
