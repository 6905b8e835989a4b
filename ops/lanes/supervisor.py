"""The supervisor of several lanes' processes: starts each again that ends, hears and answers for all.

It holds no state and decides nothing about delivery: what it does not do, systemd would do for a unit of each
lane. Its signs to the service manager say that it runs itself, not that all lanes' processes do: one of these
that hangs it ends on its own, and the others live.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import structlog
from filelock import FileLock, Timeout

from election.peer import Peers
from node.config import NodeConfig
from node.health.systemd import ServiceManager
from node.http.server import MOST_CONNECTIONS, HttpServer
from node.kafka.topics import admin_client
from node.snapshot.peer import AT_ONCE
from ops.errors import ConfigError, ConflictError
from ops.lanes.choice import each_of
from ops.lanes.front import front
from ops.lanes.process import KILLED_S, LaneProcess
from ops.lanes.signs import expect_heard

log = structlog.get_logger("delayline.lanes")

LISTEN_S: Final = 0.2
END_S: Final = 50.0
"""For so long the lanes' processes may take to end: less than systemd's unit gives them all."""
LOCK: Final = "lanes.lock"


def supervise(config: NodeConfig, *, debug: bool) -> int:
    """Runs a process for each of the `lanes` until SIGTERM or SIGINT. Returns the exit code: 0, or 1 if one
    did not end in good order, or nobody answers over HTTP any more. Before anything is started, raises
    ConfigError, ConflictError, KafkaException, PortTaken and HttpPortTaken.
    """
    configs = each_of(config)
    most_connections = MOST_CONNECTIONS + AT_ONCE * len(configs)  # a new node takes its view over several
    with alone_in(config.data_dir), tempfile.TemporaryDirectory(prefix="delayline-") as folder:
        expect_heard(Path(folder), str(configs[-1].lane))
        http = HttpServer(config.http_host, config.http_port, most_connections=most_connections)
        _expect_sound(configs)
        command = _own_command(debug=debug)
        lanes = [LaneProcess(one, command, Path(folder)) for one in configs]
        for lane in lanes:
            lane.publish(http.port)
        return Supervisor(lanes, http).run()


@contextmanager
def alone_in(data_dir: Path) -> Iterator[None]:
    """Raises ConflictError while another supervisor has the folder, ConfigError if it cannot be used."""
    lock = FileLock(data_dir / LOCK, timeout=0, mode=0o600)
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise ConflictError(
            f"another 'delayline node run --lanes' has {data_dir}: give all lanes to one, or this one another"
            " data_dir"
        ) from None
    except OSError as error:
        raise ConfigError(
            f"data_dir: {data_dir} cannot be used: {error.strerror or error}; set another, or mend that"
        ) from error
    try:
        yield
    finally:
        lock.release()


def _expect_sound(configs: Sequence[NodeConfig]) -> None:
    """What a node would end with at once is said here, and not by each process every second."""
    admin_client(configs[0].client_config())  # librdkafka knows its properties, and reads its certificates
    for one in configs:
        Peers(one.node_id, one.peer_host, one.peer_port, one.peer_silence_ms / 1000).stop()


def _own_command(*, debug: bool) -> list[str]:
    """This program, as it was started itself."""
    program = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]
    return [sys.executable, *program, *(["--debug"] if debug else []), "node", "run"]


class Supervisor:
    """Of these processes, and of the server that answers for all of them. For the main thread."""

    def __init__(self, lanes: Sequence[LaneProcess], http: HttpServer) -> None:
        self._lanes = lanes
        self._http = http

    def run(self) -> int:
        """Until it is told to end; or until its server has ended, when 1 is returned: whoever has started it
        starts it again.
        """
        # No event, and with a timeout: see `node.node.Node.run`.
        told: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _: told.put(number))
        manager = ServiceManager(os.environ)
        log.info("supervisor-started", http_port=self._http.port)
        self._http.start(front(self._lanes))
        is_told = False
        try:
            while not is_told and self._http.runs:
                self._look(manager)
                with suppress(queue.Empty):
                    told.get(timeout=LISTEN_S)
                    is_told = True
            if not is_told:
                log.critical("supervisor-failed", detail="nobody answers at the port of all lanes any more")
            manager.stopping()
            self._end()
        finally:
            well = self._close()
            self._http.stop()
            self._http.join()
        log.info("supervisor-stopped")
        return 0 if is_told and well else 1

    def _look(self, manager: ServiceManager) -> None:
        for lane in self._lanes:
            lane.look(time.monotonic())
        ready = all(lane.condition.ready for lane in self._lanes)
        manager.tell(ready=ready, words=words(self._lanes))

    def _end(self) -> None:
        """All at once; who does not end is not waited for beyond a time."""
        for lane in self._lanes:
            lane.terminate()
        until_s = time.monotonic() + END_S
        while not all(lane.has_ended() for lane in self._lanes) and time.monotonic() < until_s:
            time.sleep(LISTEN_S)

    def _close(self) -> bool:
        """Whether all have ended well. One that nothing ends holds up the others and this process once."""
        for lane in self._lanes:
            lane.kill()
        until_s = time.monotonic() + KILLED_S
        well = [lane.close(max(0.0, until_s - time.monotonic())) for lane in self._lanes]
        return all(well)


def words(lanes: Sequence[LaneProcess]) -> str:
    """How the lanes stand, for the service manager: those that say the same together."""
    saying: dict[str, list[str]] = defaultdict(list)
    for lane in lanes:
        saying[lane.condition.words].append(str(lane.lane))
    return "; ".join(f"lane {', '.join(those)}: {said}" for said, those in saying.items())
