"""Connections to the brokers that lead one topic's partitions. Used by one thread, on its own event loop."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, NamedTuple

from aiokafka.conn import AIOKafkaConnection, create_conn
from aiokafka.errors import (
    AuthenticationFailedError,
    IncompatibleBrokerVersion,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)
from aiokafka.errors import KafkaError as LibraryError
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.offset import OffsetRequest
from confluent_kafka import KafkaError, KafkaException

from node.kafka.fetch import options
from node.kafka.fetch.protocol import READ_ALL, READ_COMMITTED, MetadataRequest

CLOSE_S: Final = 1.0
ANSWER_S: Final = 2.0  # of one broker, where any will do
ONCE_S: Final = 5.0
NO_ERROR: Final = 0
EARLIEST: Final = -2
LATEST: Final = -1
_TRANSACTION: Final = 1
_CONSUMER: Final = -1

# What fails is raised, and said by whoever reads.
logging.getLogger("aiokafka").addHandler(logging.NullHandler())
logging.getLogger("aiokafka").propagate = False


class Unreachable(Exception):
    """No answer, or one that is an error: `error` has the code as the other client would say it."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.error = KafkaError(code, words)


class PartitionLeader(NamedTuple):
    """Which broker leads a partition, and which leadership of it that is: later ones are higher."""

    broker: int
    epoch: int


class Led(NamedTuple):
    """A topic: its id, and who leads each partition that has a leader."""

    topic_id: bytes
    leaders: dict[int, PartitionLeader]


class Brokers:
    """The brokers of one topic, as they say of each other."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Raises `KafkaException` where the configuration asks for what is not to be had, as clients do."""
        try:
            self._first, self._options = options.brokers(config), options.connection_options(config)
        except options.Unsupported as error:
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, str(error))) from error
        self._addresses: dict[int, tuple[str, int]] = {}
        self._connections: dict[int, AIOKafkaConnection] = {}
        self._connecting: dict[int, asyncio.Lock] = {}  # one at a time to each broker
        self._topic_id: bytes | None = None
        self._leaders: dict[int, PartitionLeader] = {}
        self._asked = 0  # how often anybody was

    @property
    def known(self) -> list[int]:
        """The brokers that others have told of."""
        return sorted(self._addresses)

    async def lead(self, topic: str) -> Led:
        """Who leads its partitions, as far as any broker has said. Raises `Unreachable`.

        One that is cut off from the others goes on saying what was so: the later leadership counts.
        """
        answer = await self._ask_any(MetadataRequest(topic))
        try:
            ((code, _, topic_id, _, partitions, *_),) = answer.topics
            self._addresses |= {node: (host, port) for node, host, port, *_ in answer.brokers}
            said = {number: PartitionLeader(leader, epoch) for _, number, leader, epoch, *_ in partitions}
        except (TypeError, ValueError) as error:
            raise Unreachable(KafkaError._BAD_MSG, f"{topic}: no sound answer: {error}") from error
        if code != NO_ERROR:
            raise Unreachable(code, f"{topic}: {KafkaError(code).str()}")
        if topic_id != self._topic_id:
            self._topic_id, self._leaders = topic_id, {}
        for number, leader in said.items():
            known = self._leaders.get(number)
            if known is None or leader.epoch >= known.epoch:
                self._leaders[number] = leader
        leaders = {number: one for number, one in self._leaders.items() if one.broker in self._addresses}
        return Led(topic_id, leaders)

    async def offset(
        self, topic: str, partition: int, leader: int, at: int, *, is_committed: bool = False
    ) -> int:
        """The offset at a time, `EARLIEST` or `LATEST`; below zero: there is none. Raises `Unreachable`."""
        isolation = READ_COMMITTED if is_committed else READ_ALL
        answer = await self.ask(leader, OffsetRequest(_CONSUMER, isolation, [(topic, [(partition, at)])]))
        try:
            ((_, ((_, code, _, offset, *_),)),) = answer.topics
        except (TypeError, ValueError) as error:
            raise Unreachable(KafkaError._BAD_MSG, f"{topic}: no sound answer: {error}") from error
        if code != NO_ERROR:
            raise Unreachable(code, f"{topic}/{partition}: {KafkaError(code).str()}")
        return int(offset)

    async def coordinator(self, transactional_id: str) -> int:
        """The broker that decides over the transactions of an id. Raises `Unreachable`."""
        answer = await self._ask_any(FindCoordinatorRequest(transactional_id, _TRANSACTION))
        if answer.error_code != NO_ERROR:
            code = answer.error_code
            raise Unreachable(code, f"the coordinator of {transactional_id}: {KafkaError(code).str()}")
        self._addresses[answer.coordinator_id] = answer.host, answer.port
        return int(answer.coordinator_id)

    async def ask(self, node: int, request: Any) -> Any:
        """A broker's answer. Raises `Unreachable`."""
        connection = await self._connected(node)
        try:
            return await connection.send(request)
        except Exception as error:
            connection.close()
            raise _unreachable(error, f"{connection.host}:{connection.port}") from error

    async def _connected(self, node: int) -> AIOKafkaConnection:
        """The one connection to a broker. Raises `Unreachable`."""
        known = self._connections.get(node)
        if known is not None and known.connected():
            return known
        async with self._connecting.setdefault(node, asyncio.Lock()):
            connection = self._connections.get(node)
            if connection is None or not connection.connected():
                if node not in self._addresses:
                    raise Unreachable(KafkaError._TRANSPORT, f"broker {node} is not known")
                connection = self._connections[node] = await self._connect(*self._addresses[node])
            return connection

    async def close(self) -> None:
        """Lets go of all connections."""
        ends = [connection.close() for connection in self._connections.values()]
        self._connections = {}
        if ends:
            await asyncio.wait([end for end in ends if end is not None], timeout=CLOSE_S)

    async def _ask_any(self, request: Any) -> Any:
        """The first answer of any broker; each time another one is asked first. One that stands still costs
        `ANSWER_S`.
        """
        self._asked += 1
        nodes = sorted(self._addresses)
        begin = self._asked % max(1, len(nodes))
        asked: list[Callable[[], Awaitable[Any]]] = [
            partial(self._ask_node, node, request) for node in nodes[begin:] + nodes[:begin]
        ]
        asked += [partial(self._ask_once, host, port, request) for host, port in self._first]
        failed = Unreachable(KafkaError._ALL_BROKERS_DOWN, "there is no broker to ask")
        for ask in asked:
            try:
                async with asyncio.timeout(ANSWER_S):
                    return await ask()
            except Unreachable as error:
                failed = error
            except TimeoutError:
                failed = Unreachable(KafkaError._TIMED_OUT, "no broker answers")
        raise failed

    async def _ask_node(self, node: int, request: Any) -> Any:
        """By the connection that is there; for one question no other is kept."""
        connection = self._connections.get(node)
        if connection is not None and connection.connected():
            return await self.ask(node, request)
        return await self._ask_once(*self._addresses[node], request)

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


