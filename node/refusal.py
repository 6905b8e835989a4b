"""Why a node refuses to be leader, and the way out: every state that needs an operator."""

from __future__ import annotations

import shlex
from enum import StrEnum
from typing import Any, Final

import msgspec

from delayline.names import ClusterNames
from delayline.settings import FIRST_MEANING, ClusterSettings
from delayline.settings_versions import SettingsVersions
from delayline.times import render_duration
from election.znodes import Znodes
from store.checkpoint import NewerCheckpoint, UnreadableCheckpoint


class RefusalCode(StrEnum):
    """Why: docs/operations.md has them as a table, with what to do."""

    CHECKPOINT_TOPIC_MISSING = "checkpoint-topic-missing"
    CHECKPOINT_UNREADABLE = "checkpoint-unreadable"
    BUFFER_RECREATED = "buffer-recreated"
    PARTITIONS_MISSING = "partitions-missing"
    BUFFER_MISSING = "buffer-missing"
    BUFFER_FORBIDDEN = "buffer-forbidden"
    CHECKPOINT_FORBIDDEN = "checkpoint-forbidden"
    TRANSACTIONAL_ID_FORBIDDEN = "transactional-id-forbidden"
    OWN_TOPIC_UNUSABLE = "own-topic-unusable"
    RETENTION_GAP = "retention-gap"
    SETTINGS_CHANGED = "settings-changed"
    SETTINGS_MISSING = "settings-missing"
    OTHER_DATA = "other-data"
    SETTINGS_UNREADABLE = "settings-unreadable"
    SETTINGS_NEWER = "settings-newer"
    SETTINGS_BEHIND = "settings-behind"
    SETTINGS_CONTRADICT = "settings-contradict"
    CARRY_NEWER = "carry-newer"
    NEWER_FORMAT = "newer-format"
    OTHER_KAFKA = "other-kafka"
    KEYS_MISSING = "keys-missing"
    KEYS_REPLACED = "keys-replaced"
    KEYS_BEHIND = "keys-behind"
    KEYS_UNREADABLE = "keys-unreadable"
    STORE_IN_USE = "store-in-use"
    NODE_ID_TAKEN = "node-id-taken"
    STORE_DAMAGED = "store-damaged"
    DATA_DIR_UNUSABLE = "data-dir-unusable"
    DISK_FULL = "disk-full"
    CLOCK_SKEW = "clock-skew"
    NO_SUCH_LANE = "no-such-lane"


class Refusal(msgspec.Struct, frozen=True):
    """A stable code, what is wrong, and what to do about it."""

    code: RefusalCode
    detail: str
    way_out: str

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}. {self.way_out}"


class Refusing(Exception):
    """The node cannot go on as it is."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


def log_refusal(log: Any, why: Refusal) -> None:
    """The one log line of a refusal; `log` is the caller's logger."""
    log.error("leadership-refused", code=why.code, detail=why.detail, way_out=why.way_out)


SIT_OUT_S: Final = 10.0
RETENTION_GAP: Final = RefusalCode.RETENTION_GAP
DISK_FULL: Final = RefusalCode.DISK_FULL

RESTARTS_ITSELF: Final = frozenset({DISK_FULL, RefusalCode.NODE_ID_TAKEN, RefusalCode.STORE_IN_USE})
"""The codes of what a node waits for the end of, without its parts, to begin anew then (node/node.py)."""

REBUILD: Final = "Stop the node, remove {data_dir}, and start it again: it makes its view anew."


def rebuild(code: RefusalCode, detail: str, data_dir: object) -> Refusal:
    """A refusal that only a new view ends."""
    return Refusal(code, detail, REBUILD.format(data_dir=data_dir))


def buffer_recreated(
    detail: str, names: ClusterNames, znodes: Znodes, lane: int, data_dir: object
) -> Refusal:
    """The log of record is another one. Offsets begin anew: the old checkpoint means nothing, or worse; and
    what was signed for the old one, or told of it, must not count in the new one.
    """
    return Refusal(
        RefusalCode.BUFFER_RECREATED,
        detail,
        "What was pending in the old topic is lost. Begin anew under another cluster name; or stop the "
        "nodes, "
        f"delete the topics {names.checkpoint} and {names.outcomes} and the znodes "
        f"{znodes.checkpoint(lane)}, of every lane, and {znodes.keys}, remove {data_dir} on every node, run "
        "`delayline topics create`, and start them.",
    )


