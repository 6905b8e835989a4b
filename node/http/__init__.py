"""A node's HTTP interface: for the commands of operators, and for whatever watches it. It is read only."""
