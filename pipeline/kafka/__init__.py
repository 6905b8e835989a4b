"""Topics of Kafka for whatever is done with Spark: which part of them is read, and as what."""
