"""Tables of what became of everything, for those who ask with SQL: brought up to date run by run."""
