"""What the nodes of a cluster share in ZooKeeper: settings, members, the checkpoints' mirrors, and what
operators have said.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from delayline.settings import ClusterSettings, NewerSettings
from delayline.settings_versions import SettingsVersions, differences
from delayline.signing import Keyring, NewerKeys
from election.candidates import Candidate, in_order
from election.decoding import UNDECODABLE, decoded
from election.errors import (
    ChrootMissing,
    Malformed,
    Newer,
    NodeIdTaken,
    RequestWaits,
    SettingsDiffer,
    SettingsNewer,
    Superseded,
    ZnodeChanged,
    ZnodeExists,
    ZnodeMissing,
)
from election.operators import (
    VALID_S,
    Author,
    BulkJob,
    Gap,
    HistoryEntry,
    KafkaIds,
    PauseState,
    Switchover,
    UnderWay,
    decode_bulk,
    decode_entry,
    decode_gap,
    decode_kafka,
    decode_pauses,
    decode_switchover,
    decode_under_way,
    encode,
)
from election.session import Delete, Make, Replace, Session, Stat
from election.znodes import Znodes

Result = TypeVar("Result")

MOST_HISTORY: Final = 1_000
_HISTORY_AT_ONCE: Final = 32
_ENTRY: Final = "entry-"
_MOST_TRIES: Final = 10  # against others who write the same znode


class Registry:
    """The cluster's shared znodes. Every method raises Unavailable if ZooKeeper does not answer."""

    def __init__(self, session: Session, znodes: Znodes) -> None:
        self._session = session
        self._znodes = znodes
        self._published: set[str] = set()  # the thread's that publishes

    # -- settings

    def create_settings(self, settings: ClusterSettings) -> bool:
        """Write the first settings; False if the very same stand there already.

        SettingsDiffer if others do: they are not replaced, since what is in the buffer was accepted under
        them.
        """
        try:
            self._session.create(self._znodes.settings, settings.to_json().encode())
        except ZnodeExists:
            self.check_settings(settings)
            return False
        return True

    def settings(self) -> ClusterSettings:
        """The cluster's settings as they are now. Raises as `settings_versions`."""
        return self.settings_versions().settings

    def settings_versions(self) -> SettingsVersions:
        """The cluster's settings, and what they were.

        ZnodeMissing if it was never created; ChrootMissing; Malformed if they cannot be read,
        SettingsNewer if a newer version can.
        """
        try:
            data, _ = self._session.read(self._znodes.settings)
        except ZnodeMissing:
            if self._session.exists("/") is None:
                raise ChrootMissing(
                    f"ZooKeeper at {self._session.hosts} has no such chroot: correct zookeeper, or create it"
                    " with zkCli.sh"
                ) from None
            raise ZnodeMissing(
                f"cluster {self._znodes.cluster!r} has no settings at {self._znodes.settings}: "
                "create it with `delayline topics create`"
            ) from None
        return self._decoded_settings(data)

    def restore_settings(self, settings: SettingsVersions, entry: HistoryEntry) -> bool:
        """Write the settings over what stands there, or where nothing does; False if the very same stand
        there. SettingsNewer if what stands is a newer version's.
        """
        path = self._znodes.settings

        def attempt() -> bool:
            present = self._look(path)
            if present is not None and self._holds(present[0], settings):
                return False
            self._put(path, settings.to_json().encode(), None if present is None else present[1], entry)
            return True

        return self._persistently(attempt)

    def note_settings(self, settings: SettingsVersions, entry: HistoryEntry) -> bool:
        """Write the settings where none stand, or those that have become these; False if they do, or later
        ones, or others. SettingsNewer, Malformed.
        """
        path = self._znodes.settings

        def attempt() -> bool:
            present = self._look(path)
            if present is not None:
                there = self._decoded_settings(present[0])
                if there == settings or not there.leads_to(settings):
                    return False
            self._put(path, settings.to_json().encode(), None if present is None else present[1], entry)
            return True

        return self._persistently(attempt)

    def _holds(self, data: bytes, settings: SettingsVersions) -> bool:
        try:
            return self._decoded_settings(data) == settings
        except SettingsNewer:
            raise
        except Malformed:
            return False

    def _decoded_settings(self, data: bytes) -> SettingsVersions:
        try:
            return SettingsVersions.from_json(data)
        except NewerSettings as error:
            raise SettingsNewer(f"{self._znodes.settings} is of a newer version: {error}") from error
        except ValueError as error:
            raise Malformed(f"{self._znodes.settings} holds no settings of a cluster: {error}") from error

    def check_settings(self, expected: ClusterSettings) -> None:
        """Compare with what stands; SettingsDiffer names each setting that differs."""
        different = differences(self.settings(), expected)
        if different:
            raise SettingsDiffer(
                f"the settings at {self._znodes.settings} are not those given: {different}; "
                "`delayline settings change` changes what can be changed, for the rest use another name"
            )

    # -- which Kafka it is

    def kafka(self) -> KafkaIds | None:
        """Where the cluster is; None if nobody has written it down. Malformed."""
        found = self._look(self._znodes.kafka)
        return None if found is None else decode_kafka(found[0], self._znodes.kafka)

    def tie(self, ids: KafkaIds) -> bool:
        """Writes down where the cluster is, if nobody has; False if somebody has."""
        try:
            self._session.create(self._znodes.kafka, encode(ids))
        except ZnodeExists:
            return False
        return True

    def tie_anew(self, change: Callable[[KafkaIds | None], KafkaIds], entry: HistoryEntry) -> None:
        """Writes what `change` makes of what stands; if that is the same, nothing is written, nor
        recorded. ZnodeChanged if others write it all the time.
        """
        path = self._znodes.kafka

        def attempt() -> None:
            found = self._look(path)
            before = None if found is None else decode_kafka(found[0], path)
            after = change(before)
            if after != before:
                self._put(path, encode(after), None if found is None else found[1], entry)

        self._persistently(attempt)

    # -- keys

    def create_keys(self, ring: Keyring) -> bool:
        """Writes the keys, if there are none; False if there are some."""
        try:
            self._session.create(self._znodes.keys, ring.to_json().encode())
        except ZnodeExists:
            return False
        return True

    def keys(self) -> Keyring | None:
        """The cluster's keys; None if there is no such znode. Malformed if they cannot be read."""
        return self._read_keys()[0]

    def change_keys(self, change: Callable[[Keyring], Keyring], entry: HistoryEntry) -> Keyring:
        """Writes what `change` makes of the keys, and gives it back; if it makes nothing of them, nothing is
        written, nor recorded. ZnodeMissing, Malformed; ZnodeChanged if others write it all the time.
        """

        def attempt() -> Keyring:
            before, version = self._read_keys()
            if before is None:
                raise ZnodeMissing(f"{self._znodes.keys} is not there: run `delayline topics create`")
            after = change(before)
            if after != before:
                self._put(self._znodes.keys, after.to_json().encode(), version, entry)
            return after

        return self._persistently(attempt)

    def _read_keys(self) -> tuple[Keyring | None, int | None]:
        found = self._look(self._znodes.keys)
        if found is None:
            return None, None
        try:
            return Keyring.from_json(found[0]), found[1]
        except NewerKeys as error:
            raise Newer(f"{self._znodes.keys} is of a newer version: {error}") from error
        except ValueError as error:
            raise Malformed(f"{self._znodes.keys} cannot be read: {error}") from error

    # -- members and candidates

    def publish_member(self, node: str, status: bytes) -> None:
        """Show the node's status (JSON) in an ephemeral znode; for one thread, at most once a second.

        NodeIdTaken if another process does so under the same name and started earlier, by the `run` and
        `started_ms` of both statuses.
        """
        path = self._znodes.member(node)

        def attempt() -> None:
            there = self._session.exists(path)
            if there is None:
                self._session.create(path, status, ephemeral=True)
            elif there.owner == self._session.state.session_id:
                self._session.write(path, status, -1)
            else:
                # Of an earlier session or process: it would go with that, in the middle of this one. Somebody
                # who lives puts it there again. It is never not there, for those who wait for every member.
                if path in self._published:
                    self._refuse_second(path, status)
                self._session.transact(Delete(path), Make(path, status, ephemeral=True))

        self._persistently(attempt)
        self._published.add(path)

    def _refuse_second(self, path: str, status: bytes) -> None:
        try:
            theirs = _Run.decode(self._session.read(path)[0])
        except ZnodeMissing:
            return
        mine = _Run.decode(status)
        if theirs.run != mine.run and (theirs.started_ms, theirs.run) < (mine.started_ms, mine.run):
            raise NodeIdTaken(
                f"another process is this node, too, and started before it: process {theirs.pid} on"
                f" {theirs.peer_host} ({path})"
            )

    def withdraw_member(self, node: str) -> None:
        """Shows this name no more."""
        self._session.delete(self._znodes.member(node))

    def members(self) -> dict[str, bytes]:
        """The status (JSON) of each node that is there now."""
        return {node: data for node, (data, _) in self.written_members().items()}

    def written_members(self) -> dict[str, tuple[bytes, int]]:
        """The same, and when each was written, epoch time by the clock of ZooKeeper's server."""
        return self._read_children(self._znodes.members)

    def written_member(self, node: str, timeout_s: float | None = None) -> tuple[bytes, int] | None:
        """The same of one node; None if it is not there."""
        found = self._look_at(self._znodes.member(node), timeout_s)
        return None if found is None else (found[0], found[1].written_ms)

    def candidates(self, lane: int) -> dict[str, Candidate]:
        """The lane's queue by the znodes' names, the leader first."""
        found = self._read_children(self._znodes.candidates(lane))
        return {name: Candidate.decode(found[name][0]) for name in in_order(found)}

    def few_candidates(self, lane: int, most: int, timeout_s: float) -> dict[str, Candidate]:
        """The same, in two round trips; nobody if there are more than `most`."""
        path = self._znodes.candidates(lane)
        try:
            names = in_order(self._session.children(path, timeout_s=timeout_s))
        except ZnodeMissing:
            return {}
        if len(names) > most:
            return {}
        found = self._session.read_together([f"{path}/{name}" for name in names], timeout_s=timeout_s)
        pairs = zip(names, found, strict=True)
        return {name: Candidate.decode(there[0]) for name, there in pairs if there is not None}

    def _read_children(self, path: str) -> dict[str, tuple[bytes, int]]:
        try:
            names = self._session.children(path)
        except ZnodeMissing:
            return {}
        found: dict[str, tuple[bytes, int]] = {}
        for name in sorted(names):
            try:
                data, stat = self._session.read(f"{path}/{name}")
            except ZnodeMissing:
                continue  # it has gone since
            found[name] = data, stat.written_ms
        return found

    # -- what operators say: each change and its entry of the history are there together, or neither is

    def pauses(self) -> tuple[PauseState, int | None]:
        """What is paused, and the znode's version; None if it was never written. Malformed."""
        found = self._look(self._znodes.pauses)
        if found is None:
            return PauseState(), None
        data, version = found
        return decode_pauses(data, self._znodes.pauses), version

    def change_pauses(self, change: Callable[[PauseState], PauseState], entry: HistoryEntry) -> PauseState:
        """Pauses and resumes: writes what `change` makes of what stands, and gives it back. If it makes
        nothing of it, nothing is written, nor recorded. ZnodeChanged if others write it all the time.
        """

        def attempt() -> PauseState:
            before, version = self.pauses()
            after = change(before)
            if after != before:
                self._put(self._znodes.pauses, encode(after), version, entry)
            return after

        return self._persistently(attempt)

    def ask(self, lane: int, request: msgspec.Struct, entry: HistoryEntry, *, instead: bool = False) -> int:
        """Asks the lane's leader for something (store/operations.py); returns the number that the request
        has got in place of its own. RequestWaits if an earlier one was not taken up yet, unless this one is
        to stand `instead`.
        """
        path = self._znodes.request(lane)

        def attempt() -> int:
            present = self._look(path)
            last = 0 if present is None else _number(present[0], path)
            taken_up = self._taken_up(lane)
            if last > taken_up and not instead:
                raise RequestWaits(f"request {last} at {path} waits for the leader of lane {lane}")
            number = max(last, taken_up) + 1
            data = msgspec.json.encode(msgspec.structs.replace(request, number=number))
            self._put(path, data, None if present is None else present[1], entry)
            return number

        return self._persistently(attempt)

    def asked(self, lane: int) -> bytes | None:
        """The last request to the lane's leader (JSON), taken up or not; None if there was none."""
        found = self._look(self._znodes.request(lane))
        return None if found is None else found[0]

    def want_switchover(self, lane: int, wanted: Switchover, entry: HistoryEntry) -> None:
        """Wants the lane's leader to step down."""
        path = self._znodes.switchover(lane)

        def attempt() -> None:
            present = self._look(path)
            self._put(path, encode(wanted), None if present is None else present[1], entry)

        self._persistently(attempt)

    def hand_over(self, lane: int, wanted: Switchover, entry: HistoryEntry) -> bool:
        """The same, of the leader itself. False if it is asked to step down already, and not so long ago that
        nobody heeds it any more: nothing of that is written over. Malformed, Newer.
        """
        path, of_account_ms = self._znodes.switchover(lane), wanted.author.at_ms - int(1000 * VALID_S)

        def attempt() -> bool:
            present = self._look_at(path)
            if present is None:
                self._put(path, encode(wanted), None, entry)
                return True
            data, stat = present
            if decode_switchover(data, path).epoch >= wanted.epoch and stat.written_ms >= of_account_ms:
                return False
            self._put(path, encode(wanted), stat.version, entry)
            return True

        return self._persistently(attempt)

    def drop_switchover(self, lane: int) -> bool:
        """Nobody is to step down any more; False if nobody was."""
        return self._session.delete(self._znodes.switchover(lane))

    def take_back(self, lane: int, wanted: Switchover) -> None:
        """The same, if it is this one that stands there. Malformed, Newer."""
        path = self._znodes.switchover(lane)

        def attempt() -> None:
            present = self._look(path)
            if present is not None and decode_switchover(present[0], path) == wanted:
                self._session.transact(Delete(path, present[1]))

        self._persistently(attempt)

    def gap(self, lane: int) -> Gap | None:
        """What was given up of the lane's log last. Malformed."""
        path = self._znodes.gap(lane)
        found = self._look(path)
        return None if found is None else decode_gap(found[0], path)

    def accept_gap(self, lane: int, gap: Gap, entry: HistoryEntry) -> None:
        """Gives up what retention has taken of the lane's log."""
        path = self._znodes.gap(lane)

        def attempt() -> None:
            present = self._look(path)
            self._put(path, encode(gap), None if present is None else present[1], entry)

        self._persistently(attempt)

    def begin_bulk(self, job: str, begun: BulkJob, entry: HistoryEntry) -> BulkJob:
        """Notes that a bulk job begins, if it has not begun before; what is noted. Malformed, Newer."""
        path = self._znodes.bulk(job)

        def attempt() -> BulkJob:
            present = self._look(path)
            if present is not None:
                return decode_bulk(present[0], path)
            self._put(path, encode(begun), None, entry)
            return begun

        return self._persistently(attempt)

    def take_bulk(self, job: str, run: UnderWay) -> UnderWay | None:
        """Lets a run, and no other, send for a bulk job as long as this session lasts. Whose job it is, if it
        is another run's. Malformed, Newer.
        """
        return self._take(self._znodes.bulk_run(job), run)

    def take_tables(self, place: str, run: UnderWay) -> UnderWay | None:
        """Lets a run, and no other, export tables into that place as long as this session lasts. Whose turn
        it is, if it is another run's. Malformed, Newer.
        """
        return self._take(self._znodes.tables_run(place), run)

    def tables_run(self, place: str) -> UnderWay | None:
        """Whose turn it is to export tables into that place. Malformed, Newer."""
        path = self._znodes.tables_run(place)
        return self._persistently(lambda: self._run_at(path))

    def _run_at(self, path: str) -> UnderWay | None:
        found = self._look_at(path)
        return None if found is None else decode_under_way(found[0], path)

    def _take(self, path: str, run: UnderWay) -> UnderWay | None:
        def attempt() -> UnderWay | None:
            there = self._run_at(path)
            if there is not None:
                return None if there == run else there
            self._session.create(path, encode(run), ephemeral=True)
            return None

        return self._persistently(attempt)

    def remove_node(
        self, node: str, candidates: Collection[tuple[int, str]], entry: HistoryEntry
    ) -> list[str]:
        """Deletes the status of a node that is dead and its candidacies, by lane and znode's name; returns
        the paths of those that were still there. If none was, nothing is recorded. One that lives makes them
        anew.
        """
        candidacies = [f"{self._znodes.candidates(lane)}/{name}" for lane, name in candidates]
        paths = [*candidacies, self._znodes.member(node)]
        self._ensure(self._znodes.history)

        def attempt() -> list[str]:
            there = [path for path in paths if self._session.exists(path) is not None]
            if there:
                self._session.transact(*map(Delete, there), self._noted(entry))
            return there

        removed = self._persistently(attempt)
        self._forget_oldest()
        return removed

    def record(self, entry: HistoryEntry) -> None:
        """Writes what an operator has changed elsewhere into the history."""
        self._ensure(self._znodes.history)
        self._session.transact(self._noted(entry))
        self._forget_oldest()

    def history(self, most: int = MOST_HISTORY) -> list[HistoryEntry]:
        """The last changes by operators, `most` of them, in order. Malformed."""
        root = self._znodes.history
        try:
            names = sorted(self._session.children(root))[-most:]
        except ZnodeMissing:
            return []
        found = ((f"{root}/{name}", self._look(f"{root}/{name}")) for name in names)
        return [self._entry(there[0], path) for path, there in found if there is not None]

    def history_since(self, since_ms: int, timeout_s: float) -> Iterator[tuple[HistoryEntry, int]]:
        """What was written there since then, the last one first, each with when that was, by the clock of
        ZooKeeper's server: an operator's may be wrong. No more is read than is asked for, and each round trip
        takes `timeout_s` at most. Malformed.
        """
        root = self._znodes.history
        try:
            names = sorted(self._session.children(root, timeout_s=timeout_s), reverse=True)
        except ZnodeMissing:
            return
        names = [name for name in names if name.startswith(_ENTRY)]  # what else is there has no order
        for begin in range(0, len(names), _HISTORY_AT_ONCE):
            paths = [f"{root}/{name}" for name in names[begin : begin + _HISTORY_AT_ONCE]]
            for path, there in zip(
                paths, self._session.read_together(paths, timeout_s=timeout_s), strict=True
            ):
                if there is None:
                    continue  # it was the oldest
                if there[1].written_ms < since_ms:
                    return
                yield self._entry(there[0], path), there[1].written_ms

    def _entry(self, data: bytes, path: str) -> HistoryEntry:
        """What only a newer version can read is an entry all the same."""
        try:
            return decode_entry(data, path)
        except Newer as error:
            return HistoryEntry(what="unreadable", author=Author("?", str(error), 0))

    def _taken_up(self, lane: int) -> int:
        path = self._znodes.checkpoint(lane)
        found = self._look(path)
        if found is None:
            return 0
        return decoded(found[0], _TakenUp, f"{path} holds no checkpoint").operation.number

    def _look(self, path: str) -> tuple[bytes, int] | None:
        found = self._look_at(path)
        return None if found is None else (found[0], found[1].version)

    def _look_at(self, path: str, timeout_s: float | None = None) -> tuple[bytes, Stat] | None:
        try:
            return self._session.read(path, timeout_s=timeout_s)
        except ZnodeMissing:
            return None

    def _put(self, path: str, data: bytes, version: int | None, entry: HistoryEntry) -> None:
        """Writes a znode of this version (None: that is not there), and the entry with it."""
        self._ensure(self._znodes.history)
        if version is None:
            self._ensure(path.rpartition("/")[0])
        put = Make(path, data) if version is None else Replace(path, data, version)
        self._session.transact(put, self._noted(entry))
        self._forget_oldest()

    def _noted(self, entry: HistoryEntry) -> Make:
        return Make(f"{self._znodes.history}/{_ENTRY}", encode(entry), sequence=True)

    def _ensure(self, path: str) -> None:
        """A transaction makes no znodes above its own."""
        if self._session.exists(path) is None:
            with suppress(ZnodeExists):
                self._session.create(path, b"")

    def _forget_oldest(self) -> None:
        for name in sorted(self._session.children(self._znodes.history))[:-MOST_HISTORY]:
            self._session.delete(f"{self._znodes.history}/{name}")

    def _persistently(self, attempt: Callable[[], Result]) -> Result:
        """Again, on what stands then, if somebody else was faster."""
        for _ in range(_MOST_TRIES - 1):
            with suppress(ZnodeChanged, ZnodeExists, ZnodeMissing):
                return attempt()
        return attempt()

    # -- whose turn it is to make its view anew

    def take_turn(self, lane: int, node: str, is_over: Callable[[str], bool]) -> str | None:
        """Takes the lane's turn for a node, as long as this session lasts. Whose it is, if it is another
        one's, and not over by what `is_over` says.
        """
        path = self._znodes.rebuild(lane)
        above = path.rpartition("/")[0]
        make = Make(path, node.encode(), ephemeral=True)

        def attempt() -> str | None:
            # A znode that is made anew has the first version again: which turn it is, the one above counts.
            self._ensure(above)
            data, stat = self._session.read(above)
            claim = Replace(above, data, stat.version)
            found = self._look_at(path)
            if found is None:
                self._session.transact(claim, make)
                return None
            holder = found[0].decode(errors="replace")
            if found[1].owner == self._session.state.session_id:
                return None
            if not is_over(holder):
                return holder
            self._session.transact(claim, Delete(path), make)
            return None

        return self._persistently(attempt)

    # -- the checkpoint's mirror

    def mirror(self, lane: int) -> CheckpointMirror:
        """The mirror of a lane's checkpoint."""
        return CheckpointMirror(self._session, self._znodes.checkpoint(lane))


