"""The browser that the tests of the pages look through."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import pytest_report_header
from tests.support.browser import find_browser


@pytest.fixture
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in which programs, and browsers of Playwright's own, are looked for; it is empty."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    monkeypatch.delenv("DELAYLINE_TEST_BROWSER", raising=False)
    return tmp_path


@pytest.mark.usefixtures("nothing_installed")
def test_without_a_browser_the_run_begins_with_a_line_that_says_what_to_install() -> None:
    assert "apt-get install chromium" in str(pytest_report_header())


def test_no_other_browser_than_the_named_one_is_taken(
    nothing_installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chromium = nothing_installed / "chromium"
    chromium.touch(0o755)
    assert find_browser() == str(chromium)
    monkeypatch.setenv("DELAYLINE_TEST_BROWSER", "no-such-browser")
    assert find_browser() is None
