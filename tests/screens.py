"""Pages and pictures of them, to be looked at: `python -m tests.screens DIR`.

Makes the page of a planted history with faults, and that of a short demo; then shoots both, narrow and wide,
light and dark. With `PAGE...` after the folder, shoots those and makes none. `python -m tests.screens
terminal` writes docs/screens.md: what commands show on a terminal (tests/terminal.py).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Final, Literal

from ops.spark import audit_session
from ops.stack import LocalStack
from pipeline.audit.page import audit_page
from pipeline.audit.picture import picture
from pipeline.page import write
from tests.integration.audited import Audited
from tests.integration.sample_history import FaultySample
from tests.support.browser import NO_BROWSER, browser, find_browser
from tests.terminal import write_screens

WIDTHS: Final = (400, 1280)
SCHEMES: Final[tuple[Literal["light", "dark"], ...]] = ("light", "dark")
MESSAGES: Final = 6_000


def main() -> None:
    """Make and shoot what the command line asks for."""
    if len(sys.argv) < 2:
        sys.exit("usage: python -m tests.screens DIR [PAGE...], or: terminal")
    if sys.argv[1:] == ["terminal"]:
        write_screens()
        return
    if find_browser() is None:
        sys.exit(NO_BROWSER)
    folder, *pages = map(Path, sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    shoot(pages or [_of_planted(folder / "planted.html"), _of_demo(folder / "demo.html")], folder)


def shoot(pages: list[Path], folder: Path) -> None:
    """Pictures of all pages, as `<page>-<width>-<scheme>.png`."""
    with browser() as chrome:
        for page, width, scheme in product(pages, WIDTHS, SCHEMES):
            with chrome.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme) as tab:
                tab.goto(page.absolute().as_uri())
                tab.screenshot(path=folder / f"{page.stem}-{width}-{scheme}.png", full_page=True)


def _of_planted(file: Path) -> Path:
    with tempfile.TemporaryDirectory() as scratch, LocalStack(Path(scratch) / "stack") as stack:
        spark = audit_session(records=0)
        planted = Audited(stack.bootstrap, spark, Path(scratch), "delay", [FaultySample])
        write(audit_page(picture(planted.found, planted.config)), file)
        spark.stop()
    return file


def _of_demo(file: Path) -> Path:
    command = [sys.executable, "-m", "ops.cli.main", "demo", "--messages", str(MESSAGES), "--html", str(file)]
    subprocess.run(command, check=True)
    return file


if __name__ == "__main__":
    main()
