"""The bombs of a run, made once: each is less than the buffer's limit, and unpacks to far more."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

from delayline.headers import H_TARGET_TOPIC
from tests.attack.batches import Attack
from tests.attack.expected import Expected, Rule
from tests.bad_input.row import PARTITIONS
from tests.support.raw import Codec, RawBatch
from tests.support.raw.bombs import many_small, one_large

BOMB: Final = "bomb"
_MB: Final = 1_000_000
_LARGEST: Final = 2_147 * _MB
_LARGE: Final = {
    Codec.ZSTD: (900 * _MB, _LARGEST),
    Codec.GZIP: (900 * _MB,),
    Codec.LZ4: (220 * _MB,),
    Codec.SNAPPY: (19 * _MB,),
}
_MANY: Final = {
    Codec.ZSTD: (900 * _MB, 2_300 * _MB),
    Codec.GZIP: (300 * _MB,),
    Codec.LZ4: (200 * _MB,),
    Codec.SNAPPY: (19 * _MB,),
}


def bombs(cluster: str) -> Iterator[Attack]:
    """One after the other, to each partition in turn, for ever. Making them takes seconds."""
    made = itertools.cycle(list(_made(f"{cluster}.wide".encode())))
    expected = [Expected(Rule.ONE)]
    return (
        Attack(BOMB, what, number % PARTITIONS, batch, expected, whole=True)
        for number, (what, batch) in enumerate(made)
    )


def _made(target: bytes) -> Iterator[tuple[str, RawBatch]]:
    """Half of them are sound requests, but for their size."""
    headers = ((H_TARGET_TOPIC.encode(), target),)
    for codec in _LARGE:
        for bytes_ in _LARGE[codec]:
            what = f"{codec.name.lower()} that unpacks to {bytes_ // _MB} MB"
            yield f"a record of {what}", one_large(codec, bytes_, headers)
        for bytes_ in _MANY[codec]:
            what = f"{codec.name.lower()} that unpacks to {bytes_ // _MB} MB"
            batch = many_small(codec, bytes_)
            yield f"{batch.count} records of {what}", batch
