"""Why a request ends in the dead-letter topic, and why a message is parked: the stable codes.

docs/wire-format.md has those of dead letters as a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Self, TypeAlias


class RejectCode(StrEnum):
    """The code of a dead letter: what is wrong, and what to do about it.

    Each is a string, and equal to what stands on the wire. A newer service may write another one: what is
    read from a letter or an outcome stays the string that it is there.
    """

    meaning: str
    what_to_do: str

    def __new__(cls, code: str, meaning: str, what_to_do: str) -> Self:
        """`what_to_do`: the last column of the table in docs/wire-format.md."""
        one = str.__new__(cls, code)
        one._value_ = code
        one.meaning, one.what_to_do = meaning, what_to_do
        return one

    # What the request itself gets wrong, found when it is read.
    UNDECODABLE = (
        "undecodable",
        "the record, or the batch that it came in, cannot be read, or is larger than what is read",
        "see that the producer writes what Kafka's own clients read; send less at once",
    )
    HEADER_KEY = (
        "header-key",
        "a header key is not UTF-8 or has a NUL byte, so the headers cannot be read",
        "send header keys in UTF-8 without NUL, best ASCII",
    )
    REQUEST_TOO_LARGE = (
        "request-too-large",
        "the request, unpacked, is larger than the cluster's max_request_bytes",
        "send less, or have that raised",
    )
    UNKNOWN_HEADER = (
        "unknown-header",
        "a header that starts with delay- is none that the service knows",
        "look for a typing error; rename a header of your own",
    )
    DUPLICATE_HEADER = ("duplicate-header", "a delay- header is there twice", "send it once")
    NULL_HEADER = (
        "null-header",
        "a delay- header has a null value (only delay-target-key may)",
        "give it a value or leave it out",
    )
    HEADER_NOT_ALLOWED = (
        "header-not-allowed",
        "a delay- header does not go with the operation in delay-op",
        "leave it out; to change the target, schedule again with the same id",
    )
    BAD_OP = ("bad-op", "delay-op is none of schedule, cancel, reschedule", "correct it")
    NO_TARGET = ("no-target", "a schedule has no delay-target-topic", "add it")
    BAD_TARGET_TOPIC = (
        "bad-target-topic",
        "delay-target-topic is not a name that Kafka allows",
        "correct it",
    )
    TARGET_FORBIDDEN = (
        "target-forbidden",
        "the target is the service's own, Kafka's own, or not on the cluster's allow-list",
        "choose another target, or have it allowed",
    )
    BAD_TARGET_PARTITION = (
        "bad-target-partition",
        "delay-target-partition is not a number from 0 to 2147483647",
        "correct it, or leave it out",
    )
    TIME_CONFLICT = (
        "time-conflict",
        "more than one of delay-deliver-at, delay-after, delay-level",
        "send one",
    )
    BAD_DELIVER_AT = (
        "bad-deliver-at",
        "delay-deliver-at is neither epoch milliseconds nor RFC 3339 with an offset",
        "write epoch milliseconds or RFC 3339 with an offset",
    )
    BAD_AFTER = ("bad-after", "delay-after is not a duration", "write it as 90s, 1h30m or PT30M")
    BAD_LEVEL = ("bad-level", "delay-level is not a whole number", "write 1 to the number of levels")
    DELAY_TOO_LONG = (
        "delay-too-long",
        "the time is further after the request's timestamp than the cluster's max_delay",
        "schedule later; check that the time is in milliseconds",
    )
    BAD_EXPIRE_AT = (
        "bad-expire-at",
        "delay-expire-at is neither epoch milliseconds nor RFC 3339 with an offset",
        "write epoch milliseconds or RFC 3339 with an offset",
    )
    BAD_RECURRENCE = (
        "bad-recurrence",
        "both delay-cron and delay-interval, or neither, or nothing to end it by",
        "send what goes together, and something to end it by",
    )
    BAD_CRON = ("bad-cron", "delay-cron is no cron expression, or one that never fires", "correct it")
    BAD_INTERVAL = (
        "bad-interval",
        "delay-interval is not a duration of a second or more",
        "write it as 90s, 1h30m or PT30M",
    )
    BAD_INTERVAL_FACTOR = (
        "bad-interval-factor",
        "delay-interval-factor is no number from 1 to 1000, or began too long ago",
        "correct it, leave it out, or start later",
    )
    BAD_TIMES = (
        "bad-times",
        "delay-times is not a number from 1 to 1,000,000",
        "correct it, or leave it out",
    )
    BAD_UNTIL = (
        "bad-until",
        "delay-until is neither epoch milliseconds nor RFC 3339 with an offset",
        "write epoch milliseconds or RFC 3339 with an offset",
    )
    BAD_TIME_ZONE = (
        "bad-time-zone",
        "delay-time-zone is no time zone",
        "write an IANA name; update the nodes' tzdata",
    )
    BAD_MISSED = ("bad-missed", "delay-missed is none of all, latest, skip", "correct it, or leave it out")
    NO_OCCURRENCE = ("no-occurrence", "there is no occurrence by delay-until", "choose a later one")
    BAD_IF_EXISTS = (
        "bad-if-exists",
        "delay-if-exists is neither replace nor keep",
        "correct it, or leave it out",
    )
    NO_ID = (
        "no-id",
        "a cancel, a reschedule or delay-if-exists without delay-id",
        "say which message is meant",
    )
    BAD_SOURCE = (
        "bad-source",
        "delay-source of a cancel is no source before it in this cluster's buffer",
        "take it from the receipt, or from a delivered message",
    )
    BAD_ID = ("bad-id", "delay-id is empty, longer than 1024 bytes or not UTF-8", "choose another id")
    WRONG_PARTITION = (
        "wrong-partition",
        "not in partition murmur2(delay-id) mod partitions, or in that of delay-source",
        "use the id as the record's key and the partitioner murmur2; or the source's own",
    )
    BAD_PARENT = (
        "bad-parent",
        "delay-parent, or what goes with it, is not what the service writes",
        "do not send delay-parent",
    )
    # What turned out only when the message was to be delivered.
    TARGET_MISSING = (
        "target-missing",
        "the target topic does not exist",
        "create it, then send the request again",
    )
    TARGET_PARTITION = (
        "target-partition",
        "the target topic has no such partition",
        "correct it, or leave it out",
    )
    TARGET_UNAVAILABLE = (
        "target-unavailable",
        "the target had no leader, or too few replicas, however often it was tried",
        "see to the brokers, then send the request again",
    )
    TOO_LARGE = (
        "too-large",
        "the target topic takes no message of that size",
        "raise that limit, or send less",
    )
    UNDELIVERABLE = (
        "undeliverable",
        "the target's broker refused the message",
        "see to that, then send the request again",
    )
    EXPIRED = (
        "expired",
        "delay-expire-at had passed when the message was to be delivered",
        "nothing, if that was meant",
    )


REJECT_CODES: Final[Mapping[str, RejectCode]] = {code: code for code in RejectCode}
"""Each by what stands on the wire."""

DELIVERY_CODES: Final = frozenset(
    (
        RejectCode.TARGET_MISSING,
        RejectCode.TARGET_PARTITION,
        RejectCode.TARGET_UNAVAILABLE,
        RejectCode.TOO_LARGE,
        RejectCode.UNDELIVERABLE,
        RejectCode.EXPIRED,
        RejectCode.TARGET_FORBIDDEN,
        RejectCode.BAD_TIME_ZONE,
        RejectCode.NO_OCCURRENCE,
    )
)
"""The codes of a request that was accepted: the brokers may forbid a target, too; and when a cron expression
fires, only the leader says.
"""


class ParkCode(StrEnum):
    """Why a message is parked that is no dead letter for it, however often that is. Other parks have the
    `RejectCode` that the message would be a dead letter with in the end.
    """

    TARGET_PAUSED = "target-paused"
    TARGET_UNKNOWN = "target-unknown"


Code: TypeAlias = RejectCode | ParkCode
"""Of an outcome."""
