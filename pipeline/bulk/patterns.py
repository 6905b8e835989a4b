"""Allow-lists of targets as Java's patterns, which are what Spark matches with."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Final

_LEGAL: Final = string.ascii_letters + string.digits + "._-"


def java_pattern(globs: tuple[str, ...]) -> str:
    """What matches a topic's name, if it is a legal one, as one of the globs does (`fnmatch`)."""
    return "^(?:" + "|".join("".join(_parts(glob)) for glob in globs) + r")\z"


def _parts(glob: str) -> Iterator[str]:
    at = 0
    while at < len(glob):
        end = _class_end(glob, at) if glob[at] == "[" else at + 1
        yield _part(glob[at:end])
        at = end


def _class_end(glob: str, start: int) -> int:
    """Of a class of characters; what has no end is the bracket itself. A `]` that comes first is a member."""
    first = start + 1 + glob.startswith("!", start + 1)
    end = glob.find("]", first + 1)
    return start + 1 if end < 0 else end + 1


def _part(glob: str) -> str:
    if glob == "*":
        return ".*"
    if glob == "?" or len(glob) > 1:
        members = [re.escape(one) for one in _LEGAL if fnmatchcase(one, glob)]
        return f"[{''.join(members)}]" if members else "(?!)"
    return re.escape(glob)