class CheckpointMirror:
    """The lane's last checkpoint (JSON) in a znode: for operators, and for the day the checkpoint topic is
    lost.

    It may lag behind the topic and never decides while the topic is there. For one thread, which sees to it
    that there are at most five writes a second. A write never replaces a later checkpoint: a leader that was
    succeeded unawares cannot take the mirror back.
    """

    def __init__(self, session: Session, path: str) -> None:
        self.path = path
        self._session = session
        self._written: _Written | None = None  # what stands, if it is this object's; None: look first

    def read(self, timeout_s: float | None = None) -> bytes | None:
        """The checkpoint, None if none was ever written."""
        try:
            return self._session.read(self.path, timeout_s=timeout_s)[0]
        except ZnodeMissing:
            return None

    def write(self, checkpoint: bytes) -> None:
        """Replace the mirror; Superseded if what stands there is later.

        After Unavailable nobody knows what stands there: the next write looks first.
        """
        order = checkpoint_order(checkpoint, "what is to be mirrored")
        present, self._written = self._written, None
        if present is not None:
            try:
                self._written = self._replace(checkpoint, order, present)
                return
            except (ZnodeChanged, ZnodeMissing):
                pass  # somebody else was here: over what stands now, unless it is later
        self._written = self._replace(checkpoint, order, self._look())

    def _look(self) -> _Written | None:
        try:
            data, stat = self._session.read(self.path)
        except ZnodeMissing:
            return None
        return _Written(stat.version, checkpoint_order(data, self.path))

    def _replace(self, checkpoint: bytes, order: tuple[int, int], present: _Written | None) -> _Written:
        if present is None:
            self._session.create(self.path, checkpoint)
            return _Written(0, order)
        if present.order > order:
            raise Superseded(
                f"{self.path} holds epoch and number {present.order}, later than {order}: "
                "another node has become leader"
            )
        return _Written(self._session.write(self.path, checkpoint, present.version).version, order)


