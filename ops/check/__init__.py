"""Plugins for Nagios and its like: `delayline check`."""
