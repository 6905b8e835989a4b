"""What users build for themselves: a sorted set in Redis, a table in PostgreSQL, and a reader that polls."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import psutil
import psycopg
import redis

from bench.job import JobProcess, python_job
from bench.peers.job import Reading, Sending, said
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
        "more pending than its memory holds; more than one taking of a message after its reader has died;"
        " delivery to a topic: its reader is all there is"
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        _program("redis-server", [])
        self._server = _RedisServer("redis", folder, free_port())
        self._keys = itertools.count(1)

    @property
    def servers(self) -> Sequence[Server]:
        return [self._server]

    @property
    def delays(self) -> Server:
        return self._server

    def topic(self) -> str:
        return f"due-{next(self._keys)}"

    def load(self, topic: str, sending: Sending) -> JobProcess:
        return self._begin(topic, sending)

    def read(self, topic: str, reading: Reading) -> JobProcess:
        return self._begin(topic, reading)

    def disk_bytes(self) -> int:
        return disk_bytes_of(self._server.data)

    def _begin(self, topic: str, what: Sending | Reading) -> JobProcess:
        process = python_job("bench.peers.redis_job", said((self._server.address, topic, what)))
        process.wait_ready()
        return process


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
        if self.pid is None:
            return []
        try:
            children = psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        return [self.pid, *(child.pid for child in children)]

    def kill(self) -> None:
        """As the machine would end it: it and all its processes."""
        processes = [psutil.Process(pid) for pid in self.processes()]
        for process in processes[1:]:
            process.kill()
        super().kill()
        psutil.wait_procs(processes, timeout=10)

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
            "wal_compression=off", "fsync=on", "synchronous_commit=on",
        ]  # fmt: skip
        options = [option for one in set_to for option in ("-c", one)]
        return _as_postgres(["postgres", "-D", str(self.data), "-p", str(self.port), *options])


class Postgres(Polled):
    """A topic is a table."""

    name = "postgres"
    title = "PostgreSQL, a table that is polled (FOR UPDATE SKIP LOCKED)"
    settings = f"shared_buffers=1GB, max_wal_size=8GB, every commit is flushed; loads by COPY; {_POLLS}"
    lacks = "exactly once: a reader does its work before or after the commit; delivery to a topic"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        _program("postgres", _POSTGRES_FOLDERS)
        self._server = _PostgresServer("postgres", folder, free_port())
        self._tables = itertools.count(1)

    @property
    def servers(self) -> Sequence[Server]:
        return [self._server]

    @property
    def delays(self) -> Server:
        return self._server

    def processes(self) -> list[int]:
        return self._server.processes()

    def topic(self) -> str:
        table = f"due_{next(self._tables)}"
        with psycopg.connect(self._server.conninfo, autocommit=True) as connection:
            connection.execute(f"CREATE TABLE {table} (due_ms int8, key bytea, value bytea)".encode())
            connection.execute(f"CREATE INDEX ON {table} (due_ms)".encode())
        return table

    def load(self, topic: str, sending: Sending) -> JobProcess:
        return self._begin(topic, sending)

    def read(self, topic: str, reading: Reading) -> JobProcess:
        return self._begin(topic, reading)

    def disk_bytes(self) -> int:
        return disk_bytes_of(self._server.data)

    def _begin(self, topic: str, what: Sending | Reading) -> JobProcess:
        process = python_job("bench.peers.postgres_job", said((self._server.conninfo, topic, what)))
        process.wait_ready()
        return process


_POSTGRES_FOLDERS: Final = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)


def _program(name: str, folders: Sequence[Path]) -> str:
    """Where it is. Raises `StackError` if it is not installed."""
    found = next((str(folder / name) for folder in folders if (folder / name).exists()), shutil.which(name))
    if found is None:
        raise StackError(f"{name} is not installed: install it from the system's packages, or leave it out")
    return found


def _as_postgres(command: Sequence[str]) -> list[str]:
    """The command, by another user where this one is root: PostgreSQL does not run as root."""
    program = [_program(command[0], _POSTGRES_FOLDERS), *command[1:]]
    if not _is_root():
        return program
    return [_program("setpriv", []), "--reuid=postgres", "--regid=postgres", "--clear-groups", "--", *program]


def _is_root() -> bool:
    return os.geteuid() == 0
