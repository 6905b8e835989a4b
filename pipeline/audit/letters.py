"""Whether a dead letter holds its request: whole, or all that the dead-letter topic has room for."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from delayline.rejects import RejectCode
from delayline.sizes import Kept

# delay-source, delay-error, delay-error-detail.
_ADDED: Final = 3
# At most, of a batch of one record and of each header: lengths, attributes, checksum.
_FRAMING_BYTES: Final = 100
_HEADER_FRAMING_BYTES: Final = 10
# Their letters have none of the headers.
SHORN: Final = (RejectCode.HEADER_KEY, RejectCode.UNDECODABLE)
# The brokers have refused the message for what it is: they may refuse its letter, too, and then it is bare.
_REFUSED: Final = (RejectCode.TOO_LARGE, RejectCode.UNDELIVERABLE)


def altered_parts(limit_bytes: int) -> Column:
    """What of the request (the user's, or what was written back) is not in its letter as it was; empty if
    nothing, or if that was left out by the rule: value, then headers, then key; of a reject that is too large
    the value, or all. The letter of a whole batch has nothing of it.

    `limit_bytes`: what was not larger has had room.
    """
    letter, row = F.col("letter"), F.col("row")
    had = F.slice(letter["headers"], 1, F.greatest(F.size(letter["headers"]) - _ADDED, F.lit(0)))
    readable = ~F.coalesce(F.col("code").isin(*SHORN), F.lit(False))
    same_key = letter["key_sha"].eqNullSafe(row["key_sha"])
    same_headers = ~readable | (had == row["headers"])
    parts = F.concat_ws(
        ", ",
        F.when(~same_key, "key"),
        F.when(~letter["value_sha"].eqNullSafe(row["value_sha"]), "value"),
        F.when(~same_headers, "headers"),
    )
    added_bytes = _headers_bytes(F.slice(letter["headers"], -_ADDED, _ADDED)) + _FRAMING_BYTES
    with_key = added_bytes + F.coalesce(row["key_bytes"], F.lit(0))
    with_headers = with_key + _headers_bytes(row["headers"])
    whole = with_headers + F.coalesce(row["value_bytes"], F.lit(0))
    no_headers = F.size(had) == 0
    no_room = (
        F.when(same_key & same_headers, whole > limit_bytes)
        .when(same_key & no_headers, with_headers > limit_bytes)
        .when(
            letter["key_sha"].isNull() & no_headers,
            (with_key > limit_bytes) | letter["code"].isin(*_REFUSED),
        )
    )
    not_kept = F.when(same_key & same_headers, F.col("kept") <= int(Kept.ALL_BUT_VALUE)).when(
        letter["key_sha"].isNull() & no_headers, F.col("kept") == int(Kept.NOTHING)
    )
    left_out = letter["value_sha"].isNull() & F.coalesce(no_room, not_kept, F.lit(False))
    return F.when(left_out | F.col("batch").isNotNull(), "").otherwise(parts)


def _headers_bytes(headers: Column) -> Column:
    sizes = F.transform(
        headers,
        lambda header: F.octet_length(header["key"]) + F.coalesce(F.octet_length(header["value"]), F.lit(0)),
    )
    framing = F.size(headers) * _HEADER_FRAMING_BYTES
    return F.aggregate(sizes, F.lit(0), lambda total, size: total + size) + framing
