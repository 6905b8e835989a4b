"""The browser that the tests of the pages look through."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.browser import find_browser


@pytest.mark.parametrize(
    ("named", "missing"), [(None, "no Chromium"), ("no-such-browser", "no-such-browser")]
)
def test_without_a_browser_one_line_says_what_to_install(
    named: str | None, missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DELAYLINE_TEST_BROWSER", named or "")
    with pytest.raises(AssertionError, match=rf"^{missing}.*install chromium\).*$"):
        find_browser()
