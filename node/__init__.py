"""A delay node: follows the buffer topic into its store and, as master of its lane, delivers what is due."""
