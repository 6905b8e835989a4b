"""A session through outages, with credentials, and over TLS; on a real ZooKeeper."""

from __future__ import annotations

import queue
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.exceptions import NoAuthError

from election.errors import Forbidden, Unavailable, ZnodeChanged, ZnodeExists, ZnodeMissing
from election.session import Session, SessionState
from ops.stack import LocalStack
from ops.stack.ports import free_port
from ops.stack.zookeeper import ZooKeeperServer
from tests.integration.election_lane import PATIENCE_S, eventually, operator, paused
from tests.stacks import Stack
from tests.support.certificates import PASSWORD, Certificate, self_signed

TIMEOUT_S = 1.5
AUTH = [("digest", "delayline:secret")]
_TLS_CONFIG = """\
secureClientPort={port}
secureClientPortAddress=127.0.0.1
ssl.keyStore.location={store}
ssl.keyStore.password={password}
ssl.trustStore.location={trusted}
ssl.trustStore.password={password}
ssl.clientAuth=none
"""


@contextmanager
def connected(hosts: str, timeout_s: float = TIMEOUT_S, **options: Any) -> Iterator[Session]:
    session = Session({"hosts": hosts, **options}, timeout_s)
    session.start()
    try:
        session.wait_connected(PATIENCE_S)
        yield session
    finally:
        session.stop()


@pytest.fixture
def session(stack: Stack) -> Iterator[Session]:
    with connected(stack.zookeeper, timeout_s=10) as it:
        yield it


@pytest.fixture
def root(cluster_name: str) -> str:
    return f"/session-tests/{cluster_name}"


# -- calls


def test_a_znode_is_made_with_those_above_it_and_read_back(session: Session, root: str) -> None:
    assert session.create(f"{root}/a/b", b"data") == f"{root}/a/b"
    data, stat = session.read(f"{root}/a/b")
    assert (data, stat.version, stat.owner) == (b"data", 0, None)
    assert session.children(f"{root}/a") == ["b"]


def test_an_ephemeral_znode_names_its_session_as_owner(session: Session, root: str) -> None:
    session.create(f"{root}/mine", b"", ephemeral=True)
    stat = session.exists(f"{root}/mine")
    assert stat is not None
    assert stat.owner == session.state.session_id


def test_a_write_meant_for_another_version_is_refused(session: Session, root: str) -> None:
    session.create(root, b"0")
    assert session.write(root, b"1", 0).version == 1
    with pytest.raises(ZnodeChanged, match=root):
        session.write(root, b"2", 0)
    assert session.read(root)[0] == b"1"


def test_what_is_not_there_is_named(session: Session, root: str) -> None:
    assert session.exists(root) is None
    assert session.delete(root) is False
    for call in (session.read, session.children):
        with pytest.raises(ZnodeMissing, match=root):
            call(root)
    with pytest.raises(ZnodeMissing, match=root):
        session.write(root, b"", -1)


def test_what_is_there_already_is_named(session: Session, root: str) -> None:
    session.create(root, b"")
    with pytest.raises(ZnodeExists, match=root):
        session.create(root, b"")


def test_znodes_that_are_read_together_tell_of_every_change(session: Session, root: str) -> None:
    there, missing = f"{root}/there", f"{root}/missing"
    session.create(there, b"data")
    changed: queue.SimpleQueue[object] = queue.SimpleQueue()
    for change in (
        lambda: session.create(missing, b"made"),
        lambda: session.write(there, b"written", -1),
        lambda: session.delete(missing),
    ):
        session.read_all([there, missing], watch=changed.put)
        change()
        changed.get(timeout=PATIENCE_S)
    assert session.read_all([there, missing], watch=changed.put) == [b"written", None]


def test_a_watch_tells_of_a_deletion(session: Session, root: str) -> None:
    told: list[Any] = []
    session.create(root, b"")
    session.exists(root, watch=told.append)
    session.delete(root)
    eventually(lambda: len(told) == 1)


def test_a_watch_set_many_times_is_called_once(session: Session, root: str) -> None:
    told: list[Any] = []
    session.create(root, b"")
    watch = told.append
    for _ in range(5):
        session.exists(root, watch=watch)
    session.delete(root)
    session.sync(root)
    eventually(lambda: len(told) >= 1)
    assert len(told) == 1


# -- without an answer


def test_a_call_without_a_connection_is_refused_at_once(private_stack: Callable[..., LocalStack]) -> None:
    zookeeper = private_stack(kafka=False)
    with connected(zookeeper.zookeeper, timeout_s=10) as session:
        zookeeper.zk.stop()
        eventually(lambda: session.state.status == "suspended")
        begun_s = time.monotonic()
        with pytest.raises(Unavailable, match=r"the connection to ZooKeeper .* is suspended"):
            session.children("/")
        assert time.monotonic() - begun_s < session.timeout_s, "the default deadline of a call"


def test_a_call_waits_no_longer_than_its_deadline(private_stack: Callable[..., LocalStack]) -> None:
    zookeeper = private_stack(kafka=False)
    with connected(zookeeper.zookeeper, timeout_s=10) as session, paused(zookeeper.zk.pid):
        begun_s = time.monotonic()
        with pytest.raises(Unavailable, match="did not answer"):
            session.children("/", timeout_s=0.3)
        assert 0.3 <= time.monotonic() - begun_s < session.timeout_s


