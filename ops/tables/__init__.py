"""What became of everything, as tables of files."""
