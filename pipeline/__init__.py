"""What is done with Spark: the audit, the forecast, their pages, and loads of many requests.

`requests` and `DelaylineSink` are for jobs of one's own (docs/bulk.md). They are imported when they are asked
for: what takes another part of this package need not wait for Spark's.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pipeline.bulk.requests import Requests, requests
    from pipeline.bulk.sink import DelaylineSink

__all__ = ["DelaylineSink", "Requests", "requests"]

_FROM: Final = {
    "DelaylineSink": "pipeline.bulk.sink",
    "Requests": "pipeline.bulk.requests",
    "requests": "pipeline.bulk.requests",
}


def __getattr__(name: str) -> Any:
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_FROM[name]), name)
