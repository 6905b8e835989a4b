"""Which tests go to the same worker, when several run them side by side."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

# File -> the one whose fixtures it shares: Spark, and the history with faults that it has audited.
_WITH = {
    "tests/integration/test_audit_page.py": "tests/integration/test_audit.py",
    "tests/integration/test_audit_recurring.py": "tests/integration/test_audit.py",
}


class FileByFile(LoadScopeScheduling):
    """A file's tests stay together, for they share what their module has made; the next file goes to the
    worker that is free first, in the order of collection.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return _WITH.get(file, file)
