"""Pages to look at: one file each, that opens without a server and asks the network for nothing."""

from __future__ import annotations

from ops.page.parts import Cell as Cell
from ops.page.parts import Column as Column
from ops.page.parts import Facts as Facts
from ops.page.parts import Figure as Figure
from ops.page.parts import Fold as Fold
from ops.page.parts import Headline as Headline
from ops.page.parts import Page as Page
from ops.page.parts import Part as Part
from ops.page.parts import Row as Row
from ops.page.parts import Section as Section
from ops.page.parts import Table as Table
from ops.page.parts import Text as Text
from ops.page.render import render as render
from ops.page.render import write as write
