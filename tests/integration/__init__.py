"""Parts against a real Kafka and ZooKeeper."""
