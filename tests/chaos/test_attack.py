"""A part of `make attack`: less than a minute of what that sends for an hour (docs/attack.md)."""

from __future__ import annotations

from pathlib import Path

from tests.attack.ammunition import BOMB
from tests.attack.arena import LIMIT_BYTES
from tests.attack.batches import KINDS
from tests.attack.copies import COPY
from tests.attack.run import Options, attack
from tests.stacks import Stack

SECONDS = 20.0
A_PART = Options(SECONDS, seed=1, bomb_every_s=4.0, salvo_every_s=20.0, salvo=10)


def test_nothing_that_is_sent_stops_grows_or_falsifies_anything(
    stack: Stack, cluster_name: str, tmp_path: Path
) -> None:
    summary = attack(stack, cluster_name, tmp_path, A_PART)
    assert summary.flaws == []
    taken = {*KINDS, COPY, BOMB} - {"refused"}
    assert summary.kinds.keys() >= taken, "of each kind something was taken"
    assert summary.peak_bytes <= LIMIT_BYTES
