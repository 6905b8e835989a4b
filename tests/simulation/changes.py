"""Operators who change the settings while all goes on, and what holds where in the plain model's own words:
it shares nothing with what the nodes read by (delayline/settings_versions.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from delayline.settings_versions import Begin, SettingsVersions
from delayline.wire import settings_mark_headers
from tests.simulation.log import Fate, Transaction
from tests.simulation.requests import LEVELS_MS, Kind, Request

if TYPE_CHECKING:
    from tests.simulation.world import World

OTHER_LEVELS_MS = ((900, 40), (1, 2, 3, 700))


class Era(NamedTuple):
    """From its marks on these hold. `newest_ms`: no record before a mark is younger."""

    marks: Mapping[int, int]
    newest_ms: Mapping[int, int]
    dedup_window_ms: int
    levels_ms: tuple[int, ...]


class Eras:
    """Those of a history, in order; the first one holds from the beginning."""

    def __init__(self, dedup_window_ms: int) -> None:
        self.all = [Era({}, {}, dedup_window_ms, LEVELS_MS)]

    @property
    def longest_window_ms(self) -> int:
        return max(era.dedup_window_ms for era in self.all)

    def _until(self, partition: int, offset: int) -> list[Era]:
        begun = [era for era in self.all[1:] if era.marks[partition] <= offset]
        return [self.all[0], *begun]

    def is_known(self, due_ms: int, partition: int, offset: int, newest_ms: int) -> bool:
        """Whether an id with that due time is known to who asks there: it has been known all the time. An era
        may have let it go for as long as its successor's own window could not count yet.
        """
        eras = self._until(partition, offset)
        for number, era in enumerate(eras):
            until_ms = min([newest_ms, *(later.newest_ms[partition] for later in eras[number + 1 :])])
            if until_ms >= due_ms + era.dedup_window_ms:
                return False
        return True

    def after_ms(self, level: int, partition: int, offset: int) -> int:
        """The delay of a level."""
        levels_ms = self._until(partition, offset)[-1].levels_ms
        return levels_ms[min(level, len(levels_ms)) - 1] if level > 0 else 0


class Operator:
    """Changes the settings, one change at a time: the next one ends what another has left open."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._open: Transaction | None = None
        self.eras = Eras(world.setup.settings.dedup_window_ms)
        self.versions = SettingsVersions.of(world.setup.settings)
        self.aborted_marks: list[Request] = []
        """What strangers may send again: marks, of whatever became of the change."""

    def change(self, lasts_ms: int) -> None:
        """Begins a change, which is decided a while later."""
        if self._open is not None:
            self._end(self._open, None)
        world, rng = self._world, self._world.rng
        transaction = self._open = Transaction(world.next_transaction(), lane=False)
        number, marks, newest_ms = self.versions.latest.number + 1, dict[int, int](), dict[int, int]()
        for partition in world.setup.partitions:
            headers = settings_mark_headers(number, partition, world.ensemble.ring)
            mark = Request(Kind.COPY, partition, None, None, headers)
            log = world.topics[world.names.buffer][partition]
            marks[partition] = log.append(world.broker_ms(partition), None, None, headers, transaction, mark)
            newest_ms[partition] = log.newest_ms() + rng.choice((0, 0, 50, 1_000))
            self.aborted_marks.append(mark)
        window_ms = rng.choice(world.setup.profile.dedup_window_ms)
        era = Era(marks, newest_ms, window_ms, rng.choice((LEVELS_MS, *OTHER_LEVELS_MS)))
        world.note("settings", number, sorted(marks.items()), window_ms, era.levels_ms)
        world.after(lasts_ms, lambda: self._end(transaction, era if rng.random() < 0.8 else None))

    def _end(self, transaction: Transaction, era: Era | None) -> None:
        if transaction.fate is not Fate.OPEN:
            return
        self._open = None
        transaction.decide(Fate.ABORT if era is None else Fate.COMMIT)
        if era is not None:
            settings = replace(
                self.versions.settings, dedup_window_ms=era.dedup_window_ms, levels_ms=era.levels_ms
            )
            begins = {one: Begin(mark, era.newest_ms[one]) for one, mark in era.marks.items()}
            self.versions = self.versions.changed(settings, begins, "", "", 0)
            self.eras.all.append(era)
        self._world.note("settings-decided", transaction.fate.value)
        transaction.mark_all()

    def end(self) -> None:
        """What is open is given up."""
        if self._open is not None:
            self._end(self._open, None)
