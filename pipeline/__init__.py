"""What is done with Spark: the audit, and the pages that show it."""
