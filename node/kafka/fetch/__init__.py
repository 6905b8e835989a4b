"""How records come from Kafka: read by our own rules, so that nothing in a log stops or fills a reader."""
