"""Checkpoints, their history, replays and skips: `delayline checkpoint`."""
