"""Every way to get a request wrong, and what comes of it: one table for the unit test of the parser, the test
over a real Kafka, and docs/bad-input.md.
"""
