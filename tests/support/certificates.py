"""A certificate for this machine, made by the JDK's keytool, which whoever runs the servers has."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from ops.setup.java import find_java

PASSWORD = "changeit"


@dataclass(frozen=True, slots=True)
class Certificate:
    """Self-signed. `store`: with the key, for a server (PKCS 12, of `PASSWORD`). `ca`: what a client is to
    trust (PEM).
    """

    store: Path
    ca: Path

    def trusted(self) -> Path:
        """Makes a store without the key, for a server that asks which others it is to trust."""
        store = self.store.with_name("trusted.p12")
        _keytool(store, "-importcert", "-noprompt", "-file", str(self.ca))
        return store


def self_signed(folder: Path) -> Certificate:
    """One for 127.0.0.1 alone, no name."""
    made = Certificate(folder / "server.p12", folder / "ca.pem")
    _keytool(made.store, "-genkeypair", "-keyalg", "EC", "-dname", "CN=server", "-ext", "SAN=ip:127.0.0.1")
    _keytool(made.store, "-exportcert", "-rfc", "-file", str(made.ca))
    return made


def _keytool(store: Path, *command: str) -> None:
    tool = Path(find_java()).resolve().with_name("keytool")
    common = ["-keystore", str(store), "-storetype", "PKCS12", "-storepass", PASSWORD, "-alias", "server"]
    quick = ["-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC"]
    subprocess.run([str(tool), *command, *common, *quick], check=True, capture_output=True, timeout=60)
