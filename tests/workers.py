"""Which tests go to the same worker, when several run them side by side, and which come first."""

from __future__ import annotations

from typing import Final

from xdist.scheduler import LoadScopeScheduling

_AUDITS: Final = "tests/integration/test_audit"
"""These files share one Spark, and what it has audited."""
# What takes longest comes first, so that all workers end together.
_LONGEST: Final = (
    _AUDITS,
    "tests/chaos/test_demo.py",
    "tests/integration/test_node_refusals.py",
    "tests/integration/test_ways_out.py",
    "tests/chaos/test_checkpoint_topic_truncated.py",
    "tests/integration/test_start_wrong.py",
    "tests/simulation",
    "tests/chaos",
    "tests/integration",
    "tests/unit",
)


def place(file: str) -> int:
    """Where a file stands in the order."""
    return next(at for at, path in enumerate(_LONGEST) if file.startswith(path))


class FileByFile(LoadScopeScheduling):
    """A file's tests stay together, for they share what their module has made, and so do those of all audits;
    the next file goes to the worker that is free first, in the order of collection.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return _AUDITS if file.startswith(_AUDITS) else file
