"""What a page is made of. All texts are plain: whatever is in them is shown, never obeyed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import plotly.graph_objects as go

Tone: TypeAlias = Literal["plain", "good", "bad"]


@dataclass(frozen=True, slots=True)
class Cell:
    """A value that is not as plain as the others of its table."""

    value: str | int | float | None
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True)
class Column:
    """A column's heading; `number`: its values stand on the right."""

    heading: str
    number: bool = False


PageRow: TypeAlias = Sequence[Cell | str | int | float | None]


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph."""

    text: str
    tone: Tone = "plain"
    part: ClassVar[str] = "text"


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and their values."""

    facts: Mapping[str, str | int | float | None]
    part: ClassVar[str] = "facts"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows below headings; without rows it is left out."""

    columns: Sequence[Column]
    rows: Sequence[PageRow]
    part: ClassVar[str] = "table"


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot, and what it shows in words, for those who cannot see it."""

    figure: go.Figure
    words: str
    part: ClassVar[str] = "figure"


@dataclass(frozen=True, slots=True)
class Fold:
    """Parts that can be folded away below their title."""

    title: str
    parts: Sequence[Part]
    unfolded: bool = False
    part: ClassVar[str] = "fold"


Part: TypeAlias = Paragraph | Facts | Table | Figure | Fold


@dataclass(frozen=True, slots=True)
class Section:
    """Parts below a title."""

    title: str
    parts: Sequence[Part]


@dataclass(frozen=True, slots=True)
class Headline:
    """What a reader must see first."""

    text: str
    tone: Tone


@dataclass(frozen=True, slots=True)
class Page:
    """A whole page."""

    title: str
    subtitle: str
    headline: Headline
    sections: Sequence[Section]
