"""ZooKeeper's servers one by one, by their four-letter words; and what they make of the nodes' sessions."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from node.config import ConnectionConfig
from ops.doctor.finding import Finding, note, ok, problem

TIMEOUT_S: Final = 2.0
MOST_BYTES: Final = 65_536
_PORT: Final = 2181
_ALLOW: Final = "to see them, add the word to 4lw.commands.whitelist in zoo.cfg"


@dataclass(frozen=True, slots=True)
class ZooKeeperStatus:
    """One server. `trouble`: why there is no answer; `srvr` and `conf`: what it says, or nothing."""

    address: str
    trouble: str | None = None
    srvr: Mapping[str, str] = field(default_factory=dict)
    conf: Mapping[str, str] = field(default_factory=dict)


def examine_keepers(config: ConnectionConfig, sessions: Mapping[str, float]) -> list[Finding]:
    """`sessions`: the session timeout that each node asks for, in seconds."""
    addresses = config.zookeeper.partition("/")[0].split(",")
    if config.zookeeper_tls is not None:
        return [note("zookeeper", "its servers are not asked one by one over TLS")]
    with ThreadPoolExecutor(len(addresses)) as askers:
        keepers = list(askers.map(_ask, (address.strip() for address in addresses)))
    return judge(keepers, sessions)


def judge(keepers: Sequence[ZooKeeperStatus], sessions: Mapping[str, float]) -> list[Finding]:
    """What the servers' answers mean."""
    findings = [_reached(keeper) for keeper in keepers]
    if len(keepers) < 3:
        few = "one server is given" if len(keepers) == 1 else "two servers are given"
        findings.append(
            note("zookeeper", f"{few}: no election while it is away", "run three, and name them all")
        )
    for keeper in keepers:
        findings += [] if keeper.trouble else _sessions(keeper, sessions)
    return findings


def _reached(keeper: ZooKeeperStatus) -> Finding:
    if keeper.trouble is not None:
        mend = "start that server, or correct its address (zookeeper)"
        return problem("zookeeper", f"{keeper.address} does not answer: {keeper.trouble}", mend)
    if "Mode" not in keeper.srvr:
        found = f"{keeper.address} is up; its version and state are not known: it does not allow srvr"
        return note("zookeeper", found, _ALLOW)
    version = keeper.srvr.get("Zookeeper version", "?").partition("-")[0]
    return ok("zookeeper", f"{keeper.address} is up: version {version}, {keeper.srvr['Mode']}")


def _sessions(keeper: ZooKeeperStatus, sessions: Mapping[str, float]) -> list[Finding]:
    """A session that a server does not grant as asked for makes failovers slower, or sessions end sooner."""
    if "minSessionTimeout" not in keeper.conf:
        found = f"the bounds of {keeper.address} are not known: it does not allow conf"
        return [note("sessions", found, _ALLOW)]
    least, most = (int(keeper.conf.get(name, 0)) for name in ("minSessionTimeout", "maxSessionTimeout"))
    bounds = f"{keeper.address} grants sessions of {least} to {most} ms"
    outside = [node for node, asked_s in sessions.items() if not least <= asked_s * 1000 <= most]
    if outside:
        node = outside[0]
        found = f"{bounds}; {', '.join(outside)} asks for {sessions[node] * 1000:.0f}"
        mend = "set session_timeout_s within that, or min/maxSessionTimeout in zoo.cfg"
        return [problem("sessions", found, mend)]
    return [ok("sessions", f"{bounds}, and every node asks for one of those")] if sessions else []


def _ask(address: str) -> ZooKeeperStatus:
    try:
        # Whoever answers is up: that a word is not allowed is an answer, too.
        srvr, conf = _pairs(_say(address, b"srvr"), ":"), _pairs(_say(address, b"conf"), "=")
    except OSError as error:
        return ZooKeeperStatus(address, error.strerror or str(error) or type(error).__name__)
    return ZooKeeperStatus(address, None, srvr, conf)


def _say(address: str, word: bytes) -> str:
    host, _, port = address.rpartition(":")
    where = (host.strip("[]"), int(port)) if host else (address, _PORT)
    with socket.create_connection(where, TIMEOUT_S) as connection:
        connection.settimeout(TIMEOUT_S)
        connection.sendall(word)
        said = b""
        while (more := connection.recv(4096)) and len(said) < MOST_BYTES:
            said += more
    return said.decode("utf-8", "replace")


def _pairs(text: str, between: str) -> dict[str, str]:
    found = (line.partition(between) for line in text.splitlines())
    return {name.strip(): value.strip() for name, separator, value in found if separator}
