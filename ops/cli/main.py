"""`delayline`: finds the command, runs it, and turns whatever goes wrong into one line and an exit code.

Exit codes: 0 ok, 1 error, 2 usage or configuration, 3 not found, 4 not authorised, 5 conflict or too late,
6 unavailable (`ops.errors`).
"""

from __future__ import annotations

import errno
import importlib
import io
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

# name: (where the command is, its help in the list). Nothing is imported before it is asked for: `--help`
# answers at once, and a command whose packages are not installed does not break the others.
COMMANDS = {
    "topics": ("ops.cli.topics:topics_group", "Create and check the cluster's topics and settings."),
    "settings": ("ops.cli.settings:settings_group", "Show the cluster's settings; change them."),
    "node": ("ops.cli.node:node_group", "Run a delay node."),
    "cluster": ("ops.cli.cluster:cluster_group", "Show the nodes; pause, resume, switch over."),
    "check": ("ops.cli.check:check_group", "Plugins for Nagios: lag, lateness, leader."),
    "checkpoint": ("ops.cli.checkpoint:checkpoint_group", "Show what is delivered, history; replay, skip."),
    "message": ("ops.cli.message:message_group", "Schedule, cancel, show, list messages."),
    "bulk": ("ops.cli.bulk:bulk_group", "Schedule, cancel or move many messages from files, with Spark."),
    "pending": ("ops.cli.pending:pending_group", "Move what waits to another cluster; keep a copy."),
    "doctor": ("ops.cli.doctor:doctor_command", "Say what is wrong, and what to do about it."),
    "due": ("ops.cli.due:due_command", "Draw when what is pending falls due."),
    "forecast": ("ops.cli.forecast:forecast_command", "Forecast the next days: peaks, lateness, disks."),
    "tables": ("ops.cli.tables:tables_group", "What became of everything, as Parquet for SQL."),
    "dead-letter": (
        "ops.cli.dead_letter:dead_letter_group",
        "List, show and retry what could not be delivered.",
    ),
    "key": ("ops.cli.key:key_group", "Change the key that the service signs with."),
    "stack": ("ops.cli.stack:stack_group", "A local Kafka and ZooKeeper to try things on."),
    "demo": ("ops.cli.demo:demo_command", "Watch three nodes deliver through failures, then audit."),
    "completion": ("ops.cli.completion:completion_command", "Print what completes commands in a shell."),
    "audit": ("ops.cli.audit:audit_command", "Prove with Spark what became of every request."),
}
_OUR_PACKAGES = ("delayline", "store", "election", "node", "pipeline", "ops")


class LazyGroup(click.Group):
    """A group whose commands are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module_name, _, attribute = COMMANDS[cmd_name][0].partition(":")
        try:
            command: click.Command = getattr(importlib.import_module(module_name), attribute)
        except ModuleNotFoundError as error:
            raise click.ClickException(
                f"'{cmd_name}' needs the package {error.name}: install delayline with its extra `local`"
            ) from error
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Without importing what is not asked for: its packages may be missing."""
        found = [CompletionItem(name, help=text) for name, (_, text) in COMMANDS.items()]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [item for item in found if item.value.startswith(incomplete)] + options

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: delayline topics create --bootstrap kafka1:9092 --zookeeper zk1:2181",
)
@click.version_option(package_name="delayline", message="%(version)s")
@click.option("--debug", is_flag=True, help="Detailed logs, and the stack trace of an unexpected error.")
@click.pass_context
def cli(ctx: click.Context, /, *, debug: bool) -> None:
    """Replicated, exactly-once delayed delivery for Kafka."""
    from ops import logs  # `--help` never comes here

    ctx.obj = debug
    # Data goes to stdout, so structlog's default must not stand, whatever the command.
    logs.configure(logging.DEBUG if debug else logging.ERROR)


def main() -> None:
    """Run the command of this process's arguments; exits with its code."""
    _open_streams()
    sys.exit(run(sys.argv[1:]))


def _open_streams() -> None:
    """A closed stream is one that nobody reads, and no terminal is too poor for what there is to say."""
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115, PTH123 - for as long as the process lives
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115, PTH123
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def run(arguments: Sequence[str]) -> int:
    """Run one command and give its exit code."""
    try:
        result = cli.main(list(arguments), prog_name="delayline", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        return _fail(_usage(error), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted", 130)
    except BrokenPipeError:
        _leave_stdout()  # the reader, `head` perhaps, has what it wanted
        return 1
    except Exception as error:
        if "--debug" in arguments:
            raise
        if _is_of_stdout(error):
            _leave_stdout()
        return _fail(*_explained(error))
    return result if isinstance(result, int) else 0


def _leave_stdout() -> None:
    """Python's own flush at exit would fail once more, and end with a code of its own."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_of_stdout(error: Exception) -> bool:
    """What else is written has a name."""
    full = errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO
    return isinstance(error, OSError) and error.filename is None and error.errno in full


def _of_system(error: OSError) -> str:
    if error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if _is_of_stdout(error):
        return f"standard output cannot be written: {error.strerror}"
    return f"{type(error).__name__}: {error}"


def _usage(error: click.ClickException) -> str:
    text = error.format_message()
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f"{text.rstrip('.')} (see '{error.ctx.command_path} --help')"
    return text


def _explained(error: Exception) -> tuple[str, int]:
    """One line and the exit code for an exception that a command let through."""
    from ops.errors import translated  # imports both clients, only when something went wrong

    if isinstance(error, ModuleNotFoundError):
        return f"the package {error.name} is missing: install delayline with its extra `local`", 1
    known: Any = translated(error) or error
    code = getattr(known, "exit_code", 1)
    if isinstance(known, OSError):
        return _of_system(known), 1
    ours = type(known).__module__.partition(".")[0] in _OUR_PACKAGES
    return str(known) if ours and str(known) else f"{type(known).__name__}: {known}", code


def _fail(text: str, code: int) -> int:
    line = " ".join(text.split())
    colour = None if "NO_COLOR" not in os.environ else False
    click.echo(f"{click.style('error:', fg='red', bold=True)} {line}", err=True, color=colour)
    return code


if __name__ == "__main__":
    main()
