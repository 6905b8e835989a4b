"""The delivery core: what goes out in which transaction, and what a leader goes on from.

It does no I/O of its own: Kafka, ZooKeeper and the clock are behind its ports, so that the simulation runs it
as it is.
"""
