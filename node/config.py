"""What one process is told about itself: its name, lane and folder, how it reaches Kafka and ZooKeeper.

What a request *means* (level table, longest delay, allowed targets, partitions, lanes) is not here: it
belongs to the cluster, stands in its settings, and no node can have an opinion of its own about it.

The classes only hold and validate values; `ops.config.load` reads them from file, environment and flags.
"""

from __future__ import annotations

import logging
import re
import socket
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    field_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from delayline.names import ClusterNames
from election.znodes import can_name_node
from node.kafka.fetch import options

ENVIRONMENT_PREFIX = "DELAYLINE_"


def _cluster_name(name: str) -> str:
    ClusterNames(name)  # ValueError if it cannot name topics
    return name


def _node_name(name: str) -> str:
    if not can_name_node(name):
        raise ValueError("use 1 to 200 of A-Z a-z 0-9 . _ - (it names a znode); . and .. are none")
    return name


def _brokers(addresses: str) -> str:
    _check_addresses(re.sub(r"[A-Za-z_]+://", "", addresses))  # librdkafka takes SASL_SSL://host:port
    return addresses


def _zookeepers(hosts: str) -> str:
    addresses, _, _chroot = hosts.partition("/")
    _check_addresses(addresses)
    return hosts


def _check_addresses(addresses: str) -> None:
    for address in addresses.split(","):
        found = re.fullmatch(r"\s*(?:\[[^\]\s]+\]|[^:\s\[\]]+)(?::([0-9]+))?\s*", address)
        if found is None or not 0 < int(found[1] or 1) < 65536:
            raise ValueError(f"{address!r} is no address: write host:port,host:port (port 1 to 65535)")


def lane_numbers(text: str) -> list[int]:
    """The lanes of `0-3`, `0,2` or `0-1,4`, in order. ValueError if they are none, one alone, or too many.

    One number alone is no list: in most systems `lanes: 4` means how many there are.
    """
    found: list[int] = []
    for part in text.split(","):
        written = re.fullmatch(r"\s*([0-9]{1,6})(?:-([0-9]{1,6}))?\s*", part)
        if written is None:
            raise ValueError(f"{text!r} is no list of lanes: write 0-3, 0,2 or 0-1,4")
        first, last = int(written[1]), int(written[2] or written[1])
        if last < first:
            raise ValueError(f"{part.strip()!r} ends before it begins: write {last}-{first}")
        if len(found) + last - first >= MOST_LANES:
            raise ValueError(f"{text!r} has more than {MOST_LANES} lanes: run the others elsewhere")
        found += range(first, last + 1)
    if len(set(found)) < len(found):
        raise ValueError(f"{text!r} names a lane twice")
    if len(found) == 1:
        raise ValueError(
            f"{text!r} is no list: a node's lanes are given as 0-3 or 0,2, one alone as lane; how many the"
            " cluster has, 'delayline topics create' is told"
        )
    return sorted(found)


def _lane_list(text: Any) -> str:
    lane_numbers(str(text))
    return str(text)


ClusterName = Annotated[str, AfterValidator(_cluster_name)]
NodeName = Annotated[str, AfterValidator(_node_name)]
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
BrokerList = Annotated[Text, AfterValidator(_brokers)]
Zookeepers = Annotated[Text, AfterValidator(_zookeepers)]
LaneList = Annotated[str, BeforeValidator(_lane_list)]

MOST_LANES: Final = 64
_CRITICAL = 2  # syslog's number
_client_log = logging.getLogger("delayline.kafka")

