"""The audit: Spark reads what Kafka holds and says what became of every request (docs/audit.md)."""

from __future__ import annotations

from ops.audit.config import AuditConfig as AuditConfig
from ops.audit.ledger import LedgerWriter as LedgerWriter
from ops.audit.report import Lateness as Lateness
from ops.audit.report import Report as Report
from ops.audit.report import Violation as Violation
from ops.audit.run import Audit as Audit
from ops.audit.run import audit as audit
from ops.audit.session import spark_session as spark_session
