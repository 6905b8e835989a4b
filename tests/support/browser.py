"""The browser that pages are looked at through: an installed Chromium or Chrome, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest
from playwright.sync_api import Browser, sync_playwright

NO_BROWSER: Final = (
    "no Chromium or Chrome is on the PATH or named in DELAYLINE_TEST_BROWSER: apt-get install chromium"
    " (Debian), or .venv/bin/playwright install chromium"
)
_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find_browser() -> str | None:
    """The program of the browser that is named, else of one on the PATH, else of Playwright's own."""
    return next(filter(None, map(shutil.which, _candidates())), None)


def _candidates() -> Iterator[str]:
    named = os.environ.get("DELAYLINE_TEST_BROWSER")
    if named:
        yield named
        return
    yield from _NAMES
    with sync_playwright() as driver:
        own = driver.chromium.executable_path
    yield own


@contextmanager
def browser() -> Iterator[Browser]:
    """Start one; it ends with the block."""
    program = find_browser()
    if program is None:
        pytest.fail(NO_BROWSER, pytrace=False)
    with sync_playwright() as driver, driver.chromium.launch(executable_path=program) as started:
        yield started
