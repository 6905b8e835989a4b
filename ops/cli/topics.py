"""`delayline topics`: make the cluster, and see that its topics are as they must be."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ops.cli.operator import someone
from ops.cli.options import Command, connect, connection_options, together
from ops.cli.output import Format, emit, emit_one, output_option, say

if TYPE_CHECKING:
    from delayline.settings import ClusterSettings
    from ops.clients.topic_findings import TopicFinding
    from ops.topics.cluster_topics import Created


LIKE_MAX_DELAY = "max-delay"  # a retention; see `restore_command` (node/refusal.py), too


@click.group("topics")
def topics_group() -> None:
    """Create and check the cluster's topics and settings."""


def _durations(_: click.Context, __: click.Parameter, value: Any) -> Any:
    """Durations as in the `delay-after` header, in milliseconds."""
    if isinstance(value, tuple):
        return tuple(_duration_ms(text) for text in value)
    return None if value is None else _duration_ms(value)


def _duration_ms(text: str) -> int:
    from delayline.times import parse_duration

    try:
        return parse_duration(text.encode())
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is no duration: {error}") from error


def _retention(context: click.Context, parameter: click.Parameter, value: str | None) -> int | str | None:
    return value if value == LIKE_MAX_DELAY else _durations(context, parameter, value)


def changeable_options(retention: str, **helps: str) -> Callable[[Command], Command]:
    """The settings that are chosen for a new cluster, and can be changed later. `retention`: what it may be;
    `helps`: what each is, by its name.
    """

    def durations(flag: str, name: str, metavar: str = "DURATION", **more: Any) -> Callable[[Any], Any]:
        more = {"callback": _durations} | more
        return click.option(flag, name, metavar=metavar, help=helps[name], **more)

    return together(
        durations("--retention", "retention_ms", retention, callback=_retention),
        durations("--max-delay", "max_delay_ms"),
        durations("--level", "levels_ms", multiple=True),
        click.option("--target", "targets", multiple=True, help=helps["targets"]),
        durations("--dedup-window", "dedup_window_ms"),
        click.option("--max-request-bytes", type=int, help=helps["max_request_bytes"]),
        click.option("--meaning", type=int, help=helps["meaning"]),
    )


_settings_options = together(
    click.option("--partitions", type=int, help="Of the buffer (default: 4)."),
    click.option(
        "--lanes", type=int, help="Units of replication and election they are split into (default: 1)."
    ),
    changeable_options(
        f"DURATION|{LIKE_MAX_DELAY}",
        retention_ms="How long the buffer keeps a record; what waits longer is written again in time"
        f" (default: 7d). {LIKE_MAX_DELAY}: for longer than any delay; nothing is written again.",
        max_delay_ms="Longest delay accepted (default: 3653d, ten years; with --retention"
        f" {LIKE_MAX_DELAY} 366d).",
        levels_ms="Delay of level 1, 2, ... (default: RocketMQ's 18).",
        targets="Allow only targets like this glob; may be repeated.",
        dedup_window_ms="How long after its due time an id is still known to delay-if-exists: keep"
        " (default: 1h).",
        max_request_bytes="Largest request accepted, unpacked (default: 1000000). The buffer takes 4096"
        " more.",
        meaning="How requests are read (default: 2). 1: as version 0.1.0 does, which can then be run, too.",
    ),
)
_SETTINGS = (
    *("partitions", "lanes", "retention_ms", "max_delay_ms"),
    *("levels_ms", "targets", "dedup_window_ms", "max_request_bytes", "meaning"),
)