_TRANSACTION = "the exactly-once rule fixes it"
_POSITION = "a node reads from the offsets in its own store"
OWNED_KAFKA_KEYS: dict[str, str] = {
    "bootstrap.servers": "set bootstrap_servers instead",
    "metadata.broker.list": "set bootstrap_servers instead",
    "transaction.timeout.ms": "set transaction_timeout_ms instead",
    "transactional.id": "every lane has two fixed ids of its own",
    "enable.idempotence": _TRANSACTION,
    "enable.gapless.guarantee": _TRANSACTION,
    "isolation.level": _TRANSACTION,
    "acks": _TRANSACTION,
    "request.required.acks": _TRANSACTION,
    "max.in.flight": _TRANSACTION,
    "max.in.flight.requests.per.connection": _TRANSACTION,
    "retries": _TRANSACTION,
    "message.send.max.retries": _TRANSACTION,
    "message.timeout.ms": "transaction_timeout_ms bounds it",
    "delivery.timeout.ms": "transaction_timeout_ms bounds it",
    "partitioner": "the wire format fixes it (murmur2)",
    "allow.auto.create.topics": "a missing topic must be seen as missing",
    "group.id": _POSITION,
    "group.instance.id": _POSITION,
    "partition.assignment.strategy": _POSITION,
    "enable.auto.commit": _POSITION,
    "enable.auto.offset.store": _POSITION,
    "auto.offset.reset": _POSITION,
    "enable.partition.eof": _POSITION,
}


def _refuse_owned(key: str) -> str:
    if key in OWNED_KAFKA_KEYS:
        raise ValueError(f"cannot be set: {OWNED_KAFKA_KEYS[key]}")
    return key


KafkaProperty = Annotated[str, AfterValidator(_refuse_owned)]


class ZookeeperAuth(BaseModel):
    """What `addauth` sends to ZooKeeper, for example scheme `digest` and credential `user:password`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scheme: Text
    credential: SecretStr


class ZookeeperTls(BaseModel):
    """TLS to ZooKeeper: PEM files. Without a CA file the system's own are trusted."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    key_password: SecretStr | None = None
    check_hostname: bool = True


class KafkaConfig(BaseSettings):
    """How to reach one delay cluster's topics: all that an application, or a request by hand, needs."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix=ENVIRONMENT_PREFIX,
        env_nested_delimiter="__",
        env_ignore_empty=True,
    )

    cluster: ClusterName = Field(
        default="delay", description="the delay cluster's name: prefix of its topics and znodes"
    )
    bootstrap_servers: BrokerList = Field(description="Kafka brokers, host:port,...")
    kafka: dict[KafkaProperty, str] = Field(
        default_factory=dict,
        repr=False,  # sasl.password and the like
        description="librdkafka properties for every client, as they are: security.protocol, sasl.*, ssl.*",
    )

    @classmethod
    def settings_customise_sources(  # the names are pydantic-settings'
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take constructor arguments only: whoever builds one in code gets what the code says."""
        return (init_settings,)

    @field_validator("kafka", mode="before")
    @classmethod
    def _as_librdkafka_writes_it(cls, raw: Any) -> Any:
        if raw is None:  # a `kafka:` line with nothing below it
            return {}
        if not isinstance(raw, dict):
            return raw
        return {str(key): _property_text(value) for key, value in raw.items()}

    @field_validator("kafka")
    @classmethod
    def _can_be_read_with(cls, kafka: dict[str, str]) -> dict[str, str]:
        options.check(kafka)
        return kafka

    def client_config(self) -> dict[str, Any]:
        """Properties that every Kafka client starts from: brokers, a client id, and the raw ones."""
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "client.id": f"delayline-{self.cluster}",
            **self.kafka,
        }


class ConnectionConfig(KafkaConfig):
    """How to reach one delay cluster, topics and znodes: all that an operator's command needs."""

    zookeeper: Zookeepers = Field(
        description="ZooKeeper servers, host:port,..., with a chroot if there is one"
    )
    zookeeper_auth: ZookeeperAuth | None = Field(default=None, description="scheme and credential")
    zookeeper_tls: ZookeeperTls | None = Field(
        default=None, description="ca_file, cert_file, key_file, key_password, check_hostname"
    )

    def kazoo_options(self) -> dict[str, Any]:
        """Keyword arguments of `kazoo.client.KazooClient` for hosts, authentication and TLS."""
        options: dict[str, Any] = {"hosts": self.zookeeper}
        if self.zookeeper_auth is not None:
            auth = self.zookeeper_auth
            options["auth_data"] = [(auth.scheme, auth.credential.get_secret_value())]
        if self.zookeeper_tls is not None:
            options |= _kazoo_tls(self.zookeeper_tls)
        return options


