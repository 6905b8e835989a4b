"""A node's view of the buffer topic, in RocksDB."""
