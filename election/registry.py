"""What the nodes of a cluster share in ZooKeeper: settings, members, the checkpoints' mirrors."""

from __future__ import annotations

from dataclasses import dataclass, fields

import msgspec

from delayline.settings import ClusterSettings
from election.candidates import Candidate, in_order
from election.errors import (
    ChrootMissing,
    Malformed,
    NodeIdTaken,
    SettingsDiffer,
    Superseded,
    ZnodeChanged,
    ZnodeExists,
    ZnodeMissing,
)
from election.session import Session
from election.znodes import Znodes


class Registry:
    """The cluster's shared znodes. Every method raises Unavailable if ZooKeeper does not answer."""

    def __init__(self, session: Session, znodes: Znodes) -> None:
        self._session = session
        self._znodes = znodes
        self._published: set[str] = set()  # the thread's that publishes

    # -- settings

    def create_settings(self, settings: ClusterSettings) -> bool:
        """Write the settings, once for ever; False if the very same stand there already.

        SettingsDiffer if others do: they are never replaced, since what is in the buffer was accepted under
        them.
        """
        try:
            self._session.create(self._znodes.settings, settings.to_json().encode())
        except ZnodeExists:
            self.check_settings(settings)
            return False
        return True

    def settings(self) -> ClusterSettings:
        """The cluster's settings.

        ZnodeMissing if it was never created; ChrootMissing; Malformed if they cannot be read.
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
        try:
            return ClusterSettings.from_json(data)
        except ValueError as error:
            raise Malformed(f"{self._znodes.settings} holds no settings of a cluster: {error}") from error

    def check_settings(self, expected: ClusterSettings) -> None:
        """Compare with what stands; SettingsDiffer names each setting that differs."""
        different = differences(self.settings(), expected)
        if different:
            raise SettingsDiffer(
                f"the settings at {self._znodes.settings} are not those given: {different}; "
                "they cannot be changed, use another cluster name"
            )

    # -- members and candidates

    def publish_member(self, node: str, status: bytes) -> None:
        """Show the node's status (JSON) in an ephemeral znode; for one thread, at most once a second.

        NodeIdTaken if another process does so under the same name and started earlier, by the `run` and
        `started_ms` of both statuses.
        """
        path = self._znodes.member(node)
        there = self._session.exists(path)
        if there is not None and there.owner != self._session.state.session_id:
            # Of an earlier session or process: it would go with that, in the middle of this one. Somebody who
            # lives puts it there again.
            if path in self._published:
                self._refuse_second(path, status)
            self._session.delete(path)
            there = None
        if there is None:
            self._session.create(path, status, ephemeral=True)
        else:
            self._session.write(path, status, -1)
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

    def members(self) -> dict[str, bytes]:
        """The status (JSON) of each node that is there now."""
        return self._read_children(self._znodes.members)

    def candidates(self, lane: int) -> dict[str, Candidate]:
        """The lane's queue by the znodes' names, the master first."""
        data = self._read_children(self._znodes.candidates(lane))
        return {name: Candidate.decode(data[name]) for name in in_order(data)}

    def _read_children(self, path: str) -> dict[str, bytes]:
        try:
            names = self._session.children(path)
        except ZnodeMissing:
            return {}
        found: dict[str, bytes] = {}
        for name in sorted(names):
            try:
                found[name] = self._session.read(f"{path}/{name}")[0]
            except ZnodeMissing:
                continue  # it has gone since
        return found

    # -- the checkpoint's mirror

    def mirror(self, lane: int) -> CheckpointMirror:
        """The mirror of a lane's checkpoint."""
        return CheckpointMirror(self._session, self._znodes.checkpoint(lane))


def differences(there: ClusterSettings, here: ClusterSettings) -> str:
    """Each setting in which the two differ; empty if they are the same."""
    return "; ".join(
        f"{field.name} is {getattr(there, field.name)!r} there, {getattr(here, field.name)!r} here"
        for field in fields(ClusterSettings)
        if getattr(there, field.name) != getattr(here, field.name)
    )


class CheckpointMirror:
    """The lane's last checkpoint (JSON) in a znode: for operators, and for the day the checkpoint topic is
    lost.

    It may lag behind the topic and never decides while the topic is there. For one thread, which sees to it
    that there are at most five writes a second. A write never replaces a checkpoint of a later epoch, nor
    one of the same epoch and a later position: a master that was succeeded unawares cannot take the mirror
    back.
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
        order = _order(checkpoint, "what is to be mirrored")
        standing, self._written = self._written, None
        if standing is not None:
            try:
                self._written = self._replace(checkpoint, order, standing)
                return
            except (ZnodeChanged, ZnodeMissing):
                pass  # somebody else was here: over what stands now, unless it is later
        self._written = self._replace(checkpoint, order, self._look())

    def _look(self) -> _Written | None:
        try:
            data, stat = self._session.read(self.path)
        except ZnodeMissing:
            return None
        return _Written(stat.version, _order(data, self.path))

    def _replace(self, checkpoint: bytes, order: _Order, standing: _Written | None) -> _Written:
        if standing is None:
            self._session.create(self.path, checkpoint)
            return _Written(0, order)
        if standing.order > order:
            raise Superseded(
                f"{self.path} holds epoch and position {standing.order}, which is later than {order}: "
                "another node has become master"
            )
        return _Written(self._session.write(self.path, checkpoint, standing.version).version, order)


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
        except msgspec.MsgspecError:
            return _Run()


_Order = tuple[int, tuple[int, ...]]
"""Epoch, then position; no position is before every position."""


@dataclass(frozen=True, slots=True)
class _Written:
    """The version of the mirror's znode and what it holds."""

    version: int
    order: _Order


class _Progress(msgspec.Struct):
    """What orders checkpoints; the rest of their JSON is none of this package's business."""

    epoch: int
    position: tuple[int, int, int] | None


def _order(data: bytes, where: str) -> _Order:
    try:
        progress = msgspec.json.decode(data, type=_Progress)
    except msgspec.MsgspecError as error:
        raise Malformed(f"{where} holds no checkpoint: {error}") from error
    return progress.epoch, progress.position or ()
