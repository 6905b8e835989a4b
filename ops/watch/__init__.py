"""The audit without end as a process: its rounds, its figures and its page."""
