"""A real Kafka and ZooKeeper on this machine, for tests, the demo, benchmarks and trying things out."""

from __future__ import annotations

from ops.stack.errors import StackError
from ops.stack.kafka import SHIPPED_JVM, SHORT_LIVED_JVM
from ops.stack.local import LocalStack

__all__ = ["SHIPPED_JVM", "SHORT_LIVED_JVM", "LocalStack", "StackError"]
