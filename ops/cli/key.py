"""`delayline key`: the keys that the service signs with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ops.cli.operator import agree, author, expect_answer, operator_options, timeout_option
from ops.cli.options import connect, connection_options
from ops.cli.output import Format, emit, output_option, say

if TYPE_CHECKING:
    from ops.key.rotate import KeyStatus


@click.group("key")
def key_group() -> None:
    """Change the key that the service signs with."""


@key_group.command(
    epilog="Example: delayline key rotate --reason 'an operator has left' --execute --confirm delay"
)
@click.option(
    "--execute", is_flag=True, help="Do it (default: say which keys there are, and who knows them)."
)
@timeout_option(60.0, "How long to wait until every node knows the new key.")
@operator_options
@output_option
@connection_options
def rotate(output: Format, timeout_s: float, confirm: str | None, *, execute: bool, **options: Any) -> None:
    """Sign with a new key from now on, without a stop.

    The new key signs once every node that is there knows it; the others stay, for what they have signed.
    Exit code 6 if a node does not say in time that it knows it: the key before goes on signing, and the same
    command waits on.
    """
    from ops.key import rotate

    if execute:
        expect_answer(confirm)
    by = author(options)
    config = connect(options)
    if execute:
        agree(config.cluster, confirm, "the service signs with a new key")
        _show(output, rotate.rotate(config, by, timeout_s))
    else:
        _show(output, rotate.key_status(config))
        say("dry run: nothing was changed; --execute adds a key, and lets it sign once every node knows it")


def _show(output: Format, found: KeyStatus) -> None:
    from delayline.times import render_time

    data: list[dict[str, Any]] = [
        {
            "key": key.id,
            "made_ms": key.made_ms,
            "signs": key.id == found.ring.signs,
            "known_by": " ".join(node for node, known in found.known.items() if key.id in known),
        }
        for key in found.ring.keys
    ]
    rows = [row | {"made": render_time(row["made_ms"])} for row in data]
    emit(output, rows, {"key": "key", "made": "made", "signs": "signs", "known_by": "known by"}, data=data)
