"""Why a request ends in the dead-letter topic: the stable codes, and what to do about each.

docs/wire-format.md has them as a table.
"""

from __future__ import annotations

from typing import Final

# What the request itself gets wrong, found when it is read.
_REQUEST_CODES: Final = {
    "undecodable": "the record, or the batch that it came in, cannot be read, or is larger than what is read",
    "header-key": "a header key is not UTF-8 or has a NUL byte, so the headers cannot be read",
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
    "bad-recurrence": "both delay-cron and delay-interval, or neither, or nothing to end it by",
    "bad-cron": "delay-cron is no cron expression, or one that never fires",
    "bad-interval": "delay-interval is not a duration of a second or more",
    "bad-interval-factor": "delay-interval-factor is no number from 1 to 1000, or began too long ago",
    "bad-times": "delay-times is not a number from 1 to 1,000,000",
    "bad-until": "delay-until is neither epoch milliseconds nor RFC 3339 with an offset",
    "bad-time-zone": "delay-time-zone is no time zone",
    "bad-missed": "delay-missed is none of all, latest, skip",
    "no-occurrence": "there is no occurrence by delay-until",
    "bad-if-exists": "delay-if-exists is neither replace nor keep",
    "no-id": "a cancel, a reschedule or delay-if-exists without delay-id",
    "bad-source": "delay-source of a cancel is no source before it in this cluster's buffer",
    "bad-id": "delay-id is empty, longer than 1024 bytes or not UTF-8",
    "wrong-partition": "not in partition murmur2(delay-id) mod partitions, or in that of delay-source",
    "bad-parent": "delay-parent, or what goes with it, is not what the service writes",
}

# What turned out only when the message was to be delivered.
_DELIVERY_CODES: Final = {
    "target-missing": "the target topic does not exist",
    "target-partition": "the target topic has no such partition",
    "target-unavailable": "the target had no leader, or too few replicas, however often it was tried",
    "too-large": "the target topic takes no message of that size",
    "undeliverable": "the target's broker refused the message",
    "expired": "delay-expire-at had passed when the message was to be delivered",
}

REJECT_CODES: Final[dict[str, str]] = _REQUEST_CODES | _DELIVERY_CODES
DELIVERY_CODES: Final = frozenset(_DELIVERY_CODES) | {"target-forbidden", "bad-time-zone", "no-occurrence"}
"""The codes of a request that was accepted: the brokers may forbid a target, too; and when a cron expression
fires, only the leader says.
"""

WHAT_TO_DO: Final[dict[str, str]] = {
    "undecodable": "see that the producer writes what Kafka's own clients read; send less at once",
    "header-key": "send header keys in UTF-8 without NUL, best ASCII",
    "unknown-header": "look for a typing error; rename a header of your own",
    "duplicate-header": "send it once",
    "null-header": "give it a value or leave it out",
    "header-not-allowed": "leave it out; to change the target, schedule again with the same id",
    "bad-op": "correct it",
    "no-target": "add it",
    "bad-target-topic": "correct it",
    "target-forbidden": "choose another target, or have it allowed",
    "bad-target-partition": "correct it, or leave it out",
    "time-conflict": "send one",
    "bad-deliver-at": "write epoch milliseconds or RFC 3339 with an offset",
    "bad-after": "write it as 90s, 1h30m or PT30M",
    "bad-level": "write 1 to the number of levels",
    "delay-too-long": "schedule later; check that the time is in milliseconds",
    "bad-expire-at": "write epoch milliseconds or RFC 3339 with an offset",
    "bad-recurrence": "send what goes together, and something to end it by",
    "bad-cron": "correct it",
    "bad-interval": "write it as 90s, 1h30m or PT30M",
    "bad-interval-factor": "correct it, leave it out, or start later",
    "bad-times": "correct it, or leave it out",
    "bad-until": "write epoch milliseconds or RFC 3339 with an offset",
    "bad-time-zone": "write an IANA name; update the nodes' tzdata",
    "bad-missed": "correct it, or leave it out",
    "no-occurrence": "choose a later one",
    "bad-if-exists": "correct it, or leave it out",
    "no-id": "say which message is meant",
    "bad-source": "take it from the receipt, or from a delivered message",
    "bad-id": "choose another id",
    "wrong-partition": "use the id as the record's key and the partitioner murmur2; or the source's own",
    "bad-parent": "do not send delay-parent",
    "target-missing": "create it, then send the request again",
    "target-partition": "correct it, or leave it out",
    "target-unavailable": "see to the brokers, then send the request again",
    "too-large": "raise that limit, or send less",
    "undeliverable": "see to that, then send the request again",
    "expired": "nothing, if that was meant",
}
"""The last column of the table in docs/wire-format.md."""
