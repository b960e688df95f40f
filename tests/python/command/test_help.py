# SPDX-License-Identifier: Apache-2.0
"""The help of every command fits a terminal, and no list of commands cuts a line off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import Golden

from headrace._cli import app

#: Columns of a terminal.
WIDTH = 80
#: Columns of a first line, so that a list of commands shows the whole of it.
FIRST_LINE = 60


def commands(group: Any, context: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command with its context, groups first; the path is "bench/cache"."""
    yield "/".join(path) or "headrace", context
    for name in group.list_commands(context) if hasattr(group, "list_commands") else ():
        command = group.get_command(context, name)
        inner = command.context_class(command, info_name=name, parent=context)
        yield from commands(command, inner, (*path, name))


def every_command() -> dict[str, Any]:
    root = app.root()
    return dict(commands(root, root.context_class(root, info_name="headrace")))


COMMANDS = every_command()


@pytest.mark.parametrize("path", COMMANDS)
def test_help_fits_a_terminal(run: Callable[..., Any], golden: Golden, path: str) -> None:
    words = [] if path == "headrace" else path.split("/")
    result = run(*words, "--help")
    assert (result.returncode, result.stderr) == (0, "")
    wide = [line for line in result.stdout.splitlines() if len(line) > WIDTH]
    assert wide == []
    assert "...\n" not in result.stdout.partition("Commands:")[2]
    golden(f"help/{path}.txt", result.stdout)


@pytest.mark.parametrize("path", COMMANDS)
def test_first_line_is_short_and_alone(path: str) -> None:
    first, *rest = COMMANDS[path].command.help.splitlines()
    assert 0 < len(first) <= FIRST_LINE, f"{len(first)}: {first}"
    assert first.endswith(".") and not (rest and rest[0].strip()), first


@pytest.mark.parametrize("path", COMMANDS)
def test_help_of_an_option_names_its_noun(path: str) -> None:
    """"Of the array." has no subject, and "Default: 4." no noun at all."""
    begins = (
        "Of ", "That ", "Those ", "What ", "Which ", "Who", "How ", "Where ", "Default", "Such as",
        "Instead",
    )  # fmt: skip
    texts = {
        parameter.name: parameter.help
        for parameter in COMMANDS[path].command.params
        if getattr(parameter, "help", None) and not getattr(parameter, "hidden", False)
    }
    assert {name: text for name, text in texts.items() if text.startswith(begins)} == {}
    assert {name: text for name, text in texts.items() if not text.endswith(".")} == {}
