"""A page as HTML: its style and scripts in it, everything else escaped."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import jinja2
from plotly.offline import get_plotlyjs

from pipeline.page.parts import Cell, Figure, Fold, Page, Part

_HERE: Final = Path(__file__).parent
_NONE: Final = "–"  # noqa: RUF001 - a dash, as in printed tables


def write(page: Page, path: Path) -> None:
    """Write the page to a file. Raises OSError if it cannot be written."""
    path.write_text(render(page), encoding="utf-8")


def render(page: Page) -> str:
    """The page as one HTML document.

    Its policy lets the browser run the scripts that carry this page's nonce, and load nothing from anywhere.
    """
    figures = any(_has_figure(section.parts) for section in page.sections)
    return _environment().get_template("page.html.jinja").render(
        page=page,
        nonce=secrets.token_urlsafe(16),
        style=(_HERE / "page.css").read_text(),
        scripts=[get_plotlyjs(), (_HERE / "page.js").read_text()] if figures else [],
    )  # fmt: skip


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["shown"] = _shown
    environment.filters["tone"] = _tone
    return environment


def _has_figure(parts: Iterable[Part]) -> bool:
    return any(isinstance(p, Figure) or (isinstance(p, Fold) and _has_figure(p.parts)) for p in parts)


def _shown(cell: Cell | str | float | None) -> str:
    value = cell.value if isinstance(cell, Cell) else cell
    if value is None:
        return _NONE
    return value if isinstance(value, str) else f"{value:,}"


def _tone(cell: Cell | str | float | None) -> str:
    return cell.tone if isinstance(cell, Cell) else "plain"
