"""What stands where a number or a time is expected."""

from __future__ import annotations


def odd_numbers(good: bytes) -> dict[str, bytes]:
    """What is no number for any header, by what is odd about it; `good` would be one."""
    return {
        "empty": b"",
        "a space": b" ",
        "a space before it": b" " + good,
        "a space behind it": good + b" ",
        "a tab before it": b"\t" + good,
        "a line end behind it": good + b"\n",
        "plus sign": b"+" + good,
        "two minus signs": b"--" + good,
        "quotation marks": b'"' + good + b'"',
        "underscore": b"1_0",
        "comma": b"1,000",
        "hexadecimal": b"0x1",
        "decimal point": b"1.0",
        "exponent": b"1e3",
        "1e400": b"1e400",
        "not a number": b"NaN",
        "infinity": b"inf",
        "null as text": b"null",
        "a zero byte": b"\x00",
        "binary": b"\x00\x00\x00\x00\x00\x00\x00\x01",
        "not UTF-8": b"\xff\xfe",
        "2^63": b"9223372036854775808",
        "2^64": b"18446744073709551616",
        "5,000 digits": b"1" * 5_000,
        "Arabic-Indic digits": "١٢٣".encode(),
        "full-width digits": "\uff11\uff12\uff13".encode(),
        "superscript": "²".encode(),
    }


ODD_TIMES: dict[str, bytes] = {
    **odd_numbers(b"1577836800000"),
    "negative": b"-1",
    "a duration": b"90s",
    "a word": b"tomorrow",
    "a date alone": b"2020-01-01",
    "no offset": b"2020-01-01T00:00:00",
    "no seconds": b"2020-01-01T00:00Z",
    "a space for the T": b"2020-01-01 00:00:00Z",
    "without separators": b"20200101T000000Z",
    "offset without a colon": b"2020-01-01T00:00:00+0100",
    "offset of 24 hours": b"2020-01-01T00:00:00+24:00",
    "a zone's name": b"2020-01-01T00:00:00 Europe/Berlin",
    "a fraction without digits": b"2020-01-01T00:00:00.Z",
    "a fraction with a comma": b"2020-01-01T00:00:00,5Z",
    "a fraction of 60 digits": b"2020-01-01T00:00:00." + b"1" * 60 + b"Z",
    "full-width digits in a date": "\uff12\uff10\uff12\uff10-01-01T00:00:00Z".encode(),
    "30 February": b"2020-02-30T00:00:00Z",
    "29 February, no leap year": b"2019-02-29T00:00:00Z",
    "31 April": b"2020-04-31T00:00:00Z",
    "month 13": b"2020-13-01T00:00:00Z",
    "day 0": b"2020-01-00T00:00:00Z",
    "hour 24": b"2020-01-01T24:00:00Z",
    "minute 60": b"2020-01-01T00:60:00Z",
    "leap second": b"2016-12-31T23:59:60Z",
    "year 0": b"0000-01-01T00:00:00Z",
    "year 1": b"0001-01-01T00:00:00Z",
    "year 10000": b"10000-01-01T00:00:00Z",
    "negative year": b"-2020-01-01T00:00:00Z",
    "before 1970": b"1969-12-31T23:59:59Z",
    "before 1970 by its offset": b"1970-01-01T00:00:00+00:01",
}

PAST_TIMES: dict[str, tuple[bytes, int]] = {
    "the beginning": (b"0", 0),
    "zeros in front": (b"0001577836800000", 1_577_836_800_000),
    "seconds taken for milliseconds": (b"1577836800", 1_577_836_800),
    "29 February of a leap year": (b"2020-02-29T00:00:00Z", 1_582_934_400_000),
    "small letters": (b"2020-01-01t00:00:00z", 1_577_836_800_000),
    "an offset": (b"2020-01-01T01:00:00+01:00", 1_577_836_800_000),
    "an unknown offset": (b"2020-01-01T00:00:00-00:00", 1_577_836_800_000),
    "finer than a millisecond": (b"2020-01-01T00:00:00.0000001Z", 1_577_836_800_001),
}
