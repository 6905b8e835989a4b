"""Pages to look at: one file each, that opens without a server and asks the network for nothing."""

from __future__ import annotations

from pipeline.page.parts import Cell as Cell
from pipeline.page.parts import Column as Column
from pipeline.page.parts import Facts as Facts
from pipeline.page.parts import Figure as Figure
from pipeline.page.parts import Fold as Fold
from pipeline.page.parts import Headline as Headline
from pipeline.page.parts import Page as Page
from pipeline.page.parts import PageRow as PageRow
from pipeline.page.parts import Paragraph as Paragraph
from pipeline.page.parts import Part as Part
from pipeline.page.parts import Section as Section
from pipeline.page.parts import Table as Table
from pipeline.page.render import render as render
from pipeline.page.render import write as write
