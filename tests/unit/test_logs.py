"""One line per event, whoever logs it."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from ops import logs
from tests.logging_state import restored_logging
from tests.support.commands import Terminal


@pytest.fixture(autouse=True)
def _restored_logging() -> Iterator[None]:
    with restored_logging():
        yield


def logged(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_one_line_of_json_where_nobody_watches() -> None:
    stream = io.StringIO()
    logs.configure(stream=stream, node="n1", lane=0)

    structlog.stdlib.get_logger("delayline.delivery").info("became leader", epoch=3)

    (line,) = logged(stream)
    assert list(line)[:4] == ["timestamp", "level", "logger", "event"]
    assert line.items() >= {"level": "info", "logger": "delayline.delivery", "event": "became leader"}.items()
    assert line.items() >= {"node": "n1", "lane": 0, "epoch": 3}.items()


def test_the_standard_librarys_loggers_write_the_same_lines() -> None:
    stream = io.StringIO()
    logs.configure(stream=stream, node="n1")

    logging.getLogger("delayline.election").info("resigned from %s", "lane 0")

    (line,) = logged(stream)
    assert (line["logger"], line["event"], line["node"]) == (
        "delayline.election",
        "resigned from lane 0",
        "n1",
    )


def test_an_exception_stays_in_its_line() -> None:
    stream = io.StringIO()
    logs.configure(stream=stream)

    try:
        raise ValueError("bad")
    except ValueError:
        structlog.stdlib.get_logger("delayline.x").exception("failed")

    (line,) = logged(stream)
    assert line["exception"].endswith("ValueError: bad")


def test_libraries_speak_up_from_warning_on() -> None:
    stream = io.StringIO()
    logs.configure(stream=stream)

    logging.getLogger("kazoo").info("chatter")
    logging.getLogger("kazoo").warning("trouble")

    assert [line["event"] for line in logged(stream)] == ["trouble"]


def test_the_level_is_that_of_our_own_loggers() -> None:
    stream = io.StringIO()
    logs.configure(logging.ERROR, stream=stream)

    logging.getLogger("delayline.own").setLevel(logging.WARNING)
    for name in ("delayline.x", "delayline.own"):
        structlog.stdlib.get_logger(name).warning("not this")
    structlog.stdlib.get_logger("delayline.x").error("this")

    assert [line["event"] for line in logged(stream)] == ["this"]


def test_a_logger_made_before_follows_the_configuration() -> None:
    logger = structlog.stdlib.get_logger("delayline.early")
    stream = io.StringIO()
    logs.configure(stream=stream)

    logger.info("event")

    assert logged(stream)[0]["logger"] == "delayline.early"


def test_a_terminal_gets_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    logs.configure(stream=stream)

    structlog.stdlib.get_logger("delayline.x").info("became leader", epoch=3)

    assert "became leader" in stream.getvalue()
    assert "epoch=3" in stream.getvalue()
    assert "\x1b[" not in stream.getvalue()
