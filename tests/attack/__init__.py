"""Produce requests that nobody should send, at a real broker and a real node (docs/attack.md)."""
