"""The audit: Spark reads what Kafka holds and says what became of every request (docs/audit.md)."""

from __future__ import annotations

from pipeline.audit.config import AuditConfig as AuditConfig
from pipeline.audit.ledger import LedgerWriter as LedgerWriter
from pipeline.audit.report import AuditReport as AuditReport
from pipeline.audit.report import Lateness as Lateness
from pipeline.audit.report import Violation as Violation
from pipeline.audit.run import Audit as Audit
from pipeline.audit.run import audit as audit
