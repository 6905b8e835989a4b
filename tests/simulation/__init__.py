"""The delivery core under seeded faults, without Kafka or ZooKeeper (docs/simulation.md)."""
