"""Which tests go to the same worker, when several run them side by side, and which come first."""

from __future__ import annotations

from typing import Final

from xdist.scheduler import LoadScopeScheduling

# Two Sparks at most: a worker that has one audits all of a part. File -> the one whose worker it goes to;
# those of the first part share the history with faults, too.
_WITH: Final = {
    "tests/integration/test_audit_page.py": "tests/integration/test_audit.py",
    "tests/integration/test_audit_recurring.py": "tests/integration/test_audit.py",
    "tests/integration/test_audit_source.py": "tests/integration/test_audit_operations.py",
    "tests/integration/test_audit_batches.py": "tests/integration/test_audit_operations.py",
    "tests/integration/test_audit_holds.py": "tests/integration/test_audit_operations.py",
    "tests/integration/test_audit_moves.py": "tests/integration/test_audit_operations.py",
    "tests/integration/test_audit_overruns.py": "tests/integration/test_audit_operations.py",
}
# What takes longest comes first, so that all workers end together.
_LONGEST: Final = (
    "tests/integration/test_audit.py",
    "tests/integration/test_audit_operations.py",
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
    first = _WITH.get(file, file)
    return next(at for at, path in enumerate(_LONGEST) if first.startswith(path))


class FileByFile(LoadScopeScheduling):
    """A file's tests stay together, for they share what their module has made; the next file goes to the
    worker that is free first, in the order of collection.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return _WITH.get(file, file)
