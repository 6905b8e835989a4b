"""A delay node: follows the buffer topic into its store and, as leader of its lane, delivers what is due."""
