"""`delayline settings`: what the cluster's settings are and were; changing them while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ops.cli.operator import agree, author, expect_answer, operator_options, timeout_option
from ops.cli.options import connect, connection_options, together
from ops.cli.output import Format, emit, emit_one, output_option, say
from ops.cli.topics import changeable_options, chosen_settings, for_people, settings_as_data

if TYPE_CHECKING:
    from delayline.settings_versions import SettingsVersion, SettingsVersions
    from ops.settings.change import PlannedChange


@click.group("settings")
def settings_group() -> None:
    """Show the cluster's settings, and change them while it runs."""


@settings_group.command(epilog="Example: delayline settings show --history")
@click.option("--history", is_flag=True, help="Each change: when, by whom, why, what.")
@output_option
@connection_options
def show(output: Format, *, history: bool, **options: Any) -> None:
    """Show the settings as they are now."""
    from ops.settings import show

    shown = show.show(connect(options))
    versions = shown.versions
    if shown.unread is not None:
        say(f"warning: so they stand in ZooKeeper; their topic may have later ones: {shown.unread}")
    if history:
        rows = [_change_row(before, after) for before, after in _pairs(versions)]
        emit(output, rows, HISTORY_COLUMNS)
        return
    data = _room(versions) | settings_as_data(versions.settings)
    emit_one(output, _room_in_words(data) | for_people(data) if output == "table" else data)


def _room(versions: SettingsVersions) -> dict[str, int]:
    """Which version it is, and how much all that there were take."""
    from delayline.settings_versions import MOST_BYTES

    return {
        "version": versions.latest.number,
        "versions_bytes": len(versions.to_json()),
        "versions_most_bytes": MOST_BYTES,
    }


def _room_in_words(data: dict[str, Any]) -> dict[str, Any]:
    used_kib, most_kib = -(-data["versions_bytes"] >> 10), data["versions_most_bytes"] >> 10
    return {"version": data["version"], "all versions": f"{used_kib} KiB of {most_kib}"}


HISTORY_COLUMNS = {
    "version": "version",
    "at": "at",
    "by": "by",
    "reason": "reason",
    "changes": "changes",
    "begins": "counts from",
}


def _pairs(versions: SettingsVersions) -> list[tuple[SettingsVersion | None, SettingsVersion]]:
    return list(zip([None, *versions.all[:-1]], versions.all, strict=True))


def _change_row(before: SettingsVersion | None, after: SettingsVersion) -> dict[str, Any]:
    from delayline.times import render_time

    changed = "as made" if before is None else _in_words(before, after)
    marks = " ".join(f"{partition}/{begin.offset}" for partition, begin in sorted(after.begins.items()))
    return {
        "version": after.number,
        "at": render_time(after.at_ms) if after.at_ms else None,
        "by": after.by or None,
        "reason": after.reason or None,
        "changes": changed,
        "begins": marks or "the beginning",
    }


def _in_words(before: SettingsVersion, after: SettingsVersion) -> str:
    from delayline.settings_versions import differing

    names = differing(before.settings, after.settings)
    words = (
        f"{LABELS.get(name, name)}: {_shown(name, getattr(before.settings, name))} -> "
        f"{_shown(name, getattr(after.settings, name))}"
        for name in names
    )
    return "; ".join(words) or "marks for partitions that were added"


LABELS = {
    "retention_ms": "retention",
    "max_delay_ms": "max delay",
    "levels_ms": "levels",
    "dedup_window_ms": "dedup window",
    "max_request_bytes": "max request bytes",
}


def _shown(name: str, value: Any) -> str:
    from delayline.times import render_duration

    if name in {"retention_ms", "max_delay_ms", "dedup_window_ms"}:
        return render_duration(value)
    if name == "levels_ms":
        return " ".join(map(render_duration, value))
    if name == "targets":
        return " ".join(value) or "every topic"
    return str(value)


_change_options = together(
    changeable_options(
        "DURATION",
        retention_ms="How long the buffer keeps a record; what waits longer is written again in time.",
        max_delay_ms="Longest delay accepted.",
        levels_ms="Delay of level 1, 2, ...; give all of them.",
        targets="Allow only targets like this glob; give all of them.",
        dedup_window_ms="How long after its due time an id is still known to delay-if-exists: keep.",
        max_request_bytes="Largest request accepted, unpacked. The buffer takes 4096 more.",
        meaning="How requests are read: 2, once all nodes are newer than 0.1.0.",
    ),
    click.option("--any-target", is_flag=True, help="Allow every target again."),
    click.option("--execute", is_flag=True, help="Do it; without this it only says what it would do."),
    timeout_option(60.0, "How long to wait until every node says that it knows."),
)


