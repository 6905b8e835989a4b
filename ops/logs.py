"""Structured logs on stderr: one line per event, JSON when nobody watches a terminal.

Loggers are named `delayline.<module>`. Those of structlog and of the standard library pass through one
handler; libraries speak up from WARNING on.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

ROOT = "delayline"
_FIRST = ("timestamp", "level", "logger", "event")


def configure(level: int = logging.INFO, *, stream: TextIO | None = None, **always: Any) -> None:
    """Set up logging for this process; calling it again replaces what was set up.

    `level` is that of delayline's own loggers. `always` are fields of every line, such as node and lane.
    """
    stream = stream or sys.stderr
    shared = _shared_processors(always)
    handler = logging.StreamHandler(stream)
    handler.setLevel(level)  # for loggers that have a level of their own, too
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_renderers(stream)],
            foreign_pre_chain=shared,
        )
    )
    logging.basicConfig(level=max(level, logging.WARNING), handlers=[handler], force=True)
    logging.getLogger(ROOT).setLevel(level)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,  # module-level loggers follow a later configure
    )


def _shared_processors(always: dict[str, Any]) -> list[Processor]:
    def add_fields(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        return {**always, **event}

    return [
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        add_fields,
    ]


def _renderers(stream: TextIO) -> list[Processor]:
    if stream.isatty():
        return [structlog.dev.ConsoleRenderer(colors="NO_COLOR" not in os.environ)]
    # An exception becomes a field, so that the event stays one line.
    return [structlog.processors.format_exc_info, _ordered, structlog.processors.JSONRenderer(default=str)]


def _ordered(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """What a reader looks for first comes first."""
    head = {key: event.pop(key) for key in _FIRST if key in event}
    return {**head, **event}
