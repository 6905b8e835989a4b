"""Why a request ends in the dead-letter topic: the stable codes.

docs/wire-format.md says what to do about each.
"""

from __future__ import annotations

from typing import Final

# What the request itself gets wrong, found when it is read.
_REQUEST_CODES: Final = {
    "header-key": "a header key is not UTF-8, so the headers cannot be read",
    "unknown-header": "a header that starts with delay- is none that the service knows",
    "duplicate-header": "a delay- header is there twice",
    "null-header": "a delay- header has a null value (only delay-target-key may)",
    "header-not-allowed": "a delay- header does not go with the operation in delay-op",
    "bad-op": "delay-op is none of schedule, cancel, reschedule",
    "no-target": "a schedule has no delay-target-topic",
    "bad-target-topic": "delay-target-topic is not a name that Kafka allows",
    "target-forbidden": "the target is the service's own, Kafka's own, or not on the cluster's allow-list",
    "bad-target-partition": "delay-target-partition is not a number from 0 to 2147483647",
    "time-conflict": "more than one of delay-deliver-at, delay-after, delay-level",
    "bad-deliver-at": "delay-deliver-at is neither epoch milliseconds nor RFC 3339 with an offset",
    "bad-after": "delay-after is not a duration",
    "bad-level": "delay-level is not a whole number",
    "delay-too-long": "the time is further after the request's timestamp than the cluster's max_delay",
    "bad-expire-at": "delay-expire-at is neither epoch milliseconds nor RFC 3339 with an offset",
    "no-id": "a cancel or reschedule has no delay-id",
    "bad-id": "delay-id is empty, longer than 1024 bytes or not UTF-8",
    "wrong-partition": "a request with delay-id is not in partition murmur2(id) mod partitions",
    "bad-parent": "delay-parent, or what goes with it, is not what the service writes",
}

# What turned out only when the message was to be delivered.
_DELIVERY_CODES: Final = {
    "target-missing": "the target topic does not exist",
    "target-partition": "the target topic has no such partition",
    "too-large": "the target topic takes no message of that size",
    "undeliverable": "the target's broker refused the message",
    "expired": "delay-expire-at had passed when the message was to be delivered",
}

REJECT_CODES: Final[dict[str, str]] = _REQUEST_CODES | _DELIVERY_CODES
DELIVERY_CODES: Final = frozenset(_DELIVERY_CODES) | {"target-forbidden"}
"""The codes of a request that was accepted: the brokers may forbid a target, too."""