def partitions_missing(actual: int, names: ClusterNames, settings: ClusterSettings) -> Refusal:
    """Kafka takes none away, so it is another topic than the settings were made for."""
    return Refusal(
        RefusalCode.PARTITIONS_MISSING,
        f"{names.buffer} has {actual} partitions; the cluster's settings say {settings.partitions}",
        "Somebody has made it by hand. Add those that are missing, as `delayline topics check` says.",
    )


def store_in_use(detail: str) -> Refusal:
    """Two processes on one folder."""
    return Refusal(
        RefusalCode.STORE_IN_USE,
        detail,
        "Stop that process: this node goes on by itself then. Or give this one a data_dir of its own, and "
        "restart it.",
    )


def node_id_taken(detail: str) -> Refusal:
    """Two processes with one name: operators could not tell which of them is meant."""
    return Refusal(
        RefusalCode.NODE_ID_TAKEN,
        detail,
        "Stop the other one: this one goes on by itself then. Or give this one a node_id, data_dir and "
        "peer_port of its own, and restart it.",
    )


def other_data(detail: str, data_dir: object) -> Refusal:
    """Another node's, perhaps one that is down: not to be removed without a look."""
    return Refusal(
        RefusalCode.OTHER_DATA,
        detail,
        f"Give this node a data_dir of its own; if {data_dir} is its own, remove it: the view is made anew.",
    )


def data_dir_unusable(detail: str, data_dir: object) -> Refusal:
    """Nothing can be written there."""
    return Refusal(
        RefusalCode.DATA_DIR_UNUSABLE,
        detail,
        f"Give this node a data_dir that its process may write (now {data_dir}), and start it again.",
    )


def checkpoint_topic_missing(detail: str) -> Refusal:
    """Nobody knows what was delivered until the topic is there again."""
    return Refusal(
        RefusalCode.CHECKPOINT_TOPIC_MISSING,
        detail,
        "Run `delayline topics create`: delivery then goes on from the last checkpoint known, and what was "
        "delivered after it is delivered again.",
    )


def checkpoint_unreadable(where: str, error: UnreadableCheckpoint) -> Refusal:
    """Whoever went on from an older one would deliver again what this one covers."""
    if isinstance(error, NewerCheckpoint):
        return newer_format(f"{where}: {error}")
    return Refusal(
        RefusalCode.CHECKPOINT_UNREADABLE,
        f"{where} holds no checkpoint that this version can read: {error}",
        "Run this node in the version that wrote it. If another program did, delete that topic or znode and "
        "run `delayline topics create`: delivery then goes on from the last checkpoint known, and what was "
        "delivered after it is delivered again.",
    )


def own_topic_unusable(detail: str) -> Refusal:
    """Without it nothing can be committed."""
    return Refusal(
        RefusalCode.OWN_TOPIC_UNUSABLE,
        detail,
        "Run `delayline topics check`: `delayline topics create` makes a missing topic anew, and the node "
        "needs Write and Describe on all four of the cluster's.",
    )


def buffer_missing(detail: str) -> Refusal:
    """Brokers that have just started may say so, too."""
    return Refusal(
        RefusalCode.BUFFER_MISSING,
        detail,
        "If the topic was deleted, what was pending in it is lost: `delayline topics create` makes it anew, "
        "and the nodes then say what to do. If it comes back as it was, nothing need be done.",
    )


def retention_gap(detail: str, data_dir: object) -> Refusal:
    """Its view lacks what is gone; the log does, too."""
    return Refusal(
        RefusalCode.RETENTION_GAP,
        detail,
        "If another node leads, this one takes its view and goes on by itself. If it does not (its log has "
        f"`snapshot-passed-over`): {REBUILD.format(data_dir=data_dir)} If none leads, `delayline cluster "
        "accept-gap` says what is lost if this one goes on.",
    )


def retention_gap_of_all(detail: str) -> Refusal:
    """A rebuilt view would not have what the log has lost, and its checkpoints would say that it was done."""
    return Refusal(
        RefusalCode.RETENTION_GAP,
        detail,
        "Start a node that still has its data folder, or has it from a snapshot of its disk: it has read "
        "what is gone, and this one takes its view. If there is none, what the log has lost is lost: "
        "`delayline cluster accept-gap` says how much, and goes on without it. `delayline topics check` says "
        "whether the retention is too short.",
    )


