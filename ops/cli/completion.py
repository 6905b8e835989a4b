"""`delayline completion`: what a shell has to read to complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_SHELLS = ("bash", "zsh", "fish")


@click.command("completion", epilog="Example: delayline completion bash")
@click.argument("shell", type=click.Choice(_SHELLS))
def completion_command(shell: str) -> None:
    r"""Print what makes SHELL complete the commands and options of delayline.

    \b
    bash: delayline completion bash > ~/.local/share/bash-completion/completions/delayline
    zsh:  delayline completion zsh > ~/.zfunc/_delayline  (a folder of your fpath)
    fish: delayline completion fish > ~/.config/fish/completions/delayline.fish
    """
    from ops.cli.main import cli  # it has this command

    completion = get_completion_class(shell)
    assert completion is not None, "click knows these shells"
    click.echo(completion(cli, {}, "delayline", "_DELAYLINE_COMPLETE").source())
