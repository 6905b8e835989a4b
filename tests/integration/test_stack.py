from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient

from ops.stack import LocalStack, StackError
from tests.stacks import Stack
from tests.support.waiting import PATIENCE_S

# https://kafka.apache.org/protocol#protocol_api_keys
_FIND_COORDINATOR, _INIT_PRODUCER_ID = 10, 22

# Starts a ZooKeeper, tells its process id and waits.
OWNER = """
import signal, sys, threading
from pathlib import Path
from ops.stack import LocalStack

# What runs in the background of a shell may have been started with these ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
stack = LocalStack(Path(sys.argv[1]), kafka=False)
stack.start()
print(stack.zk.pid, flush=True)
threading.Event().wait()
"""


def test_a_committed_transaction_is_read_from_the_broker(stack: Stack) -> None:
    topic = _topic(stack.bootstrap)
    _send_in_a_transaction(stack.bootstrap, topic, b"hello")
    assert _first_value(stack.bootstrap, topic) == b"hello"


def test_the_first_transaction_on_a_ready_broker_does_not_wait_for_a_coordinator(stack: Stack) -> None:
    """Its answers themselves say so: a client would ask again until it is there."""
    name = uuid.uuid4().hex.encode()
    found = _answer(stack.bootstrap, _FIND_COORDINATOR, 1, _string(name) + struct.pack(">b", 1))
    error, said_bytes = struct.unpack_from(">hh", found, 4)  # behind the time it was throttled
    assert error == 0, "there is a coordinator"
    at = 8 + max(0, said_bytes) + 4  # behind what it says of the error, and the broker's number
    (host_bytes,) = struct.unpack_from(">h", found, at)
    host, port = struct.unpack_from(f">{host_bytes}si", found, at + 2)
    initialised = _answer(
        f"{host.decode()}:{port}", _INIT_PRODUCER_ID, 0, _string(name) + struct.pack(">i", 60_000)
    )
    assert struct.unpack_from(">h", initialised, 4) == (0,), "it serves"


def test_topics_are_never_made_by_accident(stack: Stack) -> None:
    admin = AdminClient({"bootstrap.servers": stack.bootstrap})
    name = f"absent-{uuid.uuid4().hex}"
    admin.list_topics(name, timeout=10)
    assert name not in admin.list_topics(timeout=10).topics


def test_data_and_addresses_outlive_a_killed_broker_and_a_stopped_zookeeper(
    private_stack: Callable[..., LocalStack],
) -> None:
    stack = private_stack()
    before = (stack.bootstrap, stack.zookeeper)
    topic = _topic(stack.bootstrap)
    _send_in_a_transaction(stack.bootstrap, topic, b"kept")
    _set_znode(stack.zookeeper, "/kept", b"kept")
    stack.kafka.kill()
    stack.zk.stop()
    stack.zk.start()
    stack.kafka.start()
    assert (stack.bootstrap, stack.zookeeper) == before
    assert _first_value(stack.bootstrap, topic) == b"kept"
    assert _get_znode(stack.zookeeper, "/kept") == b"kept"


def test_a_second_stack_on_the_same_folder_is_refused_and_a_later_one_gets_the_same_ports(
    tmp_path: Path,
) -> None:
    first = LocalStack(tmp_path, kafka=False)
    with first, pytest.raises(StackError, match="a stack runs on"):
        LocalStack(tmp_path, kafka=False).start()
    assert LocalStack(tmp_path, kafka=False).zookeeper == first.zookeeper


def test_a_server_that_cannot_start_is_named_with_its_log(tmp_path: Path) -> None:
    stack = LocalStack(tmp_path, kafka=False)
    (tmp_path / "zookeeper").mkdir()
    (tmp_path / "zookeeper" / "version-2").write_text("not a folder")
    with pytest.raises(StackError, match=r"zookeeper ended while starting: .*log: "):
        stack.start()
    assert not stack.zk.running


def test_zookeeper_ends_sessions_on_short_ticks(private_stack: Callable[..., LocalStack]) -> None:
    stack = private_stack(kafka=False, zk_tick_ms=100)
    client = KazooClient(hosts=stack.zookeeper, timeout=0.2)
    client.start(timeout=10)
    try:
        assert client._session_timeout == 200
    finally:
        client.stop()
        client.close()


def test_no_server_outlives_its_owner_whatever_ends_that(tmp_path: Path) -> None:
    signs = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    with ExitStack() as stack:
        owners = {sign: stack.enter_context(_owner(tmp_path / sign.name)) for sign in signs}
        left = {sign: _ended_by(owner, sign) for sign, owner in owners.items()}
    assert left == {sign: [] for sign in signs}


def _owner(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", OWNER, str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def _ended_by(owner: subprocess.Popen[str], sign: signal.Signals) -> list[psutil.Process]:
    """Which of its processes are left."""
    assert owner.stdout is not None
    server = psutil.Process(int(owner.stdout.readline()))
    supervisors = psutil.Process(owner.pid).children()
    assert len(supervisors) == 1
    os.kill(owner.pid, sign)
    return psutil.wait_procs([server, *supervisors], timeout=15)[1]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_no_server_outlives_its_supervisor(tmp_path: Path) -> None:
    stack = LocalStack(tmp_path, kafka=False)
    with stack:
        assert stack.zk.pid is not None
        server = psutil.Process(stack.zk.pid)
        server.parent().kill()  # type: ignore[union-attr]
        server.wait(timeout=10)
        assert not stack.zk.running


def _answer(address: str, api: int, version: int, body: bytes) -> bytes:
    """The body of a broker's first answer to a request made by hand."""
    request = struct.pack(">hhih", api, version, 1, -1) + body  # correlation id 1, no client id
    host, port = address.split(",", 1)[0].rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=10) as broker, broker.makefile("rb") as answers:
        broker.sendall(struct.pack(">i", len(request)) + request)
        (length,) = struct.unpack(">i", answers.read(4))
        return answers.read(length)[4:]  # behind the correlation id


def _string(data: bytes) -> bytes:
    return struct.pack(">h", len(data)) + data


def _topic(bootstrap: str) -> str:
    topic = f"stack-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(timeout=10)
    return topic


def _send_in_a_transaction(bootstrap: str, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, value)
    producer.commit_transaction(20)


def _first_value(bootstrap: str, topic: str) -> bytes | None:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "none", "isolation.level": "read_committed"}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(PATIENCE_S)
    consumer.close()
    assert message is not None
    assert message.error() is None
    return message.value()


def _set_znode(hosts: str, path: str, value: bytes) -> None:
    client = KazooClient(hosts=hosts)
    client.start(timeout=10)
    client.create(path, value)
    client.stop()
    client.close()


def _get_znode(hosts: str, path: str) -> bytes:
    client = KazooClient(hosts=hosts)
    client.start(timeout=10)
    value: bytes = client.get(path)[0]
    client.stop()
    client.close()
    return value