def topic_forbidden(code: RefusalCode, topic: str) -> Refusal:
    """It is not read: nothing new is delivered, or nobody knows what was."""
    return Refusal(
        code,
        f"this node may not read {topic}",
        f'Give its user Read on {topic} (docs/operations.md, "Who may do what"); it ends by itself.',
    )


def transactional_ids_forbidden(ids: tuple[str, ...]) -> Refusal:
    """Without them nothing can be committed."""
    names = " and ".join(ids)
    return Refusal(
        RefusalCode.TRANSACTIONAL_ID_FORBIDDEN,
        f"this node may not use the transactional ids {names}",
        f'Give its user Write on the transactional ids {names} (docs/operations.md, "Who may do what"); it '
        "ends by itself.",
    )


def restore_command(versions: SettingsVersions) -> str:
    """What an operator types to have these settings in ZooKeeper again; nothing is left to a default. Those
    that were changed no options can say: their topic has them, and the nodes.
    """
    settings = versions.settings
    words = ["delayline", "topics", "create", "--restore", "--cluster", settings.cluster]
    if versions.latest.number > 1:
        return shlex.join(words)
    words += ["--partitions", str(settings.partitions), "--lanes", str(settings.lanes)]
    kept = "max-delay" if settings.retention_ms is None else render_duration(settings.retention_ms)
    words += ["--retention", kept, "--max-delay", render_duration(settings.max_delay_ms)]
    words += ["--dedup-window", render_duration(settings.dedup_window_ms)]
    if settings.meaning > FIRST_MEANING:
        words += ["--max-request-bytes", str(settings.max_request_bytes)]
    words += ["--meaning", str(settings.meaning)]
    for level_ms in settings.levels_ms:
        words += ["--level", render_duration(level_ms)]
    for target in settings.targets:
        words += ["--target", target]
    return shlex.join(words)


def settings_changed(detail: str, own: SettingsVersions, data_dir: object) -> Refusal:
    """A view made by others would mean other rows: what is pending would be gone, or a dead letter."""
    return Refusal(
        RefusalCode.SETTINGS_CHANGED,
        detail,
        f"Restore the settings that this view was made with: stop the nodes that do not refuse, run `"
        f"{restore_command(own)}`, and start all again. Only if those in ZooKeeper are the right ones, since "
        f"they were restored after this view was made: {REBUILD.format(data_dir=data_dir)}",
    )


def settings_missing(znode: str, zookeeper: str, own: SettingsVersions) -> Refusal:
    """ZooKeeper has lost them, and the store knows what they were."""
    return Refusal(
        RefusalCode.SETTINGS_MISSING,
        f"the cluster's settings are not at {znode}, in ZooKeeper at {zookeeper}",
        f"If that is another cluster's ZooKeeper, correct zookeeper. If it has lost them, run `"
        f"{restore_command(own)}`: so they were when this node's view was made. It goes on by itself.",
    )


def settings_unreadable(detail: str, own: SettingsVersions | None) -> Refusal:
    """What a request means depends on the settings."""
    return Refusal(
        RefusalCode.SETTINGS_UNREADABLE,
        detail,
        "Start a node that has its data folder: it says which command restores them. If there is none, run "
        "`delayline topics create --restore` with all settings that the cluster was made with. Then start "
        "this node again."
        if own is None
        else f"Run `{restore_command(own)}`: so they were when this node's view was made. Then start the "
        "node again.",
    )


def settings_newer(detail: str) -> Refusal:
    """They are sound: it is this version that lacks something."""
    return Refusal(
        RefusalCode.SETTINGS_NEWER,
        detail,
        "Upgrade this node to the version that wrote them, and leave the znode as it is.",
    )


def settings_behind(detail: str, topic: str) -> Refusal:
    """What stands behind a mark is read by settings that this node does not know yet."""
    return Refusal(
        RefusalCode.SETTINGS_BEHIND,
        detail,
        f"See that the brokers answer, and that the nodes' user may Read and Describe {topic}; if the topic "
        "was deleted, run `delayline topics create`, which writes it anew. If it was, or has lost its end, "
        "and this stays, change some setting (`delayline settings change`). It ends by itself.",
    )


