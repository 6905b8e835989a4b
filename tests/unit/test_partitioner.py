"""The partition of an id is the Java client's, bit for bit."""

from __future__ import annotations

import pytest

from delayline.partitioner import partition_for

# Kafka's own vectors: UtilsTest.testMurmur2 (signed 32-bit hashes).
KAFKA_VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
LARGEST = 2**31 - 1


@pytest.mark.parametrize(("key", "hashed"), KAFKA_VECTORS.items())
@pytest.mark.parametrize("partitions", [1, 4, 7, 1_000, LARGEST])
def test_a_partition_is_murmur2_with_its_sign_bit_masked_off(
    key: bytes, hashed: int, partitions: int
) -> None:
    assert partition_for(key, partitions) == (hashed & 0x7FFFFFFF) % partitions


def test_an_empty_key_has_a_partition() -> None:
    assert partition_for(b"", LARGEST) == 275646681
