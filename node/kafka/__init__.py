"""A node and its Kafka: the log, the transactions, the targets, the checkpoints."""
