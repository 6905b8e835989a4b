"""What a plan knows of targets, and what it writes back, read again."""

from __future__ import annotations

from delayline.names import ClusterNames
from delayline.rejects import Code, RejectCode
from delayline.settings import ClusterSettings
from delayline.wire import Schedule, parse
from node.core.ports import ANY_PARTITION, TARGET_UNAVAILABLE, TARGET_UNKNOWN, Outgoing
from node.core.written_back import Stamp
from tests.support.keys import KEYRING
from tests.unit.wire_records import BufferedRecord

NAMES = ClusterNames("delay")
SETTINGS = ClusterSettings(partitions=1)


def stamp() -> Stamp:
    """For what is written back at offset 50, above parents below 40."""
    return Stamp(KEYRING, {0: 40, 1: 40}, {0: 41, 1: 41})


class Limited:
    """Targets of one partition that take records of a size; a topic that has no limit is missing."""

    is_complete = True

    def __init__(self, **limits_bytes: int) -> None:
        self._limits_bytes = limits_bytes

    def takes_any(self, topic: str, size_bytes: int) -> bool:
        return self.problem(topic, ANY_PARTITION, None, size_bytes) is None

    def problem(
        self, topic: str, partition: int, key: bytes | None, size_bytes: int
    ) -> tuple[Code, str] | None:
        if topic not in self._limits_bytes:
            return RejectCode.TARGET_MISSING, "it is not there"
        if size_bytes > self._limits_bytes[topic]:
            return RejectCode.TOO_LARGE, "it takes less"
        return None


class Leaderless(Limited):
    """Targets that are there, and have no leader."""

    def problem(
        self, topic: str, partition: int, key: bytes | None, size_bytes: int
    ) -> tuple[Code, str] | None:
        return None if topic == NAMES.dead_letter else (TARGET_UNAVAILABLE, f"{topic}/0 has no leader")


class Unheard(Limited):
    """Targets that nobody has looked up yet."""

    is_complete = False

    def problem(
        self, topic: str, partition: int, key: bytes | None, size_bytes: int
    ) -> tuple[Code, str] | None:
        return None if topic == NAMES.dead_letter else (TARGET_UNKNOWN, f"nobody has said what {topic} is")


def read_again(record: Outgoing, now_ms: int) -> Schedule:
    """A request that was written back, as apply reads it a little later."""
    buffered = BufferedRecord(
        record.headers, key=record.key, value=record.value, offset=50, timestamp_ms=now_ms
    )
    request = parse(buffered, SETTINGS, NAMES, KEYRING)
    assert isinstance(request, Schedule), request
    return request
