"""What may go wrong in a scenario, in one line."""

from __future__ import annotations

from typing import Final

from bench.job import JobFailed
from ops.errors import OperatorError
from ops.stack import StackError

PLAIN: Final = (TimeoutError, JobFailed, StackError, OperatorError)
"""Errors whose message is a line for people."""


def reason(error: Exception) -> str:
    """The error in one line; its kind as well, where the message was not written for people."""
    said = " ".join(str(error).split())
    return said if isinstance(error, PLAIN) and said else f"{type(error).__name__}: {said}"