@settings_group.command(
    epilog="Example: delayline settings change --max-delay 90d --reason 'yearly reminders' --execute"
    " --confirm delay"
)
@_change_options
@operator_options
@output_option
@connection_options
def change(
    output: Format,
    timeout_s: float,
    confirm: str | None,
    *,
    any_target: bool,
    execute: bool,
    **options: Any,
) -> None:
    """Change settings. Requests made before mean what they meant; those made after are read by the new ones.

    The lists of levels and targets are replaced as a whole. Also with nothing to change it marks partitions
    that were added to the buffer since the last change, so that the same settings count there. The cluster's
    name, the number of partitions, the lanes and whether what waits is written again cannot be changed.
    """
    from ops.settings import change

    by = author(options)
    chosen = _chosen(options, any_target=any_target)
    if execute:
        expect_answer(confirm)
    config = connect(options)
    if execute:
        change.settle(config)
    planned = change.plan(config, chosen)
    _say_right(planned)
    data = _planned_data(planned)
    if not execute:
        emit_one(output, _readable(data) if output == "table" else data)
        say("dry run: nothing was changed. --execute")
        return
    agree(config.cluster, confirm, "requests made from now on are read by other settings")
    done, after, nodes = change.change(config, chosen, by, timeout_s)
    data = _planned_data(done) | {"version": after.latest.number, "nodes": nodes}
    emit_one(output, _readable(data) if output == "table" else data)
    _say_lower(done)


def _chosen(options: dict[str, Any], *, any_target: bool) -> dict[str, Any]:
    from ops.cli.topics import LIKE_MAX_DELAY

    if options.get("retention_ms") == LIKE_MAX_DELAY:
        raise click.BadParameter(f"{LIKE_MAX_DELAY!r} cannot be changed to", param_hint="--retention")
    chosen = chosen_settings(options)
    if any_target and "targets" in chosen:
        raise click.UsageError("--any-target and --target are both given: choose one")
    return chosen | {"targets": ()} if any_target else chosen


def _planned_data(planned: PlannedChange) -> dict[str, Any]:
    return {
        "cluster": planned.after.cluster,
        "version": planned.before.latest.number,
        "changes": {name: {"from": was, "to": will} for name, (was, will) in planned.changes.items()},
        "unmarked_partitions": list(planned.unmarked),
        "topics": [
            {"topic": one.topic, "setting": one.key, "from": one.from_value, "to": one.to_value}
            for one in planned.raises
        ],
    }


def _readable(data: dict[str, Any]) -> dict[str, Any]:
    changes: dict[str, Any] = {
        LABELS.get(name, name): f"{_shown(name, one['from'])} -> {_shown(name, one['to'])}"
        for name, one in data["changes"].items()
    }
    topics = {
        f"{one['topic']} {one['setting']}": f"{_raised(one, 'from')} -> {_raised(one, 'to')}"
        for one in data["topics"]
    }
    if data["unmarked_partitions"]:
        added = " ".join(map(str, data["unmarked_partitions"]))
        changes |= {"partitions that were added": f"{added}: read by these settings, too"}
    rest = {"nodes": " ".join(data["nodes"]) or "none is there"} if "nodes" in data else {}
    head = {"cluster": data["cluster"], "version": data["version"]}
    return head | (changes or {"changes": "none"}) | topics | rest


def _raised(one: dict[str, Any], which: str) -> str:
    from delayline.times import render_duration

    return render_duration(one[which]) if one["setting"] == "retention.ms" else str(one[which])


def _say_right(planned: PlannedChange) -> None:
    from delayline.names import ClusterNames

    if planned.raises_meaning:
        topic = ClusterNames(planned.after.cluster).settings
        say(f"from this change on every node needs Read on {topic}: without it, it takes nothing in")


def _say_lower(done: PlannedChange) -> None:
    before, after = done.before.settings.retention_ms, done.after.retention_ms
    if before is not None and after is not None and after < before:
        say(
            "the buffer topic keeps its longer retention.ms: lower it once 'delayline doctor' finds nothing"
            " that waits there"
        )
