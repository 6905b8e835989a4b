"""The command line's frame: help, examples, usage errors, exit codes."""

from __future__ import annotations

import importlib
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete
from syrupy.assertion import SnapshotAssertion

from ops.cli import main
from ops.cli.main import COMMANDS, cli, run
from ops.errors import ConflictError
from tests.logging_state import restored_logging

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _restored_logging() -> Iterator[None]:
    with restored_logging():
        yield


def leaves(command: click.Command, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(command, click.Group):
        yield path, command
        return
    for name, child in command.commands.items():
        yield from leaves(child, *path, name)


def commands_of(name: str) -> list[tuple[tuple[str, ...], click.Command]]:
    """The commands below one of the top command's, each with its path."""
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return list(leaves(command, name))


# What a command needs when it runs, and neither its help nor completion.
SLOW = {
    "pydantic",
    "pydantic_settings",
    "confluent_kafka",
    "kazoo",
    "structlog",
    "pyspark",
    "plotly",
    "jinja2",
    "msgspec",
    "starlette",
    "uvicorn",
}
IMPORTS = click.Command("imports", callback=lambda: importlib.import_module("no_such_page_library"))
RAISES = click.Command("raises", callback=lambda: (_ for _ in ()).throw(ConflictError("too late")))


def printed(script: str) -> Any:
    """What the last line of its output holds, run in a process of its own."""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_help_imports_nothing_slow() -> None:
    code, modules = printed(
        "import json, sys\n"
        "from ops.cli.main import run\n"
        "code = run(['--help'])\n"
        "print(json.dumps([code, sorted(sys.modules)]))"
    )

    assert code == 0
    assert not {*SLOW, "rich"} & set(modules)


def test_a_command_imports_nothing_slow_before_it_runs() -> None:
    modules = printed(
        "import importlib, json, sys\n"
        "from ops.cli.main import COMMANDS\n"
        "for where, _ in COMMANDS.values():\n"
        "    importlib.import_module(where.partition(':')[0])\n"
        "print(json.dumps(sorted(sys.modules)))"
    )

    assert not SLOW & set(modules)


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help(
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    snapshot: SnapshotAssertion,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    paths = [path for path, _ in commands_of(name)] if name else []
    pages = {path[:length] for path in paths for length in range(1, len(path) + 1)} or {()}

    assert {run([*path, "--help"]) for path in sorted(pages)} == {0}

    assert capsys.readouterr().out == snapshot


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_shows_an_example_that_it_accepts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "checkpoints.json").touch()  # of one of the examples
    for path, command in commands_of(name):
        example = command.epilog or ""
        assert example.startswith(f"Example: delayline {' '.join(path)}")

        arguments = shlex.split(example)[2 + len(path) :]
        command.make_context(path[-1], arguments)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_option_says_what_it_is_for(name: str) -> None:
    silent = [
        (path, param.name)
        for path, command in commands_of(name)
        for param in command.params
        if isinstance(param, click.Option) and not param.help
    ]

    assert silent == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_told_how_to_complete(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0

    assert f"_DELAYLINE_COMPLETE={shell}_complete" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("delayline cl", ["cluster"]),
        ("delayline --d", ["--debug"]),
        ("delayline cluster re", ["resume", "remove"]),
        ("delayline cluster status --wa", ["--watch"]),
        ("delayline due -o ", ["table", "json", "yaml", "csv"]),
    ],
)
def test_commands_options_and_choices_are_completed(typed: str, offered: list[str]) -> None:
    words = typed.split(" ")
    completing = ShellComplete(cli, {}, "delayline", "_DELAYLINE_COMPLETE")

    items = completing.get_completions(words[1:-1], words[-1])

    assert sorted(item.value for item in items) == sorted(offered)


def test_completion_imports_no_command_that_is_not_typed() -> None:
    found = printed(
        "import json, sys\n"
        "from click.shell_completion import ShellComplete\n"
        "from ops.cli.main import cli\n"
        "items = ShellComplete(cli, {}, 'delayline', 'X').get_completions([], '')\n"
        "print(json.dumps([len(items), [name for name in sys.modules if name.startswith('ops.cli.')]]))"
    )

    assert found == [len(COMMANDS), ["ops.cli.main"]]


def test_no_command_shows_the_help_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2

    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Commands:" in captured.err


def test_a_command_whose_packages_are_missing_does_not_break_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(COMMANDS, "audit", ("no_such_package.audit:audit_command", "Prove."))

    assert run(["--help"]) == 0
    assert run(["topics", "--help"]) == 0
    assert run(["audit"]) == 1
    assert "'audit' needs the package no_such_package: install delayline" in capsys.readouterr().err


def test_a_package_that_is_missed_later_is_named_with_the_extra_that_has_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "no_such_page_library", None)
    monkeypatch.setattr(main, "COMMANDS", {"imports": (f"{__name__}:IMPORTS", "")})

    assert run(["imports"]) == 1

    assert capsys.readouterr().err == (
        "error: the package no_such_page_library is missing: install delayline with its extra `local`\n"
    )


@pytest.mark.parametrize("command", ["audit", "demo"])
@pytest.mark.parametrize(
    ("file", "problem"),
    [("nowhere/page.html", "no such folder"), (".", "is a directory")],
    ids=["no folder", "a folder"],
)
def test_a_page_that_cannot_be_written_is_refused_before_anything_begins(
    command: str, file: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, "--html", str(tmp_path / file)]) == 2

    error = capsys.readouterr().err
    assert problem in error
    assert error.count("\n") == 1


def test_an_error_is_one_line_on_stderr_and_its_own_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main, "COMMANDS", {"raises": (f"{__name__}:RAISES", "")})

    assert run(["raises"]) == 5

    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "error: too late\n")


@pytest.mark.parametrize(
    "typed",
    [
        "message cancel x -X foo",
        "message cancel",
        "message show",
        "message cancel x --source delay.buffer/0/1",
        "message cancel --source x",
        "message schedule t v -H foo",
        "message schedule t v --every 1s",
        "message reschedule x",
        "topics create --max-delay 90",
        "topics create --level 1s --level x",
        "dead-letter list --from yesterday",
        "dead-letter list --code bad",
        "dead-letter retry 0/1 --id x",
        "dead-letter retry --execute",
        "cluster pause --reason x",
        "cluster pause --confirm delay",
        "cluster switchover --reason ' ' --confirm delay",
        "cluster resume --reason x --confirm other",
        "cluster accept-gap --reason x --execute",
        "cluster accept-kafka --reason x --execute",
        "completion tcsh",
        "pending move --confirm delay --to-cluster delay2",
        "pending move out.jsonl --to-cluster delay2",
        "pending move out.jsonl --confirm delay",
        "pending move out.jsonl --confirm delay --to-cluster delay --to-zookeeper 127.0.0.1:1",
        "pending move out.jsonl --confirm delay2 --to-cluster delay2",
        "pending move --dry-run --to-cluster delay/2",
        "pending move --dry-run --to-bootstrap kafka:port",
        "pending move --dry-run --to-config none.yaml",
    ],
)
def test_a_wrong_argument_is_a_usage_error_of_one_line(
    typed: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    snapshot: SnapshotAssertion,
) -> None:
    monkeypatch.setenv("DELAYLINE_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("DELAYLINE_ZOOKEEPER", "127.0.0.1:1")

    assert run(shlex.split(typed)) == 2

    assert capsys.readouterr().err == snapshot
