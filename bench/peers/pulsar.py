"""Pulsar: a broker, a bookie and their metadata in one process, as its standalone mode has them."""

from __future__ import annotations

import itertools
import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.job import JobProcess
from bench.peers.java import HOLDER, JavaClient, JavaServer, jars_of
from bench.peers.job import Reading, Sending
from bench.peers.peer import Peer, disk_bytes_of
from ops.stack.ports import HOST, free_port
from ops.stack.server import Server

_PARTITIONS: Final = 4
_ANSWER_TIMEOUT_S: Final = 30
_CONFIG: Final = """\
clusterName=standalone
metadataStoreUrl=
configurationMetadataStoreUrl=
bindAddress={host}
advertisedAddress={host}
brokerServicePort={port}
webServicePort={web_port}
managedLedgerDefaultEnsembleSize=1
managedLedgerDefaultWriteQuorum=1
managedLedgerDefaultAckQuorum=1
journalSyncData=false
delayedDeliveryEnabled=true
delayedDeliveryTickTimeMillis=100
isDelayedDeliveryDeliverAtTimeStrict=true
maxUnackedMessagesPerConsumer=0
maxUnackedMessagesPerSubscription=0
maxUnackedMessagesPerBroker=0
dispatcherMaxReadBatchSize=1000
loadBalancerEnabled=false
allowAutoTopicCreation=false
brokerDeleteInactiveTopicsEnabled=false
"""
_OPENED: Final = (
    "java.base/java.lang", "java.base/java.nio", "java.base/java.util.zip", "java.base/jdk.internal.loader",
    "java.base/jdk.internal.misc", "java.base/jdk.internal.platform", "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)  # fmt: skip
_JVM: Final = (
    "-Dio.netty.tryReflectionSetAccessible=true",
    *(f"--add-opens={module}=ALL-UNNAMED" for module in _OPENED),
)


class _Standalone(JavaServer):
    def serves(self) -> bool:
        return super().serves() and self.answers("GET", "/admin/v2/namespaces/public/default")

    def answers(self, method: str, path: str, body: object = None) -> bool:
        """Whether it does what its administration is asked for."""
        content = None if body is None else json.dumps(body).encode()
        url = f"http://{HOST}:{self.port}{path}"
        request = urllib.request.Request(url, content, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_TIMEOUT_S):  # noqa: S310
                return True
        except (OSError, urllib.error.HTTPError):
            return False


class Pulsar(Peer):
    """Its one process is what is killed and held."""

    name = "pulsar"
    title = "Pulsar 4.2.4, standalone, deliverAt"
    needs_reader = True
    settings = (
        "delayed delivery strict, by ticks of 100 ms, tracked in memory; 4 partitions, a journal that the"
        f" system flushes, no limit of what is not acknowledged; {' '.join(HOLDER)}"
    )
    lacks = (
        "exclusive subscriptions with delays, and so order; batches of delayed messages; exactly once to a"
        " consumer without transactions; cancelling; moving; a list of what waits"
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        jars = jars_of("pulsar")
        port, web_port = free_port(), free_port()
        config = folder / "standalone.conf"
        config.write_text(_CONFIG.format(host=HOST, port=port, web_port=web_port))
        self._address = f"{HOST}:{port}"
        self._server = _Standalone(
            "pulsar", folder, web_port, jars,
            [*HOLDER, *_JVM, "org.apache.pulsar.PulsarStandaloneStarter", "--config", str(config),
             "-nfw", "-nss", "--bookkeeper-port", str(free_port()),
             "--metadata-dir", str(folder / "pulsar" / "metadata"),
             "--bookkeeper-dir", str(folder / "pulsar" / "bookkeeper")],
        )  # fmt: skip
        self._client = JavaClient("Pulsar", folder, jars, _JVM)
        self._topics = itertools.count(1)

    @property
    def holders(self) -> Sequence[Server]:
        return [self._server]

    def topic(self) -> str:
        name = f"target-{next(self._topics)}"
        path = f"/admin/v2/persistent/public/default/{name}"
        made = self._server.answers("PUT", f"{path}/partitions", _PARTITIONS)
        # What is sent before there is a subscription is nobody's.
        if not (made and self._server.answers("PUT", f"{path}/subscription/bench")):
            raise TimeoutError(f"Pulsar does not make the topic {name}")
        return name

    def _begin(self, topic: str, what: Sending | Reading) -> JobProcess:
        return self._client.begin((self._address, topic, what))

    def disk_bytes(self) -> int:
        return disk_bytes_of(self._server.data)
