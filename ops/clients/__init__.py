"""An operator's view of Kafka, of ZooKeeper and of the nodes."""