class _Run(msgspec.Struct):
    """What tells one process's status from another's; the rest of it is none of this package's business."""

    run: str = ""
    started_ms: int = 0
    pid: int = 0
    peer_host: str = "?"

    @staticmethod
    def decode(status: bytes) -> _Run:
        """Read a status; one that says nothing of it is older than all."""
        try:
            return msgspec.json.decode(status, type=_Run)
        except UNDECODABLE:
            return _Run()


class _Numbered(msgspec.Struct, frozen=True):
    number: int = 0


class _TakenUp(msgspec.Struct, frozen=True):
    """What a checkpoint says of the last request that was taken up."""

    operation: _Numbered = _Numbered()


def _number(request: bytes, path: str) -> int:
    return decoded(request, _Numbered, f"{path} holds no request").number


@dataclass(frozen=True, slots=True)
class _Written:
    """The version of the mirror's znode and what it holds."""

    version: int
    order: tuple[int, int]


class _Progress(msgspec.Struct):
    """What orders checkpoints; the rest of their JSON is none of this package's business."""

    epoch: int
    number: int = 0


def checkpoint_order(data: bytes, where: str) -> tuple[int, int]:
    """What `Checkpoint.order` says of one (store/checkpoint.py), which this package cannot import: a unit
    test sees to it that they agree. `where` it is, for the error.
    """
    progress = decoded(data, _Progress, f"{where} holds no checkpoint")
    return progress.epoch, progress.number
