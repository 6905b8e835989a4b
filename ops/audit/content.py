"""Key, value and headers as digests: equal bytes, in equal order, and nothing else, give equal digests.

Joins then carry 32 bytes for a part of a record, whatever its size. The same is computed here in Spark, for
records read from Kafka, and in Python, for the ledger of what producers saw acknowledged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  # as Spark's own documentation has it

from delayline.headers import PREFIX, Header

ABSENT = "-"


def digest(part: Column) -> Column:
    """SHA-256 of bytes, itself as bytes; null for null."""
    return F.unhex(F.sha2(part, 256))


def headers_digest(headers: Column) -> Column:
    """SHA-256 of headers, in their order, a null value told from an empty one."""
    written = F.transform(
        headers,
        lambda header: F.concat(
            F.hex(header["key"]), F.lit(":"), F.coalesce(F.hex(header["value"]), F.lit(ABSENT))
        ),
    )
    return digest(F.concat_ws(",", written).cast("binary"))


def content_digest(key: Column, value: Column, headers: Column) -> Column:
    """One digest, in hexadecimal, of a whole record, from the digests of its parts."""
    parts = [F.coalesce(F.lower(F.hex(part)), F.lit(ABSENT)) for part in (key, value, headers)]
    return F.sha2(F.concat_ws("/", *parts).cast("binary"), 256)


def content_of(key: bytes | None, value: bytes | None, headers: Sequence[Header] | None) -> str:
    """What `content_digest` gives for a record with this key, value and headers."""
    written = ",".join(f"{_hex(name.encode())}:{_hex(content)}" for name, content in headers or ())
    parts = (_sha256(key), _sha256(value), _sha256(written.encode()))
    return hashlib.sha256("/".join(parts).encode()).hexdigest()


def own_headers(headers: Column) -> Column:
    """The user's headers, without the service's."""
    return F.filter(headers, lambda header: ~header["key"].startswith(PREFIX))


def service_headers(headers: Column) -> Column:
    """The service's headers as sorted texts `key=value`."""
    ours = F.filter(headers, lambda header: header["key"].startswith(PREFIX))
    return F.array_sort(F.transform(ours, lambda header: _assignment(header["key"], header["value"])))


def _assignment(key: Column, value: Column) -> Column:
    return F.concat(key, F.lit("="), F.coalesce(value.cast("string"), F.lit("(null)")))


def last_header(headers: Column, key: str) -> Column:
    """The value, as text, of the last header called `key`; null if there is none."""
    found = F.filter(headers, lambda header: header["key"] == key)
    return F.get(found, F.size(found) - 1)["value"].cast("string")


def _hex(content: bytes | None) -> str:
    return ABSENT if content is None else content.hex().upper()


def _sha256(part: bytes | None) -> str:
    return ABSENT if part is None else hashlib.sha256(part).hexdigest()