def chosen_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Takes the settings that were given from the options: fields of `ClusterSettings`."""
    given = {key: value for key in _SETTINGS if (value := options.pop(key, None)) not in (None, ())}
    if given.get("retention_ms") == LIKE_MAX_DELAY:
        given["retention_ms"] = None
    return given


@topics_group.command(
    epilog="Example: delayline topics create --partitions 8 --lanes 2 --max-delay 30d --target 'orders.*'"
)
@_settings_options
@click.option("--replication", type=click.IntRange(1), help="Of new topics (default: 3, or one a broker).")
@click.option(
    "--new-keys",
    is_flag=True,
    help="Make keys though ZooKeeper has lost the old ones: only if no node has its data folder.",
)
@click.option(
    "--restore",
    is_flag=True,
    help="Write the settings that the cluster was made with: those of their topic, or what a node says.",
)
@output_option
@connection_options
def create(output: Format, replication: int | None, *, restore: bool, **options: Any) -> int | None:
    """Make the cluster: its settings and its topics.

    Running this again makes what is missing, such as a lost checkpoint topic, and changes nothing else:
    'delayline settings change' changes settings. Where ZooKeeper has lost them, or somebody has written
    others there, none are made beside requests: the nodes put them back from the settings topic, or say which
    command restores them.
    """
    from ops.topics import cluster_topics

    chosen, new_keys = chosen_settings(options), options.pop("new_keys")
    config = connect(options)
    created = cluster_topics.create(
        config,
        chosen,
        replication=replication,
        new_keys=new_keys,
        restore=someone("topics create --restore") if restore else None,
    )
    data = _as_data(created)
    emit_one(output, _for_people(data) if output == "table" else data)
    _comment(created)
    return 1 if created.findings else None


@topics_group.command(epilog="Example: delayline topics check --target orders")
@click.option("--target", help="Check also that this topic takes every message that the buffer takes.")
@output_option
@connection_options
def check(output: Format, target: str | None, **options: Any) -> int | None:
    """Say exactly what is wrong with the topics, and the command that mends it.

    Exit code 1 if anything is.
    """
    from ops.topics import cluster_topics, marks

    config = connect(options)
    findings = cluster_topics.check(config, target) + marks.check_marks(config)
    if findings or output != "table":
        emit(output, [_finding(found) for found in findings], FINDING_COLUMNS)
    if not findings:
        say("All topics are as they must be.")
    return 1 if findings else None


FINDING_COLUMNS = {"topic": "topic", "problem": "problem", "mend": "mend with"}


def _finding(found: TopicFinding) -> dict[str, str]:
    return {"topic": found.topic, "problem": found.problem, "mend": found.mend}


def _as_data(created: Created) -> dict[str, Any]:
    settings = created.settings
    return {
        **settings_as_data(settings),
        "settings_written": created.settings_written,
        "topics_made": list(created.topics),
        "keys_made": created.keys_made,
        "findings": [_finding(found) for found in created.findings],
    }


def settings_as_data(settings: ClusterSettings) -> dict[str, Any]:
    """For programs."""
    from delayline.settings import FIRST_MEANING

    return {
        "cluster": settings.cluster,
        "partitions": settings.partitions,
        "lanes": settings.lanes,
        "retention_ms": settings.retention_ms,
        "max_delay_ms": settings.max_delay_ms,
        "levels_ms": list(settings.levels_ms),
        "targets": list(settings.targets),
        "dedup_window_ms": settings.dedup_window_ms,
        "max_request_bytes": None if settings.meaning == FIRST_MEANING else settings.max_request_bytes,
        "meaning": settings.meaning,
    }


def for_people(data: dict[str, Any]) -> dict[str, Any]:
    """The same, for those who read it."""
    from delayline.times import render_duration

    return {
        "cluster": data["cluster"],
        "partitions": data["partitions"],
        "lanes": data["lanes"],
        "retention": _kept(data["retention_ms"]),
        "max delay": render_duration(data["max_delay_ms"]),
        "levels": " ".join(map(render_duration, data["levels_ms"])),
        "targets": " ".join(data["targets"]) or "every topic",
        "dedup window": render_duration(data["dedup_window_ms"]),
        "max request bytes": data["max_request_bytes"] or "what the buffer takes",
        "meaning": data["meaning"],
    }


def _for_people(data: dict[str, Any]) -> dict[str, Any]:
    return for_people(data) | {
        "settings": "written" if data["settings_written"] else "as they were",
        "keys": "made" if data["keys_made"] else "as they were",
        "topics made": " ".join(data["topics_made"]) or "none, all were there",
    }


def _kept(retention_ms: int | None) -> str:
    from delayline.times import render_duration

    if retention_ms is None:
        return "longer than the max delay"
    return f"{render_duration(retention_ms)}; what waits for longer is written again"


def _comment(created: Created) -> None:
    if not created.keys_there:
        say(
            "warning: ZooKeeper has lost the keys that the service signs with: start a node that still has"
            " its data folder, and it puts them back; only if there is none, run this again with --new-keys"
        )
    if created.buffer_was_lost:
        say(
            "warning: the buffer topic was missing, so what was pending in it is lost;"
            " the nodes refuse to go on and say what to do ('delayline cluster status')"
        )
    for found in created.findings:
        say(f"warning: topic {found.topic}: {found.problem}; mend with: {found.mend}")
