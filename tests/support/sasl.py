"""Brokers with a listener that asks for a password, beside the one that asks for none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ops.stack.kafka import KafkaServer
from ops.stack.ports import HOST, free_port
from tests.support.certificates import PASSWORD, Certificate

_LISTENER = """\
listeners=PLAINTEXT://{plain},{protocol}://{sasl},CONTROLLER://{controller}
advertised.listeners=PLAINTEXT://{plain},{protocol}://{sasl}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,{protocol}:{protocol},CONTROLLER:PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.{listener}.plain.sasl.jaas.config={module} required {users};
"""
# The broker itself, its controller and the tests' administrator come without a name.
_CLOSED = """\
allow.everyone.if.no.acl.found=false
super.users=User:ANONYMOUS
ssl.keystore.type=PKCS12
ssl.keystore.location={store}
ssl.keystore.password={password}
ssl.key.password={password}
"""
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


class SaslKafka(KafkaServer):
    """Its users come with a name and a password, by SASL_PLAINTEXT and PLAIN."""

    protocol = "SASL_PLAINTEXT"

    def __init__(self, folder: Path, passwords: Mapping[str, str]) -> None:
        self._controller = free_port()
        self._passwords = passwords
        super().__init__(folder, free_port(), self._controller)
        self.sasl_address = f"{HOST}:{free_port()}"

    def client(self, user: str) -> dict[str, str]:
        """What a user's clients are told of security."""
        return {
            "security.protocol": self.protocol,
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": self._passwords[user],
        }

    def _prepare(self) -> None:
        super()._prepare()
        with self._config.open("a") as config:  # what comes last counts
            config.write(self._more())

    def _more(self) -> str:
        users = " ".join(f'user_{user}="{password}"' for user, password in self._passwords.items())
        return _LISTENER.format(
            plain=self.address,
            sasl=self.sasl_address,
            controller=f"{HOST}:{self._controller}",
            protocol=self.protocol,
            listener=self.protocol.lower(),
            module=_MODULE,
            users=users,
        )


class ClosedKafka(SaslKafka):
    """As `SaslKafka`, over TLS; and nobody may do anything that no ACL allows."""

    protocol = "SASL_SSL"

    def __init__(self, folder: Path, passwords: Mapping[str, str], certificate: Certificate) -> None:
        super().__init__(folder, passwords)
        self._certificate = certificate

    def client(self, user: str) -> dict[str, str]:
        return super().client(user) | {"ssl.ca.location": str(self._certificate.ca)}

    def _more(self) -> str:
        return super()._more() + _CLOSED.format(store=self._certificate.store, password=PASSWORD)
