"""docs/bad-input.md, from the table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

from delayline import headers as names_of
from delayline.headers import PREFIX
from delayline.sizes import weighed
from delayline.wire import Reject, parse
from node.kafka.fetch.batches import batches_of, open_batch
from node.kafka.fetch.compression import Scratch
from tests.bad_input.odd_values import odd_numbers
from tests.bad_input.row import LEVELS_MS, Answered, Delivered, Names, RawHeader, Rejected, Row, Undelivered
from tests.bad_input.table import TABLE
from tests.support.keys import KEYRING
from tests.support.raw import Attribute, RawRecord, batch_of
from tests.unit.wire_records import TIMESTAMP_MS

PAGE: Final = Path(__file__).parents[2] / "docs" / "bad-input.md"
NAMES_SHOWN: Final = Names("delay", "app")
_LONGEST_SHOWN = 40
_MOST_HEADERS = 5
_HEAD: Final = "| | sent | comes of it |\n|---|---|---|\n"
_COMMON: Final = odd_numbers(b"1")

_INTRO: Final = f"""# Bad input, and what comes of it

Each line is sent to a real cluster by the tests, with sound messages in between, which arrive in order,
once and in time whatever stands beside them. The cluster is `delay`, allows the targets `app.*`, and has the
levels {LEVELS_MS[0]} ms and {LEVELS_MS[1]} ms. What is not said of a request is sound: a schedule for a
topic that is there. [wire-format.md](wire-format.md#dead-letters) explains the codes; here each has a detail
as it is written. What no client library would send, [the attack](attack.md) does.

This page is made by `python -m tests.bad_input` from `tests/bad_input/table.py`.
"""

_KNOWN: Final = frozenset(value for name, value in vars(names_of).items() if name.startswith("H_"))

_NUMBERS: Final = """
## What is no number

For every header that takes a number or a time, with a sound value where one is needed:

| | such as |
|---|---|
"""


def parsed(
    row: Row, place: Names = NAMES_SHOWN, offset: int = 100, timestamp_ms: int = TIMESTAMP_MS
) -> object:
    """What a node makes of a row's request: of its bytes first, then of what they say."""
    headers = tuple(
        (key.encode() if isinstance(key, str) else key, None if value is None else place.resolved(value))
        for key, value in row.headers
    )
    batch = batch_of(
        [RawRecord(row.key, row.value, headers)],
        attributes=Attribute.LOG_APPEND_TIME,
        base_offset=offset,
        max_timestamp_ms=timestamp_ms,
    )
    (stored,) = batches_of(batch.encode())
    (record,) = open_batch(row.partition, stored, Scratch()).records
    request = record.flaw or parse(record, place.settings, place.names, KEYRING)
    if not row.unpacks:
        return request  # it has no value here: nobody parses it
    value_bytes = row.zeros or len(record.value or b"")
    return weighed(request, record.key, value_bytes, record.headers, place.settings)


def rendered() -> str:
    """The page's text."""
    numbers = "".join(f"| {label} | {_shown(raw)} |\n" for label, raw in _COMMON.items())
    groups = groupby(TABLE, key=lambda row: row.group)
    return _INTRO + _NUMBERS + numbers + "".join(_section(group, list(rows)) for group, rows in groups)


def _section(group: str, rows: list[Row]) -> str:
    title = f"`{group}`" if group.startswith(PREFIX) else group
    details = "".join(f"- {code}: {detail}\n" for code, detail in _details(rows).items())
    lines = "".join(f"| {label} | {sent} | {fate} |\n" for label, sent, fate in _lines(rows))
    return f"\n## {title}\n\n" + (details and details + "\n") + _HEAD + lines


def _details(rows: Iterable[Row]) -> dict[str, str]:
    """One for each code of the group."""
    found: dict[str, str] = {}
    for row in rows:
        reject = parsed(row)
        if isinstance(reject, Reject):
            found.setdefault(f"`{reject.code}`", f"`{_inert(reject.detail)}`")
    return found


def _lines(rows: Sequence[Row]) -> Iterator[tuple[str, str, str]]:
    """A line for each row, and one for all that are no number, where all are there."""
    by_kind = {row.label: row.label.rpartition(": ") for row in rows}
    labels: dict[str, set[str]] = defaultdict(set)
    for kind, _, label in by_kind.values():
        labels[kind].add(label)
    said: set[str] = set()
    for row in rows:
        kind, colon, label = by_kind[row.label]
        if label not in _COMMON or not labels[kind] >= _COMMON.keys():
            yield row.label, _sent(row), _fate(row)
        elif kind not in said:
            said.add(kind)
            yield f"{kind}{colon}[no number](#what-is-no-number)", "", _fate(row)


def _sent(row: Row) -> str:
    shown = [_header(row, header) for header in row.odd[:_MOST_HEADERS]]
    more = ["..."] if len(row.odd) > _MOST_HEADERS else []
    return ", ".join(shown + more)


def _header(row: Row, header: RawHeader) -> str:
    name, value = header
    shown = "null" if value is None else _shown(NAMES_SHOWN.resolved(value))
    if len(row.odd) == 1 and name == row.group:
        return shown
    if isinstance(name, bytes):
        return f"{_shown(name)} = {shown}"
    return f"`{name}` = {shown}" if name in _KNOWN else f"{_shown(name.encode())} = {shown}"


def _shown(raw: bytes) -> str:
    """Escaped where it is not plain text, and cut where it is long."""
    try:
        text = repr(raw.decode()[:_LONGEST_SHOWN])
    except UnicodeDecodeError:
        text = repr(raw[:_LONGEST_SHOWN])
    cut = f"... ({len(raw):,} bytes)" if len(raw) > _LONGEST_SHOWN else ""
    return f"`{_inert(text)}`{cut}"


def _inert(text: str) -> str:
    """Within backticks in a table."""
    return text.replace("|", "\\|").replace("`", "'")


def _fate(row: Row) -> str:
    fate = row.fate
    if isinstance(fate, Rejected | Undelivered):
        return f"`{fate.code}`" + ("" if fate.whole else ", without the value")
    if isinstance(fate, Answered):
        return f"outcome `{fate.outcome}`"
    return "delivered" + _particulars(fate)


def _particulars(fate: Delivered) -> str:
    said = []
    if fate.after_ms:
        said.append(f"after {fate.after_ms} ms")
    if fate.scheduled_for_ms is not None:
        said.append(f"at once, `delay-scheduled-for` is {fate.scheduled_for_ms}")
    if fate.key is not None:
        said.append("without a key" if fate.key[0] is None else "with that key")
    if fate.partition is not None:
        said.append(f"to partition {fate.partition}")
    return " " + ", ".join(said) if said else ""
