"""What commands share that change something: who wants it and why, and a question before it is done.

On a terminal they ask for the cluster's name. Without one they never wait for an answer: the name has to be
given (`--confirm`), so that a script that runs against another cluster than was meant changes nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ops.cli.options import Command, connect, together

if TYPE_CHECKING:
    from election.operators import Author
    from node.config import ConnectionConfig

confirm_option = click.option(
    "--confirm", metavar="CLUSTER", help="The cluster's name, instead of being asked for it."
)
operator_options = together(
    click.option("--reason", required=True, metavar="TEXT", help="Why; it stays in the cluster's history."),
    click.option("--by", metavar="NAME", help="Who wants it (default: this system's user; sudo's)."),
    confirm_option,
)
"""Taken out of the options with `author` and `agree`."""


def timeout_option(default_s: float, what: str) -> Callable[[Command], Command]:
    """Add `--timeout SECONDS`, passed as `timeout_s`; `what` is the help."""
    return click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(min=0),
        default=default_s,
        show_default=True,
        metavar="SECONDS",
        help=what,
    )


def someone(reason: str) -> Author:
    """Who wants what is reason enough; "?" if this system's user has no name."""
    return _author(_user() or "?", reason)


def author(options: dict[str, Any]) -> Author:
    """Who wants it, and why. Usage error if either is not known."""
    reason = options.pop("reason").strip()
    if not reason:
        raise click.UsageError("--reason says nothing: write why")
    by = (options.pop("by") or "").strip() or _user()
    if by is None:
        raise click.UsageError("this system's user has no name: say with --by who wants it")
    return _author(by, reason)


def _author(by: str, reason: str) -> Author:
    import time

    from election.operators import Author

    for option, text in (("--reason", reason), ("--by", by)):
        try:
            text.encode()
        except UnicodeEncodeError:  # the system passes on bytes that are none as halves of characters
            raise click.UsageError(f"{option} has bytes that are no UTF-8: {text!a}") from None
    return Author(by, reason, time.time_ns() // 1_000_000)


def _user() -> str | None:
    """Who works here, behind sudo, too; None if the system has no name for them."""
    import getpass

    try:
        return os.environ.get("SUDO_USER") or getpass.getuser()
    except (OSError, KeyError):
        return None


def expect_answer(confirm: str | None) -> None:
    """Usage error, before anything begins, if there is nobody to ask."""
    if confirm is None and not sys.stdin.isatty():
        raise click.UsageError(
            "it asks for confirmation, and there is no terminal: add --confirm with the cluster's name"
        )


def agree(cluster: str, confirm: str | None, what: str) -> None:
    """Return if the operator wants `what` to be done, as in "all deliveries stop"; else a usage error."""
    if confirm is None:
        question = f"{what}. To go on, type the cluster's name"
        confirm = click.prompt(question, default="", show_default=False, err=True)
    if confirm != cluster:
        raise click.UsageError(f"{confirm!r} is not the cluster's name, {cluster}: nothing was changed")


def agreed(options: dict[str, Any], confirm: str | None, what: str) -> tuple[ConnectionConfig, Author]:
    """The cluster to which `what` is to be done, and who wants it, once that is confirmed; else a usage
    error, before anything begins.
    """
    expect_answer(confirm)
    by = author(options)
    config = connect(options)
    agree(config.cluster, confirm, what)
    return config, by
