"""What a retry does with each letter: send its request again, or leave it and say why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from delayline.names import MAX_OFFSET, ClusterNames, source
from delayline.partitioner import partition_for
from delayline.rejects import DELIVERY_CODES, RejectCode
from delayline.requests import BufferRecord
from delayline.settings import ClusterSettings
from delayline.sizes import parse_weighed
from delayline.wire import H_ID, Reject
from node.kafka.fetch.records import LogRecord
from ops.dead_letter.again import has_passed, request_again
from ops.dead_letter.letter import Letter
from ops.dead_letter.search import LetterFilter
from ops.dead_letter.since import Since
from store.keys import RecordId

LetterFate = Literal["send", "retried", "not-named", "id-used", "incomplete", "no-letter", "reject"]

WHY: Final[dict[str, str]] = {
    "send": "can be sent again",
    "retried": "was sent again before",
    "not-named": "sent again only if its place or its code is named",
    "id-used": "its id was used again since; name its place to send it all the same",
    "incomplete": "too large for a whole letter: the request is at its source alone",
    "no-letter": "not written by the service",
    "reject": "would be rejected again",
}
"""What the fates mean."""

# Nothing is wrong with the request, but that it is not worth delivering is what its sender has said.
_ON_REQUEST: Final = frozenset((RejectCode.EXPIRED,))


class Choice(NamedTuple):
    """What becomes of a letter, and the request to send; `expired`: its `delay-expire-at` has passed."""

    fate: LetterFate
    request: BufferRecord | None = None
    expired: bool = False


@dataclass(frozen=True, slots=True)
class Chooser:
    """Decides; looks at nothing but what it holds.

    Args:
        settings: the cluster's.
        wanted: the letters that were asked for; a code that is named there is meant.
        named: the letters that were named.
        since: what the buffer says of the letters.
        null_values: sources of requests that have no value, as their letters do.
        now_ms: the time that counts for `delay-expire-at`.
        keep_time: whether requests keep their own times.
    """

    settings: ClusterSettings
    wanted: LetterFilter
    named: frozenset[RecordId]
    since: Since
    null_values: frozenset[str]
    now_ms: int
    keep_time: bool

    def choose(self, letter: Letter) -> Choice:
        """What becomes of a letter."""
        obstacle = self._obstacle(letter)
        if obstacle is not None:
            return Choice(obstacle)
        request = request_again(letter, self._names.dead_letter, self.now_ms, keep_time=self.keep_time)
        if isinstance(parse_weighed(self._in_buffer(request), self.settings, self._names), Reject):
            return Choice("reject")
        return Choice("send", request, has_passed(letter, self.now_ms))

    def _obstacle(self, letter: Letter) -> LetterFate | None:
        if letter.code is None:
            return "no-letter"
        if source(self._names.dead_letter, *letter.record_id) in self.since.retried:
            return "retried"
        if not self._is_meant(letter):
            return "not-named"
        if self._is_incomplete(letter):
            return "incomplete"
        return "id-used" if self._is_overtaken(letter) else None

    @property
    def _names(self) -> ClusterNames:
        return ClusterNames(self.settings.cluster)

    def _is_meant(self, letter: Letter) -> bool:
        was_accepted = letter.code in DELIVERY_CODES - _ON_REQUEST
        return was_accepted or letter.record_id in self.named or letter.code in self.wanted.codes

    def _is_incomplete(self, letter: Letter) -> bool:
        """A request that was accepted has headers; one that asks for a delivery may have no value."""
        if not letter.headers:
            return True
        return letter.is_schedule and letter.value is None and letter.source not in self.null_values

    def _is_overtaken(self, letter: Letter) -> bool:
        raw_id = letter.first(H_ID)
        if raw_id is None or letter.record_id in self.named:
            return False
        return self.since.has_later(letter, raw_id)

    def _in_buffer(self, request: BufferRecord) -> LogRecord:
        by_id = any(key == H_ID for key, _ in request.headers) and request.key is not None
        partition = partition_for(request.key or b"", self.settings.partitions) if by_id else 0
        return LogRecord(partition, MAX_OFFSET, self.now_ms, request.key, request.value, request.headers)
