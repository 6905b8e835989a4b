"""RocketMQ: a name server and a broker with timer messages."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.job import JobProcess
from bench.peers.java import HOLDER, JavaClient, JavaServer, jars_of
from bench.peers.job import Reading, Sending
from bench.peers.peer import Peer, disk_bytes_of
from ops.stack.ports import HOST, free_port
from ops.stack.server import Server

_NAMES: Final = """\
bindAddress={host}
listenPort={port}
"""
_BROKER: Final = """\
bindAddress={host}
brokerClusterName=peers
brokerName=peer
brokerId=0
brokerIP1={host}
listenPort={port}
haListenPort={ha_port}
namesrvAddr={names}
storePathRootDir={store}
storePathCommitLog={store}/commitlog
brokerRole=ASYNC_MASTER
flushDiskType=ASYNC_FLUSH
waitTimeMillsInSendQueue=30000
osPageCacheBusyTimeOutMills=30000
timerPrecisionMs=100
maxTransferCountOnMessageInMemory=1000
maxTransferBytesOnMessageInMemory=1048576
"""


class RocketMq(Peer):
    """The broker is what is killed and held."""

    name = "rocketmq"
    title = "RocketMQ 5.5.0, timer messages"
    settings = (
        "timer wheel of 100 ms, flush by the system, 4 queues, 1,000 messages a pull, none is refused because"
        f" it had to wait; the broker {' '.join(HOLDER)}"
    )
    lacks = (
        "due times to the millisecond (its wheel has slots, of 1,000 ms by default); exactly once; a list of"
        " what waits; moving; cancelling, if that is not switched on"
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        jars = jars_of("rocketmq")
        names_port, broker_port, ha_port = free_port(), free_port(), free_port()
        names_file, broker_file = folder / "names.conf", folder / "broker.conf"
        self._address = f"{HOST}:{names_port}"
        names, broker = server_files(folder, names_port, broker_port, ha_port)
        names_file.write_text(names)
        broker_file.write_text(broker)
        home = f"-Drocketmq.home.dir={folder}"
        main = "org.apache.rocketmq"
        self._names = JavaServer(
            "names", folder, names_port, jars,
            ["-Xmx256m", home, f"{main}.namesrv.NamesrvStartup", "-c", str(names_file)],
        )  # fmt: skip
        self._broker = JavaServer(
            "broker", folder, broker_port, jars,
            [*HOLDER, home, "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
             "--add-opens=java.base/java.nio=ALL-UNNAMED",
             f"{main}.broker.BrokerStartup", "-c", str(broker_file)],
        )  # fmt: skip
        self._client = JavaClient("RocketMq", folder, jars)
        self._topics = itertools.count(1)

    @property
    def servers(self) -> Sequence[Server]:
        return [self._names, self._broker]

    @property
    def holders(self) -> Sequence[Server]:
        return [self._broker]

    def topic(self) -> str:
        name = f"target-{next(self._topics)}"
        with self._client.run([f"address={self._address}", f"topic={name}", "do=topic"]) as making:
            making.result()
        return name

    def _begin(self, topic: str, what: Sending | Reading) -> JobProcess:
        return self._client.begin((self._address, topic, what))

    def disk_bytes(self) -> int:
        return disk_bytes_of(self._broker.data)


def server_files(folder: Path, names_port: int, broker_port: int, ha_port: int) -> tuple[str, str]:
    """What the name server and the broker are told: among other things to listen on the loopback alone. The
    broker's port for its replicas heeds no address [seen with 5.5.0]: it listens on all.
    """
    names = _NAMES.format(host=HOST, port=names_port)
    broker = _BROKER.format(
        host=HOST,
        port=broker_port,
        ha_port=ha_port,
        names=f"{HOST}:{names_port}",
        store=folder / "broker" / "store",
    )
    return names, broker
