"""What can go wrong with the demo itself, as against with what it shows."""

from __future__ import annotations

from ops.errors import OperatorError


class DemoError(OperatorError):
    """The demo could not go on; one line: what did not happen, and where the logs are."""
