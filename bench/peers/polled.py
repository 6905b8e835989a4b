"""What users build for themselves: a sorted set in Redis, a table in PostgreSQL, and a reader that polls."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil
import psycopg
import redis

from bench.job import JobProcess
from bench.peers.job import Reading, Sending, python_begun
from bench.peers.peer import Polled, disk_bytes_of
from ops.stack.errors import StackError
from ops.stack.ports import HOST, free_port
from ops.stack.server import Server

_POLLS: Final = "polled every 5 ms while nothing is due, 1,000 messages at a time"


class _RedisServer(Server):
    def serves(self) -> bool:
        try:
            with redis.Redis(host=HOST, port=self.port, socket_timeout=2) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    def _prepare(self) -> None:
        """It is told all on its command line."""

    def _command(self) -> list[str]:
        return [
            _program("redis-server", []), "--bind", HOST, "--port", str(self.port), "--dir", str(self.data),
            "--save", "", "--appendonly", "yes", "--appendfsync", "everysec",
        ]  # fmt: skip


class Redis(Polled):
    """A topic is a sorted set."""

    name = "redis"
    title = "Redis, a sorted set that is polled"
    settings = f"appendonly, fsync every second; {_POLLS}"
    lacks = (
        "more pending than its memory holds; delivery to a topic: its reader is all there is; what the script"
        " has taken for a reader that dies then is lost"
    )

    @classmethod
    def version(cls) -> str:
        return _said(_program("redis-server", []), "--version")

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._server = _RedisServer("redis", folder, free_port())
        self._keys = itertools.count(1)

    @property
    def holders(self) -> Sequence[Server]:
        return [self._server]

    def topic(self) -> str:
        return f"due-{next(self._keys)}"

    def disk_bytes(self) -> int:
        return disk_bytes_of(self._server.data)

    def _begin(self, topic: str, what: Sending | Reading) -> JobProcess:
        return python_begun("bench.peers.redis_job", (self._server.address, topic, what))


class _PostgresServer(Server):
    @property
    def conninfo(self) -> str:
        return f"host={HOST} port={self.port} user=postgres dbname=postgres connect_timeout=2"

    def serves(self) -> bool:
        try:
            psycopg.connect(self.conninfo).close()
        except psycopg.Error:
            return False
        return True

    def processes(self) -> list[int]:
        """It, and those that it has made: one for each connection."""
        pid = self.pid
        return [] if pid is None else [pid, *(child.pid for child in _children(pid))]

    def kill(self) -> None:
        """It first, or it would mend what has happened to its processes; then these."""
        children = [] if (pid := self.pid) is None else _children(pid)
        super().kill()
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(children, timeout=10)

    def _prepare(self) -> None:
        if any(self.data.iterdir()):
            return
        if _is_root():
            shutil.chown(self.data, "postgres", "postgres")
        self.data.chmod(0o700)
        command = ["initdb", "--pgdata", str(self.data), "--username=postgres", "--auth=trust", "--no-sync"]
        done = subprocess.run(_as_postgres(command), capture_output=True, text=True, check=False)
        if done.returncode:
            raise StackError(f"initdb: {done.stderr.strip()[-300:]}")

    def _command(self) -> list[str]:
        set_to = [
            f"listen_addresses={HOST}", "unix_socket_directories=", "shared_buffers=1GB", "max_wal_size=8GB",
            "wal_compression=off", "fsync=off", "synchronous_commit=on",
        ]  # fmt: skip
        options = [option for one in set_to for option in ("-c", one)]
        return _as_postgres(["postgres", "-D", str(self.data), "-p", str(self.port), *options])


class Postgres(Polled):
    """A topic is a table."""

    name = "postgres"
    title = "PostgreSQL, a table that is polled (FOR UPDATE SKIP LOCKED)"
    settings = (
        f"shared_buffers=1GB, max_wal_size=8GB, flushed by the system (fsync=off); loads by COPY; {_POLLS}"
    )
    lacks = "delivery to a topic; exactly once, but for work in the same database"

    @classmethod
    def version(cls) -> str:
        return _said(_program("postgres", _POSTGRES_FOLDERS), "--version")

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._server = _PostgresServer("postgres", folder, free_port())
        self._tables = itertools.count(1)

    @property
    def holders(self) -> Sequence[Server]:
        return [self._server]

    def processes(self) -> list[int]:
        return self._server.processes()

    def topic(self) -> str:
        table = f"due_{next(self._tables)}"
        with psycopg.connect(self._server.conninfo, autocommit=True) as connection:
            connection.execute(
                f"CREATE TABLE {table} (due_ms int8, key bytea, trace bytea, value bytea)".encode()
            )
            connection.execute(f"CREATE INDEX ON {table} (due_ms)".encode())
        return table

    def disk_bytes(self) -> int:
        return disk_bytes_of(self._server.data)

    def _begin(self, topic: str, what: Sending | Reading) -> JobProcess:
        return python_begun("bench.peers.postgres_job", (self._server.conninfo, topic, what))


def _children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


_POSTGRES_FOLDERS: Final = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)


def _program(name: str, folders: Sequence[Path]) -> str:
    """Where it is. Raises `StackError` if it is not installed."""
    found = next((str(folder / name) for folder in folders if (folder / name).exists()), shutil.which(name))
    if found is None:
        raise StackError(f"{name} is not installed: install it from the system's packages, or leave it out")
    return found


def _said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _as_postgres(command: Sequence[str]) -> list[str]:
    """The command, by another user where this one is root: PostgreSQL does not run as root."""
    program = [_program(command[0], _POSTGRES_FOLDERS), *command[1:]]
    if not _is_root():
        return program
    return [_program("setpriv", []), "--reuid=postgres", "--regid=postgres", "--clear-groups", "--", *program]


def _is_root() -> bool:
    return os.geteuid() == 0
