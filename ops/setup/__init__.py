"""What a fresh machine needs before anything runs: Python packages, a Java, the jars."""
