"""Several lanes in one command: a process for each, and one that keeps them running and answers for all."""
