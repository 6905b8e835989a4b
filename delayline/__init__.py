"""Schedule messages on Kafka: the client and the wire format of the delayline service."""
