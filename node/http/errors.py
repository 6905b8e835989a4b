"""What the HTTP interface raises."""

from __future__ import annotations


class HttpPortTaken(Exception):
    """The HTTP port cannot be listened on: set another one, or end the process that has it."""
