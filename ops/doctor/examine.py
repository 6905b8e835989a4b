"""Looks at all there is, and goes on where something does not answer: that is a finding, too."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Final

from delayline.settings_versions import MOST_BYTES, SettingsVersions
from election.errors import ElectionError
from election.registry import Registry
from node.config import ConnectionConfig
from node.http.answers import Forecast
from node.status import LARGEST_CLOCK_OFFSET_MS, NodeState, NodeStatus
from ops.clients.kafka import KafkaAdmin
from ops.clients.nodes import address_of
from ops.clients.zookeeper import registry
from ops.cluster.status import ClusterStatus, read
from ops.doctor.finding import Finding, note, ok, problem
from ops.doctor.keepers import examine_keepers
from ops.doctor.nodes import judge_cluster
from ops.doctor.topics import examine_topics
from ops.errors import OperatorError
from store.checkpoint import UnreadableCheckpoint

ANSWER_TIMEOUT_S: Final = 5.0


def examine(config: ConnectionConfig) -> list[Finding]:
    """All findings, in the order in which they are best read."""
    versions, status, in_znodes = _znodes(config)
    sessions = {} if status is None else _sessions(status)
    return [
        *examine_keepers(config, sessions),
        *in_znodes,
        *examine_topics(config, versions),
        *([] if status is None else judge_cluster(status)),
        *([] if status is None else _answers(status)),
    ]


def _znodes(
    config: ConnectionConfig,
) -> tuple[SettingsVersions | None, ClusterStatus | None, list[Finding]]:
    versions = None
    try:
        with registry(config) as znodes:
            versions = znodes.settings_versions()
            status = read(znodes, config)
            others = [*_keyless(znodes), *_of_kafka(config, znodes)]
    except (ElectionError, UnreadableCheckpoint) as error:
        return versions, None, [problem("znodes", str(error), "the nodes cannot be looked at until then")]
    settings = versions.settings
    found = f"cluster {config.cluster}: {settings.partitions} partitions, {settings.lanes} lane(s)"
    return versions, status, [ok("znodes", found), *judge_size(versions), *others, *_clocks(status)]


def judge_size(versions: SettingsVersions) -> list[Finding]:
    """Whether there is room for many more changes: all that the settings were is kept."""
    used = len(versions.to_json())
    if 2 * used < MOST_BYTES:
        return []
    found = (
        f"with all that they were they take {used >> 10} KiB of {MOST_BYTES >> 10}: once that is full, they"
        " cannot be changed"
    )
    mend = "change them rarely, with short lists; or move what waits to another cluster (delayline pending)"
    return [note("settings", found, mend)]


def _keyless(znodes: Registry) -> list[Finding]:
    if znodes.keys() is not None:
        return []
    mend = "start a node that has its data folder; if there is none: delayline topics create"
    return [problem("keys", "ZooKeeper has no keys to sign with: no node can start", mend)]


def _of_kafka(config: ConnectionConfig, znodes: Registry) -> list[Finding]:
    tied = znodes.kafka()
    if tied is None:
        return []
    try:
        found = KafkaAdmin(config, timeout_s=ANSWER_TIMEOUT_S).cluster_id()
    except OperatorError:
        return []  # examine_topics says so
    if found == tied.cluster:
        return []
    mend = (
        "correct bootstrap_servers or zookeeper; if it was restored or moved: delayline cluster accept-kafka"
    )
    return [problem("kafka", f"the cluster is in the Kafka {tied.cluster}, and this is {found}", mend)]


def _sessions(status: ClusterStatus) -> dict[str, float]:
    said = {node: member.status for node, member in status.members.items()}
    return {node: one.session_timeout_s for node, one in said.items() if one and one.session_timeout_s}


def _clocks(status: ClusterStatus) -> list[Finding]:
    found = [
        problem(
            "clocks",
            f"the clock of {node} is {off_ms:+d} ms off that of ZooKeeper's server",
            "set the clocks, for example with `chronyc makestep`",
        )
        for node, member in status.members.items()
        if (off_ms := member.wrong_clock_ms) is not None
    ]
    if status.members and not found:
        found.append(ok("clocks", f"those of the nodes are within {LARGEST_CLOCK_OFFSET_MS} ms"))
    return found


def _answers(status: ClusterStatus) -> list[Finding]:
    """Whether `delayline message` and the like reach the nodes from here."""
    there = [one.status for one in status.members.values() if one.status and one.status.http_port]
    open_ = [said for said in there if said.state not in {NodeState.STARTING, NodeState.REFUSING}]
    if not open_:
        return []
    with ThreadPoolExecutor(len(open_)) as askers:
        silent = [word for word in askers.map(_asked, open_) if word is not None]
    mend = "from another machine it is reached only at an http_host that this one can reach"
    if silent:
        return [note("http", f"no answer of {word}", mend) for word in silent]
    return [ok("http", "every node answers")]


def _asked(said: NodeStatus) -> str | None:
    answer = address_of(said).ask(Forecast, "/due", {}, ANSWER_TIMEOUT_S)
    return answer if isinstance(answer, str) else None