def test_where_nobody_listens_the_start_does_not_block_and_the_wait_says_so() -> None:
    session = Session({"hosts": f"127.0.0.1:{free_port()}"}, TIMEOUT_S)
    session.start()
    said = re.compile(r"no connection to ZooKeeper at 127\.0\.0\.1:\d+ within .*refused")
    eventually(lambda: said.search(_refusal(session)) is not None)
    session.stop()


def test_a_session_outlives_an_outage_longer_than_itself(private_stack: Callable[..., LocalStack]) -> None:
    zookeeper = private_stack(kafka=False)
    with connected(zookeeper.zookeeper) as session:
        before = session.state
        session.create("/mine", b"", ephemeral=True)
        zookeeper.zk.stop()
        with pytest.raises(Unavailable):
            session.wait_connected(2 * TIMEOUT_S)
        zookeeper.zk.start()
        assert session.wait_connected(PATIENCE_S).session_id == before.session_id
        assert session.exists("/mine") is not None


def test_a_lost_session_is_told_and_replaced(private_stack: Callable[..., LocalStack]) -> None:
    zookeeper = private_stack(kafka=False)
    told: list[SessionState] = []
    with connected(zookeeper.zookeeper) as session:
        session.subscribe(told.append)
        before = session.state
        zookeeper.zk.stop()
        for file in (zookeeper.zk.data / "version-2").iterdir():
            file.unlink()
        zookeeper.zk.start()
        eventually(lambda: [state.status for state in told[-3:]] == ["suspended", "lost", "connected"])
        assert session.state.session_id != before.session_id
        assert session.children("/") == ["zookeeper"]


def test_the_end_of_a_session_is_the_end_of_its_ephemeral_znodes(
    stack: Stack, session: Session, root: str
) -> None:
    with connected(stack.zookeeper, timeout_s=30) as other:
        other.create(root, b"", ephemeral=True)
        assert session.exists(root) is not None
    assert session.exists(root) is None
    with pytest.raises(Unavailable, match="is closed"):
        other.children("/")


# -- credentials and TLS


def test_with_credentials_nobody_else_may_delete_a_znode(stack: Stack, root: str) -> None:
    with connected(stack.zookeeper, auth_data=AUTH) as session, operator(stack.zookeeper) as stranger:
        session.create(f"{root}/mine", b"", ephemeral=True)
        with pytest.raises(NoAuthError):
            stranger.delete(f"{root}/mine")
        with connected(stack.zookeeper, auth_data=AUTH) as fellow:
            assert fellow.delete(f"{root}/mine")


def test_missing_credentials_are_named(stack: Stack, session: Session, root: str) -> None:
    with connected(stack.zookeeper, auth_data=AUTH) as owner:
        owner.create(root, b"")
        with pytest.raises(Forbidden, match="check zookeeper_auth"):
            session.read(root)


@pytest.fixture(scope="module")
def tls_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, str]]:
    """A ZooKeeper with a self-signed certificate for 127.0.0.1: its port, and the file to trust."""
    folder = tmp_path_factory.mktemp("tls")
    certificate = self_signed(folder)
    server = _TlsZooKeeper(folder, certificate)
    server.start()
    yield server.secure_port, str(certificate.ca)
    server.kill()  # its network library takes ten seconds to say goodbye


def test_a_server_whose_certificate_is_for_its_name_is_talked_to(tls_server: tuple[int, str]) -> None:
    port, ca = tls_server
    with connected(f"127.0.0.1:{port}", use_ssl=True, ca=ca) as session:
        assert session.children("/") == ["zookeeper"]


def test_a_server_with_a_certificate_for_another_name_is_not_talked_to(tls_server: tuple[int, str]) -> None:
    port, ca = tls_server
    _refused(f"localhost:{port}", "certificate is not valid for 'localhost'", ca=ca)


def test_a_server_with_a_certificate_that_is_not_trusted_is_not_talked_to(
    tls_server: tuple[int, str],
) -> None:
    _refused(f"127.0.0.1:{tls_server[0]}", "self-signed certificate")


def _refused(hosts: str, why: str, **options: Any) -> None:
    session = Session({"hosts": hosts, "use_ssl": True, **options}, TIMEOUT_S)
    session.start()
    try:
        eventually(lambda: why in _refusal(session))
    finally:
        session.stop()


def _refusal(session: Session) -> str:
    with pytest.raises(Unavailable) as refused:
        session.wait_connected(0.2)
    return str(refused.value)


class _TlsZooKeeper(ZooKeeperServer):
    def __init__(self, folder: Path, certificate: Certificate) -> None:
        super().__init__(folder, free_port(), tick_ms=200)
        self.secure_port = free_port()
        self._certificate = certificate

    def _prepare(self) -> None:
        super()._prepare()
        with self._config.open("a") as config:
            config.write(
                _TLS_CONFIG.format(
                    port=self.secure_port,
                    store=self._certificate.store,
                    trusted=self._certificate.trusted(),
                    password=PASSWORD,
                )
            )

    def _command(self) -> list[str]:
        java, *rest = super()._command()
        return [
            java,
            "-Dzookeeper.serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            *rest,
        ]
