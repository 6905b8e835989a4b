"""Why there is no snapshot to begin with, drawn as a tree."""

from __future__ import annotations


class SnapshotError(Exception):
    """The root of what this package raises."""


class Unfit(SnapshotError):
    """It is not to be used: of something else, of another format, damaged, or not what was sealed."""


class Withheld(SnapshotError):
    """Who was asked gives none: it cannot, is busy, or does not answer as it should."""


class Broken(SnapshotError):
    """The transfer broke off: what was asked for may be asked for again."""


class Stranger(SnapshotError):
    """Who asks has not shown that it is a node of this cluster."""
