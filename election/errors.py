"""What the election raises.

- ElectionError
    - Unavailable: ZooKeeper did not answer; nothing is known, the call may even have been carried out
    - ZnodeMissing: the znode is not there
    - ChrootMissing: the path behind the servers' addresses, where everything is to be, is not there
    - ZnodeExists: it is there already
    - ZnodeChanged: somebody else wrote it in between
    - Forbidden: ZooKeeper refuses the credentials, or they may not do this
    - Malformed: the znode holds what this version cannot read
        - Newer: what only a newer version can read
            - SettingsNewer: the settings
    - SettingsDiffer: the cluster was created with other settings
    - Superseded: a newer leader has written its checkpoint
    - PortTaken: the peer port of the node cannot be listened on
    - RequestWaits: the lane's leader has not taken an earlier request up yet
    - NodeIdTaken: another process is this node
"""

from __future__ import annotations


class ElectionError(Exception):
    """The root: one line that says what is wrong, where, and what to do."""


class Unavailable(ElectionError):
    """ZooKeeper did not answer in time: try again later, and take nothing for granted until then."""


class ZnodeMissing(ElectionError):
    """The znode is not there."""


class ChrootMissing(ElectionError):
    """The chroot is not there: correct `zookeeper`, or create that znode."""


class ZnodeExists(ElectionError):
    """The znode is there already."""


class ZnodeChanged(ElectionError):
    """The znode has another version than the one that the write was meant for: read it again."""


class Forbidden(ElectionError):
    """ZooKeeper refuses: set `zookeeper_auth` to credentials that may read and write the cluster's znodes."""


class Malformed(ElectionError):
    """The znode holds what this version cannot read."""


class Newer(Malformed):
    """It has the format of a newer version: upgrade this one, and leave the znode as it is."""


class SettingsNewer(Newer):
    """The settings have the format of a newer version: upgrade this one, and leave them as they are."""


class SettingsDiffer(ElectionError):
    """The cluster exists with other settings: they cannot change once messages depend on them."""


class Superseded(ElectionError):
    """The mirror holds a later checkpoint than the one to be written, so another node has become leader."""


class RequestWaits(ElectionError):
    """An earlier request of an operator waits for the lane's leader: wait for it, or withdraw it."""


class NodeIdTaken(ElectionError):
    """Another process, which started earlier, is this node: give one of them another `node_id`."""


class PortTaken(ElectionError):
    """The peer port cannot be listened on: set another one, or end the process that has it."""
