"""The local stack's one error."""

from __future__ import annotations


class StackError(Exception):
    """A server of the stack did not do as asked; one line: what, where, and what to do."""