@asynccontextmanager
async def asked_once(config: Mapping[str, Any], of: str, lacking: str) -> AsyncIterator[Brokers]:
    """Brokers for one question, which takes no longer than `ONCE_S`. Raises `Unreachable` where there is no
    answer by then (`lacking` says what is not known of `of`), or no sound one, and `KafkaException`.
    """
    brokers = Brokers(config)
    try:
        async with asyncio.timeout(ONCE_S):
            yield brokers
    except TimeoutError as error:
        raise Unreachable(KafkaError._TIMED_OUT, f"{of}: {lacking}") from error
    except (TypeError, ValueError) as error:
        raise Unreachable(KafkaError._BAD_MSG, f"{of}: no sound answer: {error}") from error
    finally:
        await brokers.close()


def _unreachable(error: Exception, address: str) -> Unreachable:
    """In the other client's codes. The library raises what the system and its own protocol say."""
    if isinstance(error, ssl.SSLError):
        code = KafkaError._SSL
    elif isinstance(
        error, AuthenticationFailedError | SaslAuthenticationFailed | UnsupportedSaslMechanismError
    ):
        code = KafkaError._AUTHENTICATION
    elif isinstance(error, TimeoutError):
        code = KafkaError._TIMED_OUT
    elif isinstance(error, NotImplementedError | IncompatibleBrokerVersion):
        return Unreachable(
            KafkaError.UNSUPPORTED_VERSION, f"{address}: its Kafka is too old: this needs 3.1 or newer"
        )
    elif isinstance(error, OSError | EOFError | LibraryError):
        code = KafkaError._TRANSPORT
    else:  # an answer that cannot be read
        code = KafkaError._BAD_MSG
    return Unreachable(code, f"{address}: {str(error) or type(error).__name__}")
