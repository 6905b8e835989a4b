"""The question before something is changed, and who wants it."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from ops.cli.operator import agree, author


def asked(answer: str) -> str:
    """What the operator is shown, who types `answer`."""
    with CliRunner().isolation(input=f"{answer}\n") as (_, err, *_rest):
        agree("delay", None, "all deliveries stop")
        return err.getvalue().decode()


def test_the_cluster_s_name_is_asked_for_with_what_will_be_done() -> None:
    assert asked("delay").startswith("all deliveries stop. To go on, type the cluster's name: ")


@pytest.mark.parametrize("answer", ["", "y", "other"])
def test_any_other_answer_changes_nothing(answer: str) -> None:
    with pytest.raises(click.UsageError, match="is not the cluster's name, delay: nothing was changed"):
        asked(answer)


def test_the_author_is_the_system_s_user_unless_another_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUDO_USER", raising=False)
    monkeypatch.setenv("LOGNAME", "ann")
    assert author({"reason": "why", "by": None}).by == "ann"
    assert author({"reason": "why", "by": "bob"}).by == "bob"


def test_behind_sudo_the_author_is_who_called_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "root")
    monkeypatch.setenv("SUDO_USER", "ann")
    assert author({"reason": "why", "by": None}).by == "ann"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"reason": "moving \udcff", "by": "ann"}, "--reason"),
        ({"reason": "moving", "by": "ann\udcff"}, "--by"),
    ],
)
def test_bytes_that_are_no_text_are_refused_before_anything_begins(
    options: dict[str, str], named: str
) -> None:
    with pytest.raises(click.UsageError, match=f"{named} has bytes that are no UTF-8"):
        author(dict(options))


def test_where_the_system_has_no_name_for_its_user_the_author_must_be_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SUDO_USER", raising=False)
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 4_000_000_000)  # as in a container that runs as any number
    with pytest.raises(click.UsageError, match="say with --by who wants it"):
        author({"reason": "why", "by": " "})
