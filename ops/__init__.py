"""What surrounds the service: the command line, topics, the local stack, the demo and the audit."""
