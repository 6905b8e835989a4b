"""Every way to start wrong: the table. What each shows stands in docs/start-wrong.md, taken from real screens
(`python -m tests.integration.wrong_page` writes it anew) and held against them by test_start_wrong.py.

In arguments and variables `{kafka}` and the like are what `tests.integration.wrong_ground` has prepared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

State = Literal["waits", "refuses", "warns"]
"""What a node shows that stays up: the event of its log line."""


@dataclass(frozen=True, slots=True)
class Row:
    """One way to start wrong: the command, and the exit code it ends with or the state it stays up in."""

    situation: str
    command: str
    ends: int | State
    variables: Mapping[str, str] = field(default_factory=dict)
    file: str | bytes | None = None
    shell: str = ""
    bare: bool = False
    """A node that is told nothing else, neither folder nor name nor port."""
    again: int = 1
    """How often a node that waits has asked again when it is ended: it says what it has to say once."""

    @property
    def waits(self) -> bool:
        """Whether it takes seconds and no work: begun first, it is over when the others are."""
        return self.ends in (6, "waits") or "taken" in self.situation


STATUS = "cluster status"
CREATE = "topics create"
NODE = "node run"
LANES = f"{NODE} --lanes 0-1"
SASL = "-X security.protocol=SASL_PLAINTEXT -X sasl.mechanism=PLAIN -X sasl.username=u -X sasl.password=p"
NOWHERE = "127.0.0.1:1"
NO_NAME = "no.such.host.invalid"
DIGEST = {"DELAYLINE_ZOOKEEPER_AUTH__SCHEME": "digest", "DELAYLINE_ZOOKEEPER_AUTH__CREDENTIAL": "u:wrong"}
SCHEME = {"DELAYLINE_ZOOKEEPER_AUTH__SCHEME": "nothing", "DELAYLINE_ZOOKEEPER_AUTH__CREDENTIAL": "u:p"}
TLS = {"DELAYLINE_ZOOKEEPER_TLS": "{{}}"}
WITH_SASL = "--bootstrap {sasl} -X security.protocol=SASL_PLAINTEXT -X sasl.username=delay"
WRONG_PASSWORD = f"{WITH_SASL} -X sasl.mechanism=PLAIN -X sasl.password=wrong"
SCRAM = f"{WITH_SASL} -X sasl.mechanism=SCRAM-SHA-256 -X sasl.password=right"
PAUSE = "cluster pause --reason r"
CHANGE = "settings change --reason r"
WATCH = "audit watch --state {dir}/watch"
TABLES = "tables export --to parquet:{dir}/tables"
LOAD = "bulk schedule --job may"
MOVE = "pending move {dir}/out.jsonl --confirm {cluster}"
UNSET = {"DELAYLINE_BOOTSTRAP_SERVERS": "", "DELAYLINE_ZOOKEEPER": "", "DELAYLINE_CLUSTER": ""}


def _java(version: str) -> dict[str, str]:
    """A machine with this Java and no other."""
    # A `sitecustomize` there keeps Python from looking for one where this machine has its own.
    only = {"PYTHONPATH": "{javas}", "PATH": "{javas}/" + version, "HOME": "{dir}/nowhere"}
    return {**only, "JAVA_HOME": "", "DELAYLINE_CACHE": "{cache}"}


def _confirmed(suffix: str) -> str:
    return f"--cluster {{cluster}}-{suffix} --confirm {{cluster}}-{suffix}"


_CONFIGURATION = (
    Row("nothing configured", NODE, 2, UNSET, bare=True),
    Row("no data folder configured", NODE, 2, bare=True),
    Row("an unknown setting in the file", STATUS, 2, file="zookeper: zk:2181\n"),
    Row("a setting of the cluster in a node's file", NODE, 2, file="max_delay_ms: 5\n"),
    Row("a setting of the wrong type", NODE, 2, file="session_timeout_s: long\n"),
    Row("an address without a port number", STATUS, 2, {"DELAYLINE_ZOOKEEPER": "zk:port"}),
    Row("a port that is none", f"{STATUS} --bootstrap kafka:99999", 2),
    Row("malformed YAML", STATUS, 2, file="zookeeper: [zk\n"),
    Row("an empty file", STATUS, 2, UNSET, file=""),
    Row("a file in another encoding", STATUS, 2, file="cluster: späte\n".encode("latin-1")),
    Row("a file that is not there", f"{STATUS} --config {{dir}}/none.yaml", 2),
    Row("the variable's file is not there", STATUS, 2, {"DELAYLINE_CONFIG": "{dir}/none.yaml"}),
    Row("a folder for a file", f"{STATUS} --config {{dir}}", 2),
    Row("a file that may not be read", f"{STATUS} --config {{dir}}/secret.yaml", 2),
    Row("an unknown variable", STATUS, 2, {"DELAYLINE_BOOTSTRAP": "kafka:9092"}),
    Row("a variable of the wrong type", NODE, 2, {"DELAYLINE_LANE": "first"}),
    Row("how many lanes the cluster is to have, in a file", STATUS, 2, file="lanes: 4\n"),
    Row("a list of lanes that is none", f"{NODE} --lanes 0-", 2),
    Row("more lanes than one command runs", f"{NODE} --lanes 0-64", 2),
    Row("a lane, and several", LANES, 2, {"DELAYLINE_LANE": "0"}),
    Row("a Kafka property that the service sets", f"{STATUS} -X acks=1", 2),
    Row("a Kafka property that does not exist", f"{CREATE} -X sasl.usrname=u", 2),
    Row("the same, given to a node", f"{NODE} --data-dir {{dir}}/d -X sasl.usrname=u", 2),
    Row("the same, given to nodes of several lanes", f"{LANES} -X sasl.usrname=u", 2),
    Row("a bad value of a Kafka property", f"{CREATE} -X security.protocol=TLS", 2),
    Row("half of the ZooKeeper credentials", STATUS, 2, {"DELAYLINE_ZOOKEEPER_AUTH__SCHEME": "digest"}),
    Row("a certificate that is not there", STATUS, 2, {"DELAYLINE_ZOOKEEPER_TLS__CA_FILE": "{dir}/ca.pem"}),
    Row("an unknown command", "clutser status", 2),
    Row("an unknown option", "topics check --nope", 2),
)
_KAFKA = (
    Row("connection refused", f"{CREATE} --bootstrap {NOWHERE}", 6),
    Row("a port that says nothing", f"{CREATE} --bootstrap {{silent}}", 6),
    Row("a port that speaks HTTP", f"{CREATE} --bootstrap {{http}}", 6),
    Row("ZooKeeper's port", f"{CREATE} --bootstrap {{zookeeper}}", 6),
    Row("a name that does not resolve", f"{CREATE} --bootstrap {NO_NAME}:9092", 6),
    Row("the same, for a message", f"message schedule t v --bootstrap {NO_NAME}:9092", 6),
    Row("the same, for an audit", f"audit --bootstrap {NO_NAME}:9092", 6),
    Row("the same, for a forecast", f"forecast --bootstrap {NO_NAME}:9092", 6),
    Row("SASL, where there is none", f"{CREATE} {SASL}", 4),
    Row("TLS, where there is none", f"{CREATE} -X security.protocol=SSL", 6),
    Row("a wrong password", f"{CREATE} {WRONG_PASSWORD}", 4),
    Row("a wrong password, for a message", f"message schedule t v {WRONG_PASSWORD}", 4),
    Row("a wrong password, for an audit", f"audit {WRONG_PASSWORD}", 4),
    Row("a SASL mechanism that the brokers do not have", f"{CREATE} {SCRAM}", 4),
    Row("no SASL, where the brokers ask for it", f"{CREATE} --bootstrap {{sasl}}", 6),
    Row("a node, connection refused", f"{NODE} --bootstrap {NOWHERE}", "waits"),
    Row("a node, ZooKeeper's port", f"{NODE} --bootstrap {{zookeeper}}", "waits"),
    Row("a node, SASL where there is none", f"{NODE} {SASL}", "waits"),
    Row("a node, a wrong password", f"{NODE} {WRONG_PASSWORD}", "waits"),
    Row("a node, no SASL where the brokers ask for it", f"{NODE} --bootstrap {{sasl}}", "waits"),
)
_ZOOKEEPER = (
    Row("connection refused", f"{STATUS} --zookeeper {NOWHERE}", 6),
    Row("a port that says nothing", f"{STATUS} --zookeeper {{silent}}", 6),
    Row("a port that speaks HTTP", f"{STATUS} --zookeeper {{http}}", 6),
    Row("Kafka's port", f"{STATUS} --zookeeper {{kafka}}", 6),
    Row("a name that does not resolve", f"{STATUS} --zookeeper {NO_NAME}:2181", 6),
    Row("a chroot that is not there", f"{STATUS} --zookeeper {{zookeeper}}/no/such", 3),
    Row("the same, for a new cluster", f"{CREATE} --zookeeper {{zookeeper}}/no/such", 3),
    Row("other credentials than the cluster's", f"{STATUS} --cluster {{cluster}}-guarded", 4, DIGEST),
    Row("no credentials", f"{STATUS} --cluster {{cluster}}-guarded", 4),
    Row("an unknown scheme", STATUS, 4, SCHEME),
    Row("TLS, where there is none", STATUS, 6, TLS),
    Row("a node, connection refused", f"{NODE} --zookeeper {NOWHERE}", "waits", again=5),
    Row("a node, a chroot that is not there", f"{NODE} --zookeeper {{zookeeper}}/no/such", "waits"),
    Row("a node, other credentials", f"{NODE} --cluster {{cluster}}-guarded", "waits", DIGEST),
    Row("a node, an unknown scheme", NODE, "waits", SCHEME, again=5),
)
_TOPICS = (
    Row("a cluster that was never created", f"{STATUS} --cluster {{cluster}}-none", 3),
    Row("the same, for its topics", "topics check --cluster {cluster}-none", 3),
    Row("the same, for a message", "message schedule t v --cluster {cluster}-none", 3),
    Row("the same, for an audit", "audit --cluster {cluster}-none", 3),
    Row("the same, for a forecast", "forecast --cluster {cluster}-none", 3),
    Row("the same, for a node", f"{NODE} --cluster {{cluster}}-none", "waits"),
    Row("created again with other settings", f"{CREATE} --partitions 3 --max-delay 1d", 5),
    Row("a buffer of other partitions was there", f"{CREATE} --cluster {{cluster}}-wide", 5),
    Row("more lanes than partitions", f"{CREATE} --cluster {{cluster}}-none --lanes 5", 2),
    Row("a retention that is too short", f"{CREATE} --cluster {{cluster}}-none --retention 1h", 2),
    Row("more replicas than brokers", f"{CREATE} --cluster {{cluster}}-none --replication 9", 2),
    Row("a node, without the topics", f"{NODE} --cluster {{cluster}}-bare", "waits"),
    Row("a node, with partitions missing", f"{NODE} --cluster {{cluster}}-wider", "refuses"),
    Row("a node, settings of a newer format", f"{NODE} --cluster {{cluster}}-newer", "refuses"),
    Row("a node of a lane that there is not", f"{NODE} --lane 1", "refuses"),
    Row("a lane that there is not", "checkpoint show --lane 1", 3),
    Row("a message, and no node to ask", "message show order-1 --cluster {cluster}-bare", 6),
    Row("a message, and no such node", "message list --node n9 --cluster {cluster}-bare", 3),
)
_FOLDER = (
    Row("it is a file", f"{NODE} --data-dir {{dir}}/file", "refuses"),
    Row("it lies in a file", f"{NODE} --data-dir {{dir}}/file/n1", "refuses"),
    Row("it may not be written", f"{NODE} --data-dir {{dir}}/sealed", "refuses"),
    Row("its disk is full", f"{NODE} --data-dir {{dir}}/full", "refuses"),
    Row("it is another cluster's", f"{NODE} --data-dir {{dir}}/other-cluster", "refuses"),
    Row("it is another lane's", f"{NODE} --data-dir {{dir}}/other-lane", "refuses"),
    Row("it was made with other settings", f"{NODE} --data-dir {{dir}}/other-settings", "refuses"),
    Row("another process has it open", f"{NODE} --data-dir {{dir}}/open", "refuses"),
)
_PEERS = (
    Row("the peer port is taken", f"{NODE} --peer-port {{silent_port}}", 5),
    Row("the peer host is another machine's", f"{NODE} --peer-host 192.0.2.1", 5),
    Row("the peer host does not resolve", f"{NODE} --peer-host {NO_NAME}", "warns"),
    Row("the HTTP port is taken", f"{NODE} --http-port {{silent_port}}", 5),
    Row("the peer port of one of several lanes is taken", f"{LANES} --peer-port {{silent_port}}", 5),
    Row("the HTTP port of several lanes is taken", f"{LANES} --http-port {{silent_port}}", 5),
    Row("two nodes of one id", f"{NODE} --node-id first", "refuses"),
)
_STACK = (
    Row("its port is taken", "stack up --data-dir {dir}/taken", 1),
    Row("its folder is in use", "stack up --data-dir {dir}/used", 1),
    Row("its folder may not be written", "stack up --data-dir {dir}/sealed", 1),
    Row("the same, in the background", "stack up --detach --data-dir {dir}/sealed/stack", 1),
    Row("its folder is a file", "stack up --data-dir {dir}/file", 2),
    Row("its ports are damaged", "stack up --data-dir {dir}/damaged", 1),
    Row("the verdict cannot be written", "demo --json {dir}/sealed/verdict.json", 2),
    Row("the verdict's folder is not there", "demo --json {dir}/nowhere/verdict.json", 2),
    Row("no such ledger", "audit --ledger {dir}/none.jsonl", 2),
    Row("a watch with nowhere to keep what is open", "audit watch", 2),
    Row("a watch, with an option before its name", "audit --grace 5 watch --state {dir}/watch", 2),
    Row("a watch, a folder that may not be written", "audit watch --state {dir}/sealed/watch", 2),
    Row("a watch, an address of its page that is none", f"{WATCH} --http nowhere", 2),
    Row("a watch, the port of its page is taken", f"{WATCH} --http 127.0.0.1:{{silent_port}}", 5),
    Row("a watch of a cluster that was never created", f"{WATCH} --cluster {{cluster}}-none", 3),
    Row("a watch, Kafka refuses the connection", f"{WATCH} --bootstrap {NOWHERE}", 6),
)
_JAVA = (
    Row("a demo, no Java", "demo", 1, _java("none")),
    Row("a demo, a Java that is too old", "demo", 1, _java("11.0.2")),
    Row("a demo, a Java that is too new", "demo", 1, _java("25.0.1")),
    Row("a demo, a Java that does not run", "demo", 1, _java("broken")),
    Row("a stack, no Java", "stack up --data-dir {dir}/stack-1", 1, _java("none")),
    Row("a stack, a Java that is too old", "stack up --data-dir {dir}/stack-2", 1, _java("11.0.2")),
    Row("the same, in the background", "stack up --detach --data-dir {dir}/stack-3", 1, _java("11.0.2")),
    Row("an audit, a Java that is too new", "audit", 1, _java("25.0.1")),
    Row("a watch, no Java", WATCH, 6, _java("none")),
    Row("a forecast, no Java", "forecast", 1, _java("none")),
)
_OPERATORS = (
    Row("ZooKeeper refuses the connection", f"{PAUSE} --confirm {{cluster}} --zookeeper {NOWHERE}", 6),
    Row("other credentials than the cluster's", f"{PAUSE} {_confirmed('guarded')}", 4, DIGEST),
    Row("a cluster that was never created", f"{PAUSE} {_confirmed('none')}", 3),
    Row("no terminal, and nothing confirmed", PAUSE, 2),
    Row("another cluster's name confirmed", f"{PAUSE} --confirm other", 2),
    Row("no reason", "cluster resume --confirm {cluster}", 2),
    Row(
        "a topic of the service's own, paused",
        f"{PAUSE} --confirm {{cluster}} --target {{cluster}}.buffer",
        2,
    ),
    Row("a resume of what is not paused", f"cluster resume --reason r {_confirmed('bare')}", 3),
    Row("a switchover without a leader", f"cluster switchover --reason r {_confirmed('bare')}", 3),
    Row("a removal of a node that lives", "cluster remove first --reason r --confirm {cluster}", 5),
    Row("a removal of a node that is not there", f"cluster remove n9 --reason r {_confirmed('bare')}", 3),
    Row("no gap to accept", "cluster accept-gap --reason r --cluster {cluster}-bare", 5),
    Row("no other Kafka to accept", "cluster accept-kafka --reason r --cluster {cluster}-bare", 5),
    Row("no node to ask what is due", "due --cluster {cluster}-bare", 6),
    Row("a node that is half dead, asked what is due", "due --cluster {cluster}-half", 6),
    Row("settings of a cluster that was never created", "settings show --cluster {cluster}-none", 3),
    Row("settings changed, and nothing confirmed", f"{CHANGE} --max-delay 90d --execute", 2),
    Row("settings changed, and no reason", "settings change --max-delay 90d", 2),
    Row("settings changed to a retention that is too short", f"{CHANGE} --retention 1h", 2),
    Row("settings changed so that nothing is carried", f"{CHANGE} --retention max-delay", 2),
    Row("settings changed, some targets and any", f"{CHANGE} --target orders --any-target", 2),
    Row("settings changed, and no keys", f"{CHANGE} --max-delay 90d --cluster {{cluster}}-bare", 3),
    Row("an export, and no file", "pending export", 2),
    Row("an export, and no table that it knows", "pending export --to csv:{dir}/out.csv", 2),
    Row("an export, and nothing confirmed", "pending export {dir}/out.jsonl", 2),
    Row("an export into a folder that is not there", "pending export {dir}/nowhere/out.jsonl", 2),
    Row("an import of a file that is not there", "pending import {dir}/none.jsonl", 2),
    Row("an import of what is no export", "pending import {dir}/taken/ports.json", 2),
    Row("an import of what is no table", "pending import --from parquet:{dir}/taken/ports.json", 2),
    Row("an export, and no cluster", f"pending export {{dir}}/out.jsonl {_confirmed('none')}", 3),
    Row("nothing was exported, and it is to be shown", "pending show", 3),
    Row("nothing was exported, and it is to be forgotten", "pending forget --confirm {cluster}", 3),
    Row("a cold copy, and no node to copy", "node snapshot --to {dir}/copy --lane 1", 6),
    Row("a cold copy, and no such node", "node snapshot --to {dir}/copy --node n9", 3),
    Row("a cold copy to where something is", "node snapshot --to {dir}/damaged", 5),
    Row("a cold copy to what nobody knows", "node snapshot --to nowhere://copies/1", 2),
    Row("a restore from where no copy is", "node restore --from {dir}/damaged --data {dir}/restored", 3),
    Row("a restore to where something is", "node restore --from {dir}/copy --data {dir}/damaged", 5),
    Row("a move of a cluster into itself", f"{MOVE} --to-cluster {{cluster}}", 2),
    Row("a move into a cluster that is not there", f"{MOVE} --to-cluster {{cluster}}-none", 3),
    Row("a move, and a Kafka that is not there", f"{MOVE} --to-bootstrap {NOWHERE}", 6),
    Row("a forecast of no time", "forecast --days 0", 2),
    Row("a forecast of lanes that do nothing", "forecast --capacity 0", 2),
    Row("a forecast, and a folder that is not there", "forecast --html {dir}/nowhere/page.html", 2),
    Row("an unknown format", "due -o xml", 2),
)
_BULK = (
    Row("a kind of files that is not known", f"{LOAD} --from xml:rows", 2),
    Row("a job's name that cannot be one", f"{LOAD} --from csv:rows --job a/b", 2),
    Row("a column, and not what it is", f"{LOAD} --from csv:rows --column due", 2),
    Row("what all rows ask for, as a column", f"{LOAD} --from csv:rows --column op=x", 2),
    Row("a cluster that was never created", f"{LOAD} --from csv:rows --cluster {{cluster}}-none", 3),
    Row("a cluster without its topics", f"{LOAD} --from csv:rows --cluster {{cluster}}-bare", 3),
    Row("Kafka refuses the connection", f"{LOAD} --from csv:rows --bootstrap {NOWHERE}", 6),
    Row("ZooKeeper refuses the connection", f"{LOAD} --from csv:rows --zookeeper {NOWHERE}", 6),
    Row("a wrong password", f"{LOAD} --from csv:rows {WRONG_PASSWORD}", 4),
    Row("no Java", f"{LOAD} --from csv:rows", 1, _java("none")),
    Row("a Java that is too old", f"{LOAD}-2 --from csv:rows", 1, _java("11.0.2")),
)
_TABLES = (
    Row("no place for them", "tables export", 2),
    Row("no kind of files that it knows", "tables export --to csv:{dir}/tables", 2),
    Row("a cluster that was never created", f"{TABLES} --cluster {{cluster}}-none", 3),
    Row("Kafka refuses the connection", f"{TABLES} --bootstrap {NOWHERE}", 6),
    Row("a wrong password", f"{TABLES} {WRONG_PASSWORD}", 4),
    Row("no Java", TABLES, 1, _java("none")),
    Row("a folder that holds something else", "tables export --to parquet:{dir}/damaged", 5),
    Row("a folder that may not be written", "tables export --to parquet:{dir}/sealed/tables", 2),
)
_TERMINAL = (
    Row("standard output is full", STATUS, 1, shell="> /dev/full"),
    Row("the reader has gone", f"{STATUS} -o json", 1, shell="| head -0"),
    Row("standard output is closed", f"{STATUS} --cluster {{cluster}}-none", 3, shell=">&-"),
    Row("standard input is closed", "message schedule t - --cluster {cluster}-none", 3, shell="<&-"),
    Row("no home folder", f"{STATUS} --cluster {{cluster}}-none", 3, {"HOME": "{dir}/nowhere"}),
)

GROUPS: dict[str, tuple[Row, ...]] = {
    "Configuration": _CONFIGURATION,
    "Kafka": _KAFKA,
    "ZooKeeper": _ZOOKEEPER,
    "Cluster and topics": _TOPICS,
    "Operators' commands": _OPERATORS,
    "A node's data folder": _FOLDER,
    "Nodes among each other": _PEERS,
    "Local stack, demo, audit": _STACK,
    "Java": _JAVA,
    "Bulk loads": _BULK,
    "Tables": _TABLES,
    "Terminal": _TERMINAL,
}
