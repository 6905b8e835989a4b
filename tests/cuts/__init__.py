"""The audit without end against the audit of everything, at random cuts (docs/audit.md)."""