def settings_contradict(topic: str, detail: str, data_dir: object) -> Refusal:
    """One of the two is another cluster's, or was made by hand."""
    return Refusal(
        RefusalCode.SETTINGS_CONTRADICT,
        f"the settings in {topic} are not those that this node has: {detail}",
        "If ZooKeeper's were written by hand, run `delayline topics create --restore`, which takes those of "
        "the topic, and start the node again. If this view was made with wrong ones: "
        f"{REBUILD.format(data_dir=data_dir)}",
    )


def newer_format(detail: str) -> Refusal:
    """Of a checkpoint, of the keys, of what operators have written: nothing of it is guessed."""
    return Refusal(
        RefusalCode.NEWER_FORMAT,
        detail,
        "Upgrade this node to the version that wrote it, and leave it as it is.",
    )


def carry_newer(detail: str) -> Refusal:
    """Whoever passed over it might lack what it says, once retention has taken what has said so before."""
    return Refusal(
        RefusalCode.CARRY_NEWER,
        detail,
        "Upgrade this node to the version of the leader that has written it, and start it again: it goes on "
        "from where it stands.",
    )


def other_kafka(znode: str, tied: str, found: str, bootstrap_servers: str) -> Refusal:
    """Whoever led there would take the lane from those who deliver in the cluster's own Kafka."""
    return Refusal(
        RefusalCode.OTHER_KAFKA,
        f"{znode} says that the cluster is in the Kafka with the id {tied}; {bootstrap_servers} is that with "
        f"the id {found}",
        "One of this node's bootstrap_servers and zookeeper is another cluster's: correct it, and start the "
        "node again. If that Kafka has been restored or moved, and so has another id: `delayline cluster "
        "accept-kafka` says what follows; then start the nodes again.",
    )


def keys_missing(znode: str) -> Refusal:
    """Without them nothing can be believed, or signed."""
    return Refusal(
        RefusalCode.KEYS_MISSING,
        f"the keys that the service signs with are not at {znode}, and this node's store has no copy of them",
        "Start a node that still has its data folder: it puts them back. If there is none, or the cluster is "
        "older than its keys, stop all nodes, run `delayline topics create`, and start them.",
    )


def keys_unreadable(detail: str) -> Refusal:
    """They may be of a newer version."""
    return Refusal(
        RefusalCode.KEYS_UNREADABLE,
        detail,
        "Run this node in the version that wrote them. If they are damaged, delete that znode and start a "
        "node that still has its data folder: it puts them back.",
    )


def keys_replaced(znode: str, lost: list[str], data_dir: object) -> Refusal:
    """Its view believes what others would reject."""
    return Refusal(
        RefusalCode.KEYS_REPLACED,
        f"the keys at {znode} are not those that this node's store was made with: "
        + (f"{', '.join(lost)} missing" if lost else "another secret, or they count from elsewhere on"),
        "If they were made anew by mistake: stop all nodes, delete that znode, and start this node first: it "
        f"puts its own back. If they are to stay: {REBUILD.format(data_dir=data_dir)}",
    )


def keys_behind(where: str, id_: str, znode: str) -> Refusal:
    """Whoever took that for a stranger's would deliver again what it covers."""
    return Refusal(
        RefusalCode.KEYS_BEHIND,
        f"{where} is signed with the cluster's key {id_}, which neither this node has nor {znode}, where it "
        "looks every ten seconds",
        "Start a node that was there after the last `delayline key rotate`: it puts the key back, and this "
        f"one goes on by itself. If no node has it any more: stop all nodes, delete {znode}, run `delayline "
        "topics create --new-keys`, remove every node's data_dir, and start them: what is in the log by then "
        "counts, whoever has written it.",
    )


def clock_skewed(offset_ms: int, allowed_ms: int) -> Refusal:
    """A leader with a wrong clock delivers early or late."""
    return Refusal(
        RefusalCode.CLOCK_SKEW,
        f"this node's clock is {-offset_ms:+d} ms off the brokers'; {allowed_ms} ms are allowed",
        "Set the clock, for example with `chronyc makestep`: the node stands for leader again every "
        f"{SIT_OUT_S:.0f} s.",
    )


def disk_full(detail: str, data_dir: object) -> Refusal:
    """Nothing can be taken from the log any more."""
    way_out = f"Make room on the disk of {data_dir}: the node then goes on by itself."
    return Refusal(DISK_FULL, detail, way_out)
