"""`delayline check`: plugins for Nagios and whatever understands its plugins."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from ops.check.plugin import Range, Status, judged, line
from ops.cli.options import Command, connect, connection_options

if TYPE_CHECKING:
    from ops.check.measures import Found


_CODES: Final = (
    "Exit codes are Nagios' own, not those of other commands: 0 OK, 1 warning, 2 critical, 3 unknown "
    "(whatever could not be asked, and a wrong option)."
)
_RANGES: Final = (
    "RANGE: 10 (0 to 10 is well), 10: (10 or more), ~:10 (10 or less), 5:10, @5:10 (5 to 10 is not)."
)


class _Plugins(click.Group):
    """What goes wrong is unknown, in one line: a plugin has nothing else to say."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.exceptions.NoArgsIsHelpError, click.Abort):
            raise
        except Exception as error:
            if ctx.obj:  # --debug
                raise
            click.echo(line(Status.UNKNOWN, _words(error)))
            return int(Status.UNKNOWN)


def _words(error: Exception) -> str:
    from ops.errors import translated  # imports both clients, only when something went wrong

    if isinstance(error, click.ClickException):
        return error.format_message()
    known = translated(error) or error
    return str(known) or type(known).__name__


def _range(_: click.Context, __: click.Parameter, value: str) -> Range:
    try:
        return Range.parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.group("check", cls=_Plugins, help=f"Plugins for Nagios: one line, with performance data.\n\n{_CODES}")
def check_group() -> None:
    """Its help is made of what all of them share."""


def _check(name: str, says: str, example: str) -> Callable[[Callable[..., int]], click.Command]:
    """A plugin: `says` what is measured."""
    return check_group.command(
        name, short_help=says, help=f"{says}\n\n{_RANGES}\n\n{_CODES}", epilog=f"Example: {example}"
    )


def _thresholds(warning: str, critical: str, of_what: str) -> Callable[[Command], Command]:
    """Add --warning and --critical with these defaults."""

    def add(command: Command) -> Command:
        for name, default in (("critical", critical), ("warning", warning)):
            command = click.option(
                f"--{name}",
                f"-{name[0]}",
                callback=_range,
                default=default,
                show_default=True,
                metavar="RANGE",
                help=f"The {of_what} beyond which it is {name}.",
            )(command)
        return command

    return add


def _told(found: Found, warning: Range, critical: Range) -> int:
    status, said = judged(found, warning, critical)
    click.echo(said)
    return int(status)


@_check(
    "lag",
    "How many offsets of the buffer a node has not read.",
    "delayline check lag --warning 10000 --critical 100000 --zookeeper zk1:2181",
)
@_thresholds("10000", "100000", "number of offsets")
@connection_options
def lag(warning: Range, critical: Range, **options: Any) -> int:
    """As ZooKeeper and Kafka say."""
    from ops.check import measures

    return _told(measures.lag(connect(options)), warning, critical)


@_check(
    "lateness",
    "For how long the oldest overdue message has been due.",
    "delayline check lateness --warning 10 --critical 60",
)
@_thresholds("10", "60", "seconds")
@connection_options
def lateness(warning: Range, critical: Range, **options: Any) -> int:
    """As a node of each lane says, its leader first."""
    from ops.check import measures

    return _told(measures.lateness(connect(options)), warning, critical)


@_check(
    "leader",
    "Whether somebody leads, and how old the last checkpoint is.",
    "delayline check leader --warning 5 --critical 15",
)
@_thresholds("5", "15", "age in seconds")
@connection_options
def leader(warning: Range, critical: Range, **options: Any) -> int:
    """As ZooKeeper says."""
    from ops.check import measures

    return _told(measures.leader(connect(options)), warning, critical)
