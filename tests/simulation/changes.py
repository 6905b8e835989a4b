"""Operators who change the settings while all goes on, what processes learn of that, and what holds where in
the plain model's own words: it shares nothing with what the nodes read by (delayline/settings_versions.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from delayline.settings_record import KEY, PARTITION, decode_settings, encode_settings, signed
from delayline.settings_versions import Begin, SettingsVersions
from delayline.signing import BadSignatureError, Keyring
from delayline.wire import SettingsMark, SettingsPlace, settings_mark_headers
from tests.simulation.log import Fate, Partition, Transaction
from tests.simulation.requests import LEVELS_MS, Kind, Request

if TYPE_CHECKING:
    from tests.simulation.host import World as AnyWorld
    from tests.simulation.world import World

TOPIC_ID = "of-the-settings"
OLD_END = 0.4
"""How often the broker that is asked for the settings is one that is cut off from the others."""
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
        self._last: Transaction | None = None
        self.topic = Partition(world.names.settings, PARTITION)
        self.eras = Eras(world.setup.settings.dedup_window_ms)
        self.versions = SettingsVersions.of(world.setup.settings)
        self.aborted_marks: list[Request] = []
        """What strangers may send again: marks, of whatever became of the change."""

    def change(self, lasts_ms: int) -> None:
        """Begins a change, which is decided a while later. Some die before their record is there."""
        self.end()
        world, rng = self._world, self._world.rng
        transaction = self._last = Transaction(world.next_transaction(), lane=False)
        number, marks, newest_ms = self.versions.latest.number + 1, dict[int, int](), dict[int, int]()
        self.topic.append(world.now_ms, KEY, None, [], transaction)
        settings_mark = SettingsMark(number, SettingsPlace(TOPIC_ID, 0, self.topic.end))
        for partition in world.setup.partitions:
            headers = settings_mark_headers(settings_mark, partition, world.ensemble.ring)
            mark = Request(Kind.COPY, partition, None, None, headers)
            log = world.topics[world.names.buffer][partition]
            marks[partition] = log.append(world.broker_ms(partition), None, None, headers, transaction, mark)
            newest_ms[partition] = log.newest_ms() + rng.choice((0, 0, 50, 1_000))
            self.aborted_marks.append(mark)
        window_ms = rng.choice(world.setup.profile.dedup_window_ms)
        era = Era(marks, newest_ms, window_ms, rng.choice((LEVELS_MS, *OTHER_LEVELS_MS)))
        world.note("settings", number, sorted(marks.items()), window_ms, era.levels_ms)
        fate = Fate.COMMIT if rng.random() < 0.8 else Fate.ABORT
        changed = None
        if fate is Fate.COMMIT or rng.random() < 0.5:
            changed = self._changed(era)
            value = encode_settings(changed, self.topic.end)
            headers = signed(value, self.topic.topic, world.ensemble.ring)
            self.topic.append(world.now_ms, KEY, value, headers, transaction)
        world.after(lasts_ms, lambda: self._decide(transaction, fate, era, changed))

    def _changed(self, era: Era) -> SettingsVersions:
        settings = replace(
            self.versions.settings, dedup_window_ms=era.dedup_window_ms, levels_ms=era.levels_ms
        )
        begins = {one: Begin(mark, era.newest_ms[one]) for one, mark in era.marks.items()}
        return self.versions.changed(settings, begins, "", "", 0)

    def _decide(
        self, transaction: Transaction, fate: Fate, era: Era, changed: SettingsVersions | None
    ) -> None:
        if transaction.fate is not Fate.OPEN:
            return
        transaction.decide(fate)
        if fate is Fate.COMMIT and changed is not None:
            self.versions = changed
            self.eras.all.append(era)
        self._world.note("settings-decided", fate.value)
        self._world.shuffle(transaction.unmarked)
        self._mark_next(transaction)

    def _mark_next(self, transaction: Transaction) -> None:
        transaction.mark_next()
        if transaction.unmarked:
            self._world.after(self._world.marker_delay_ms(), lambda: self._mark_next(transaction))

    def end(self) -> None:
        """What is open is given up; what is decided is there in all partitions."""
        if self._last is None:
            return
        if self._last.fate is Fate.OPEN:
            self._last.decide(Fate.ABORT)
            self._world.note("settings-decided", Fate.ABORT.value)
        self._last.mark_all()


class KnownSettings:
    """What a process knows, as `node.kafka.known_settings.KnownSettings` does."""

    def __init__(self, world: AnyWorld) -> None:
        self._world = world
        self._read_to = SettingsPlace(TOPIC_ID, 0, 0)
        self.versions = world.versions

    def unread(self, marks: Sequence[SettingsMark]) -> list[SettingsMark]:
        """Those of which it cannot tell what begins with them."""
        return [mark for mark in marks if not self._read_to.is_behind(mark.at)]

    def lacks(self, marks: Sequence[SettingsMark]) -> bool:
        """Whether one is still so, now that the topic was read."""
        return any(mark.number > self.versions.latest.number for mark in self.unread(marks))

    def read_on(self, ring: Keyring) -> bool:
        """Reads on in the settings topic, to the end that some broker tells; False if a key is not known."""
        topic, begin = self._world.settings_topic, self._read_to.offset
        end = self._told_end(topic, begin)
        try:
            for entry in topic.committed(begin, end):
                assert entry.record is not None, "markers are not read"
                found = decode_settings(entry.record, topic.topic, ring)
                self.versions = self.versions if found is None else self.versions.united(found)
        except BadSignatureError:
            return False
        self._read_to = self._read_to._replace(offset=end)
        return True

    def _told_end(self, topic: Partition, begin: int) -> int:
        """One that is cut off tells an old end, and takes for open what it has no marker of."""
        if self._world.calm or self._world.rng.random() >= OLD_END:
            return topic.stable_end
        end = self._world.rng.randint(begin, topic.stable_end)
        while end > begin and topic.entries[end - 1].record is not None:
            end -= 1
        return end
