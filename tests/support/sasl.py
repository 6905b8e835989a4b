"""A broker with a listener that asks for a password, beside the one that asks for none."""

from __future__ import annotations

from pathlib import Path

from ops.stack.kafka import KafkaServer
from ops.stack.ports import HOST, free_port

_LISTENER = """\
listeners=PLAINTEXT://{plain},SASL_PLAINTEXT://{sasl},CONTROLLER://{controller}
advertised.listeners=PLAINTEXT://{plain},SASL_PLAINTEXT://{sasl}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config={module} required user_delay="right";
"""
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


class SaslKafka(KafkaServer):
    """Its one user is `delay`, with the password `right`, by SASL_PLAINTEXT and PLAIN."""

    def __init__(self, folder: Path) -> None:
        self._controller = free_port()
        super().__init__(folder, free_port(), self._controller)
        self.sasl_address = f"{HOST}:{free_port()}"

    def _prepare(self) -> None:
        super()._prepare()
        listener = _LISTENER.format(
            plain=self.address,
            sasl=self.sasl_address,
            controller=f"{HOST}:{self._controller}",
            module=_MODULE,
        )
        with self._config.open("a") as config:  # what comes last counts
            config.write(listener)
