"""A node and its ZooKeeper: the election, the keys, the mirror of the checkpoint, what operators ask for."""