class NodeConfig(ConnectionConfig):
    """All that one node is told. Its id is stable across restarts: the store and the znodes carry it."""

    lane: int = Field(
        default=0, ge=0, description="the lane that this node replicates and may become leader of"
    )
    lanes: LaneList | None = Field(
        default=None,
        description="several lanes in place of one, as 0-3, 0,2 or 0-1,4: a process for each, under one that "
        "starts them again and answers for all at one HTTP port",
    )
    node_id: NodeName = Field(
        default_factory=lambda data: f"{socket.gethostname()}-{data['lane']}",
        description="the node's name, the same after a restart",
    )
    data_dir: Path = Field(description="folder of the node's RocksDB replica")
    peer_host: Text = Field(
        default_factory=socket.gethostname,
        description="where the other nodes of the lane reach this one: an address, or a name; with a name "
        "other than localhost it listens on all interfaces",
    )
    peer_port: int = Field(
        # Below the ephemeral range, so that no outgoing connection takes it while the node restarts.
        default_factory=lambda data: 17400 + data["lane"],
        ge=1,
        le=65535,
        description="its port for them",
    )
    peer_silence_ms: int = Field(
        default=400,
        ge=400,  # one beat that is lost on the way is sent again within three
        le=60_000,
        description="who is ahead in the election, and says no more for so long that it runs, loses "
        "its turn; with more than the session timeout, only with its session",
    )
    http_host: Text = Field(
        default="127.0.0.1",
        description="where other nodes, commands and whatever watches this node reach it: an address, or a "
        "name; with a name other than localhost it listens on all interfaces",
    )
    http_port: int = Field(default=0, ge=0, le=65535, description="its port for them; 0: any that is free")
    session_timeout_s: float = Field(default=6.0, gt=0, description="ZooKeeper session timeout")
    max_clock_skew_ms: int = Field(
        default=500, ge=0, description="largest difference from the brokers' clock that a leader may have"
    )
    replay_window_s: float = Field(
        default=3600.0,
        ge=0,
        description="how long delivered messages stay in the store; far less than half of the buffer's "
        "retention",
    )
    selection_max_messages: int = Field(default=5000, ge=1, description="most messages in one transaction")
    selection_max_bytes: int = Field(
        default=8 * 1024 * 1024, ge=1, description="most bytes in one transaction (one message always fits)"
    )
    snapshot_bytes_per_s: int = Field(
        default=64 * 1024 * 1024,
        ge=1024 * 1024,
        description="how fast a new node of the lane may copy this one's view, in bytes per second",
    )
    max_parks: int = Field(
        default=30,
        ge=0,
        description="how often a message is parked because its target is unavailable, or its time zone "
        "unknown; then a dead letter",
    )
    transaction_timeout_ms: int = Field(
        default=10_000,
        ge=1000,
        description="the broker aborts a transaction left open so long; readers of its targets wait for it",
    )

    @property
    def replay_window_ms(self) -> int:
        """As milliseconds."""
        return int(self.replay_window_s * 1000)

    def client_config(self) -> dict[str, Any]:
        """As `KafkaConfig.client_config`, with the node's own name in the client id, and no lines of the
        library's own on stderr for every attempt to connect: the node logs what its failures mean.
        """
        own = {
            "client.id": f"delayline-{self.cluster}-{self.node_id}",
            "log_level": _CRITICAL,
            "logger": _client_log,
        }
        return super().client_config() | own | self.kafka


def _property_text(value: Any) -> Any:
    """YAML's true, 5 and 0.5 as librdkafka reads them; anything else is left for the validation to refuse."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _kazoo_tls(tls: ZookeeperTls) -> dict[str, Any]:
    def path(file: Path | None) -> str | None:
        return None if file is None else str(file)

    password = None if tls.key_password is None else tls.key_password.get_secret_value()
    return {
        "use_ssl": True,
        "verify_certs": True,
        "check_hostname": tls.check_hostname,  # kazoo's own default is False
        "ca": path(tls.ca_file),
        "certfile": path(tls.cert_file),
        "keyfile": path(tls.key_file),
        "keyfile_password": password,
    }
