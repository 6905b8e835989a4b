"""`delayline dead-letter`: what could not be accepted or delivered, and sending it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ops.cli.operator import agree, confirm_option, expect_answer
from ops.cli.options import connect, connect_kafka, connection_options, together
from ops.cli.output import Format, age, emit, emit_one, output_option, printable, say

if TYPE_CHECKING:
    from delayline.wire import Header
    from node.config import ConnectionConfig
    from ops.dead_letter.letter import Letter
    from ops.dead_letter.retry import SentLetters, Tally
    from ops.dead_letter.search import LetterFilter
    from store.keys import RecordId

_SHORT = 60


@click.group("dead-letter")
def dead_letter_group() -> None:
    """List, show and retry what could not be accepted or delivered."""


def _time_ms(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    from delayline.times import parse_time

    try:
        return None if value is None else parse_time(value.encode())
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is no time: {error}") from error


def _codes(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> frozenset[str]:
    from delayline.rejects import REJECT_CODES

    for value in values:
        if value not in REJECT_CODES:
            raise click.BadParameter(
                f"{value!r} is no code of a dead letter: docs/wire-format.md has them all"
            )
    return frozenset(values)


_filter_options = together(
    click.option("--code", "codes", multiple=True, callback=_codes, help="Of this code; may be repeated."),
    click.option("--target", metavar="TOPIC", help="To this target topic."),
    click.option("--id", metavar="ID", help="With this delay-id."),
    click.option("--from", "from_ms", metavar="TIME", callback=_time_ms, help="Not older than this."),
    click.option("--to", "to_ms", metavar="TIME", callback=_time_ms, help="Older than this."),
)
_FILTER_NAMES = ("codes", "target", "id", "from_ms", "to_ms")


def _wanted(options: dict[str, Any]) -> LetterFilter:
    from ops.dead_letter.search import LetterFilter

    return LetterFilter(**{name: options.pop(name) for name in _FILTER_NAMES})


LETTER_COLUMNS = {
    "place": "place",
    "when": "when",
    "code": "code",
    "id": "id",
    "target": "target",
    "detail": "detail",
}
CODE_COLUMNS = {"code": "code", "letters": "letters"}


@dead_letter_group.command(
    "list", epilog="Example: delayline dead-letter list --code target-missing --from 2030-01-01T00:00:00Z"
)
@_filter_options
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="Letters to show.")
@click.option("--oldest-first", is_flag=True, help="The oldest ones (default: the newest).")
@output_option
@connection_options
def list_(output: Format, limit: int, *, oldest_first: bool, **options: Any) -> None:
    """List dead letters, and how many there are of each code."""
    from delayline.times import now_ms
    from ops.dead_letter.search import find, listed

    wanted = _wanted(options)
    listing = listed(find(connect_kafka(options), wanted), limit, oldest_first=oldest_first)
    total = listing.codes.total()
    codes = [{"code": code, "letters": count} for code, count in listing.codes.most_common()]
    if output != "table":
        letters = [_as_data(letter) for letter in listing.letters]
        emit(output, [], {}, data={"total": total, "codes": dict(listing.codes), "letters": letters})
    elif total:
        listed_ms = now_ms()
        emit(output, [_row(letter, listed_ms) for letter in listing.letters], LETTER_COLUMNS)
        click.echo()
        emit(output, codes, CODE_COLUMNS)
    say(f"{len(listing.letters)} of {total} dead letters" if total else "no dead letters")


@dead_letter_group.command(epilog="Example: delayline dead-letter show 0/17")
@click.argument("place")
@output_option
@connection_options
def show(output: Format, place: str, **options: Any) -> None:
    """Show all of the letter at PLACE (partition/offset), and what to do about its code."""
    from ops.dead_letter.search import find_at

    config = connect_kafka(options)
    (letter,) = find_at(config, _places((place,), config.cluster))
    emit_one(output, _for_people(letter) if output == "table" else _whole(letter))


@dead_letter_group.command(epilog="Example: delayline dead-letter retry --code target-missing --execute")
@click.argument("places", nargs=-1, metavar="[PLACE]...")
@_filter_options
@click.option("--limit", type=click.IntRange(1), help="Only so many, the oldest ones (default: all).")
@click.option("--keep-time", is_flag=True, help="Due when the request says (default: at once).")
@click.option("--execute", is_flag=True, help="Send them (default: say what would be sent).")
@confirm_option
@output_option
@connection_options
def retry(
    output: Format, places: tuple[str, ...], confirm: str | None, *, execute: bool, **options: Any
) -> None:
    """Send the requests of dead letters to the buffer again: those at PLACEs, or those that the options name.

    Without --execute it says how many there are, and of which codes. A letter is sent again once. Left out,
    unless their place or code is named: requests that were rejected for what they are, and expired ones.
    """
    from delayline.times import now_ms
    from ops.dead_letter.retry import LettersToRetry, send, survey
    from ops.topics import cluster_topics

    wanted = _wanted(options)
    limit, keep_time = options.pop("limit"), options.pop("keep_time")
    if places and (limit is not None or wanted != type(wanted)()):
        raise click.UsageError("give places, or options that choose letters: not both")
    if execute:
        expect_answer(confirm)
    config = connect(options)
    asked = LettersToRetry(wanted, _places(places, config.cluster), limit, keep_time, now_ms())
    found = survey(config, cluster_topics.read_settings(config), asked)
    tally = found.tally()
    if not execute or not tally.to_send:
        _emit_retry(output, config, tally, None)
        _say_dry(tally, execute=execute)
        return
    agree(config.cluster, confirm, f"{_count(tally.to_send)} will be sent again")
    sent = send(found)
    _emit_retry(output, config, tally, sent)
    _say_sent(tally, sent)


def _places(texts: tuple[str, ...], cluster: str) -> frozenset[RecordId]:
    from delayline.names import ClusterNames
    from ops.dead_letter.letter import parse_place

    try:
        return frozenset(parse_place(text, ClusterNames(cluster).dead_letter) for text in texts)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="PLACE") from error


RETRY_COLUMNS = {"letters": "letters", "code": "code", "target": "target", "why": "what becomes of them"}


def _emit_retry(output: Format, config: ConnectionConfig, tally: Tally, sent: SentLetters | None) -> None:
    from ops.dead_letter.choice import WHY

    rows = [
        {**group._asdict(), "letters": count, "why": WHY[group.fate]}
        for group, count in sorted(tally.groups.items(), key=lambda item: (item[0].fate != "send", -item[1]))
    ]
    if output == "table":
        if rows:
            emit(output, [{**row, "target": _shown(row["target"])} for row in rows], RETRY_COLUMNS)
        return
    data = {"cluster": config.cluster, "to_send": tally.to_send, "expired_meanwhile": tally.expired}
    emit(output, [], {}, data=data | {"groups": rows, "sent": None if sent is None else _sent_rows(sent)})


def _sent_rows(sent: SentLetters) -> list[dict[str, str]]:
    from ops.dead_letter.letter import render_place

    return [
        {"place": render_place(record_id), "source": source} for record_id, source in sent.sources.items()
    ]


def _say_dry(tally: Tally, *, execute: bool) -> None:
    expired = f", {tally.expired} of them past their delay-expire-at" if tally.expired else ""
    then = "" if execute or not tally.to_send else "; --execute sends them"
    say(f"{_count(tally.to_send)} can be sent again{expired}; nothing was sent{then}")


def _say_sent(tally: Tally, sent: SentLetters) -> None:
    """Raises what ended the sending too early, with what was sent."""
    done = f"{len(sent.sources)} of {_count(tally.to_send)} sent again"
    if sent.error is None:
        say(done)
        return
    from ops.errors import OperatorError, translated

    for row in _sent_rows(sent):
        say(f"sent: {row['place']} is {row['source']}")
    kind = type(translated(sent.error) or OperatorError())
    raise kind(f"{done}, then: {sent.error}; run it again: what has arrived in the buffer is left out then")


def _count(letters: int) -> str:
    return f"{letters} letter{'' if letters == 1 else 's'}"


def _as_data(letter: Letter) -> dict[str, Any]:
    from ops.dead_letter.letter import render_place

    return {
        "place": render_place(letter.record_id),
        "at_ms": letter.at_ms,
        "code": letter.code,
        "id": letter.id,
        "target": letter.target,
        "source": letter.source,
        "detail": letter.detail,
    }


def _row(letter: Letter, now_ms: int) -> dict[str, Any]:
    short = letter.detail if len(letter.detail) <= _SHORT else letter.detail[: _SHORT - 3] + "..."
    shown = {name: _shown(value) for name, value in _as_data(letter).items() if name != "at_ms"}
    return {**shown, "when": age(letter.at_ms, now_ms), "detail": _shown(short)}


def _whole(letter: Letter) -> dict[str, Any]:
    from delayline.rejects import REJECT_CODES

    known = REJECT_CODES.get(letter.code or "")
    return {
        **_as_data(letter),
        "meaning": None if known is None else known.meaning,
        "what_to_do": None if known is None else known.what_to_do,
        "key": _data(letter.key),
        "headers": [[name, _data(value)] for name, value in letter.headers],
        "value": _data(letter.value),
    }


def _for_people(letter: Letter) -> dict[str, Any]:
    from delayline.times import now_ms

    whole = _whole(letter)
    headers = [_header(header) for header in letter.headers]
    shown = {name: _shown(value) for name, value in whole.items() if name not in ("headers", "at_ms")}
    shown["place"] = f"{whole['place']}, written {age(letter.at_ms, now_ms())}"
    shown["value"] = _bytes(letter.value, "\n\t")
    return {**shown, "key": _bytes(letter.key), "headers": "\n".join(headers) or None}


def _header(header: Header) -> str:
    name, value = header
    return f"{_shown(name)} = {_bytes(value) or '(null)'}"


def _data(value: bytes | None) -> Any:
    """For JSON: text, or the size of what is none."""
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return {"bytes": len(value or b"")}


def _bytes(value: bytes | None, also: str = "") -> str | None:
    text = _data(value)
    return f"({text['bytes']} bytes, not text)" if isinstance(text, dict) else _shown(text, also)


def _shown(text: str | None, also: str = "") -> str | None:
    """Users' text, which must not write to the terminal by itself."""
    return None if text is None else printable(text, also)
