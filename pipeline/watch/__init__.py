"""The audit without end: each round audits what is new, and what it has kept of what is still open."""
