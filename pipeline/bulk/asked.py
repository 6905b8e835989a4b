"""What a row asks for, and which headers its record has, for whoever weighs, judges or writes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F

from delayline import headers as h
from pipeline.bulk.columns import COLUMNS, ms_of


class SentHeader(NamedTuple):
    """A header of the service's: its key, its value (text or binary), and whether a row's record has it."""

    key: str
    value: Column
    is_sent: Column


class Asked:
    """The columns of requests that a frame has, by row."""

    def __init__(self, texts: Mapping[str, Column]) -> None:
        """`texts`: the columns as `header_values` gives them."""
        self._texts = texts
        op = self.text("op")
        self.is_schedule = F.coalesce(op == h.OP_SCHEDULE.decode(), F.lit(True))
        self.is_cancel = F.coalesce(op == h.OP_CANCEL.decode(), F.lit(False))
        self.is_reschedule = F.coalesce(op == h.OP_RESCHEDULE.decode(), F.lit(False))
        self.is_by_source = self.is_cancel & self.has("source")

    def has(self, *names: str) -> Column:
        """Whether the row has any of them. Never null."""
        there = [self._texts[name].isNotNull() for name in self.present(*names)]
        return reduce(Column.__or__, there, F.lit(False))

    def count(self, *names: str) -> Column:
        """How many of them the row has."""
        there = [self._texts[name].isNotNull().cast("int") for name in self.present(*names)]
        return reduce(Column.__add__, there, F.lit(0))

    def text(self, name: str) -> Column:
        """Null where the row, or the frame, has none."""
        return self._texts.get(name, F.lit(None).cast("string"))

    def data(self, name: str) -> Column:
        """The same of `key` and `value`, which are binary."""
        return self._texts.get(name, F.lit(None).cast("binary"))

    def ms(self, name: str) -> Column:
        """What a time or a duration says; null where it is none."""
        return F.col(ms_of(name)) if name in self._texts else F.lit(None).cast("long")

    def changes(self) -> Column:
        """Whether the row replaces or reschedules what has its id. Never null."""
        replaces = F.coalesce(self.text("if_exists") == h.REPLACE.decode(), F.lit(False))
        return (self.is_schedule & replaces) | self.is_reschedule

    def present(self, *names: str) -> list[str]:
        """Those of the frame."""
        return [name for name in names if name in self._texts]

    def sent_headers(self) -> Iterator[SentHeader]:
        """Those of the service, behind the user's own. What a cancel or a reschedule may not have is not
        sent, for such a row is rejected.
        """
        special = {"op": ~self.is_schedule, "source": self.is_by_source}
        for name in self.present(*COLUMNS):
            key = COLUMNS[name].header
            if key is not None and name != "if_exists":
                yield SentHeader(key, self.text(name), special.get(name, self.has(name)))
        if_exists = F.coalesce(self.text("if_exists"), F.lit(h.KEEP.decode()))
        yield SentHeader(h.H_IF_EXISTS, if_exists, self.is_schedule)
        yield SentHeader(h.H_TARGET_KEY, self.data("key"), self.is_schedule)
