"""Connections to the brokers that lead one topic's partitions. Used by one thread, on its own event loop."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec
from aiokafka.conn import AIOKafkaConnection, create_conn
from aiokafka.errors import AuthenticationFailedError, SaslAuthenticationFailed, UnsupportedSaslMechanismError
from aiokafka.errors import KafkaError as LibraryError
from aiokafka.protocol.offset import OffsetRequest
from confluent_kafka import KafkaError

from node.fetch import options
from node.fetch.protocol import READ_COMMITTED, MetadataRequest

CLOSE_S: Final = 1.0
ANSWER_S: Final = 2.0  # of one broker, where any will do
NO_ERROR: Final = 0
EARLIEST: Final = -2
LATEST: Final = -1
_READ_ALL: Final = 0
_CONSUMER: Final = -1

# What fails is raised, and said by whoever reads.
logging.getLogger("aiokafka").addHandler(logging.NullHandler())
logging.getLogger("aiokafka").propagate = False


class Unreachable(Exception):
    """No answer, or one that is an error: `error` has the code as the other client would say it."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.error = KafkaError(code, words)


class Led(msgspec.Struct, frozen=True):
    """A topic: its id, and which broker leads each partition that has a leader."""

    topic_id: bytes
    leaders: dict[int, int]


class Brokers:
    """Knows the brokers by what the first of them that answers says."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Raises `options.Unsupported`."""
        self._first = options.brokers(config)
        self._options = options.connection_options(config)
        self._addresses: dict[int, tuple[str, int]] = {}
        self._connections: dict[int, AIOKafkaConnection] = {}

    async def lead(self, topic: str) -> Led:
        """Who leads its partitions now. Raises `Unreachable`."""
        answer = await self._ask_any(MetadataRequest(topic))
        self._addresses = {node: (host, port) for node, host, port, *_ in answer.brokers}
        ((code, _, topic_id, _, partitions, *_),) = answer.topics
        if code != NO_ERROR:
            raise Unreachable(code, f"{topic}: {KafkaError(code).str()}")
        leaders = {number: leader for _, number, leader, *_ in partitions if leader in self._addresses}
        return Led(topic_id, leaders)

    async def offset(
        self, topic: str, partition: int, leader: int, at: int, *, is_committed: bool = False
    ) -> int:
        """The offset at a time, `EARLIEST` or `LATEST`; below zero: there is none. Raises `Unreachable`."""
        isolation = READ_COMMITTED if is_committed else _READ_ALL
        answer = await self.ask(leader, OffsetRequest(_CONSUMER, isolation, [(topic, [(partition, at)])]))
        ((_, ((_, code, _, offset, *_),)),) = answer.topics
        if code != NO_ERROR:
            raise Unreachable(code, f"{topic}/{partition}: {KafkaError(code).str()}")
        return int(offset)

    async def ask(self, node: int, request: Any) -> Any:
        """A broker's answer. Raises `Unreachable`."""
        connection = self._connections.get(node)
        if connection is None or not connection.connected():
            if node not in self._addresses:
                raise Unreachable(KafkaError._TRANSPORT, f"broker {node} is not known")  # noqa: SLF001
            connection = self._connections[node] = await self._connect(*self._addresses[node])
        try:
            return await connection.send(request)
        except Exception as error:
            connection.close()
            raise _unreachable(error, f"{connection.host}:{connection.port}") from error

    async def close(self) -> None:
        """Lets go of all connections."""
        ends = [connection.close() for connection in self._connections.values()]
        self._connections = {}
        if ends:
            await asyncio.wait([end for end in ends if end is not None], timeout=CLOSE_S)

    async def _ask_any(self, request: Any) -> Any:
        """The first answer: of those that are connected, then of the others. One that stands still costs
        `ANSWER_S`.
        """
        connected = [node for node, connection in self._connections.items() if connection.connected()]
        known = [address for address in self._addresses.values() if address not in self._first]
        asked: list[Callable[[], Awaitable[Any]]] = [partial(self.ask, node, request) for node in connected]
        asked += [partial(self._ask_once, host, port, request) for host, port in [*self._first, *known]]
        failed = Unreachable(KafkaError._ALL_BROKERS_DOWN, "there is no broker to ask")  # noqa: SLF001
        for ask in asked:
            try:
                async with asyncio.timeout(ANSWER_S):
                    return await ask()
            except Unreachable as error:
                failed = error
            except TimeoutError:
                failed = Unreachable(KafkaError._TIMED_OUT, "no broker answers")  # noqa: SLF001
        raise failed

    async def _ask_once(self, host: str, port: int, request: Any) -> Any:
        connection = await self._connect(host, port)
        try:
            return await connection.send(request)
        except Exception as error:
            raise _unreachable(error, f"{host}:{port}") from error
        finally:
            await asyncio.wait([connection.close()], timeout=CLOSE_S)

    async def _connect(self, host: str, port: int) -> AIOKafkaConnection:
        try:
            return await create_conn(host, port, **self._options)
        except Exception as error:
            raise _unreachable(error, f"{host}:{port}") from error


def _unreachable(error: Exception, address: str) -> Unreachable:
    """In the other client's codes. The library raises what the system and its own protocol say."""
    if isinstance(error, ssl.SSLError):
        code = KafkaError._SSL  # noqa: SLF001
    elif isinstance(
        error, AuthenticationFailedError | SaslAuthenticationFailed | UnsupportedSaslMechanismError
    ):
        code = KafkaError._AUTHENTICATION  # noqa: SLF001
    elif isinstance(error, TimeoutError):
        code = KafkaError._TIMED_OUT  # noqa: SLF001
    elif isinstance(error, NotImplementedError):
        return Unreachable(
            KafkaError.UNSUPPORTED_VERSION, f"{address}: its Kafka is too old: this needs 3.1 or newer"
        )
    elif isinstance(error, OSError | EOFError | LibraryError):
        code = KafkaError._TRANSPORT  # noqa: SLF001
    else:  # an answer that cannot be read
        code = KafkaError._BAD_MSG  # noqa: SLF001
    return Unreachable(code, f"{address}: {str(error) or type(error).__name__}")
