"""Contents as digests: equal bytes, in equal order, and nothing else, give equal digests.

Joins then carry 32 bytes for a key or a value of any size. The digest of a whole record is for the ledger of
what producers saw acknowledged, which is written without Spark.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from delayline.wire import Header

# Stands for what is not there; no digest is all zeros.
_ABSENT = bytes(32)


def digest(part: Column) -> Column:
    """SHA-256 of bytes, itself as bytes; null for null."""
    return F.unhex(F.sha2(part, 256))


def content_digest(key_sha: Column, value_sha: Column, headers_sha: Column) -> Column:
    """One digest, in hexadecimal, of a whole record, from the digests of its parts."""
    parts = (F.coalesce(part, F.lit(_ABSENT)) for part in (key_sha, value_sha, headers_sha))
    return F.sha2(F.concat(*parts), 256)


def content_of(key: bytes | None, value: bytes | None, headers: Sequence[Header] | None) -> str:
    """What `content_digest` gives for a record with this key, value and headers."""
    parts = (_digest_of(key), _digest_of(value), headers_digest_of(headers or ()))
    return hashlib.sha256(b"".join(parts)).hexdigest()


def headers_digest_of(headers: Sequence[Header]) -> bytes:
    """SHA-256 of headers in their order; each part with its length before it, a null value with length -1."""
    parts = []
    for name, value in headers:
        raw = name.encode("utf-8", "surrogateescape")
        parts.append(b"%d:%b%d:%b" % (len(raw), raw, -1 if value is None else len(value), value or b""))
    return hashlib.sha256(b"".join(parts)).digest()


def last_header(headers: Column, key: str) -> Column:
    """The value, as text, of the last header called `key`; null if there is none."""
    from_the_end = F.array_position(F.reverse(headers["key"]), key)  # from 1 on; 0: nowhere
    return F.get(F.reverse(headers["value"]), (from_the_end - 1).cast("int")).cast("string")


def _digest_of(part: bytes | None) -> bytes:
    return _ABSENT if part is None else hashlib.sha256(part).digest()
