"""What a view says that is pending, against what is in its store."""

from __future__ import annotations

from store import keys
from store.kv import KeyValue
from store.view import View
from tests.simulation.host import Violation


def check_pending(name: str, store: KeyValue, view: View) -> None:
    """Raises `Violation` if it is not the rows behind the tip that are not passed, and the late ones, and
    what is held.
    """
    tip = view.tip
    begin = keys.behind(tip.position)
    behind = sum(not tip.passed(keys.timed(raw)) for raw, _ in store.scan(begin, keys.end_of(keys.ROW)))
    late = sum(1 for _ in store.scan(keys.LATE, keys.end_of(keys.LATE)))
    pending = view.pending() - sum(hold.rows for hold in tip.holds)
    if pending != behind + late:
        raise Violation("replica", f"{name} counts {pending} pending: {behind} and {late} late ones")
