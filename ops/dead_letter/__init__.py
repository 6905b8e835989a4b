"""The dead-letter topic for an operator: finding letters, looking at one, sending requests again."""
