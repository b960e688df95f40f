# SPDX-License-Identifier: Apache-2.0
"""Options of commands in a line: `rounds: Annotated[int, number("Number of rounds.", 1, 1000)]`."""

from __future__ import annotations

from typing import Any

import typer


def option(metavar: str, text: str, *names: str) -> Any:
    """An option with a value; its name is the parameter's, unless there are `names`."""
    return typer.Option(*names, metavar=metavar, help=text)


def number(
    text: str, least: float | None = None, most: float | None = None, *names: str
) -> Any:
    """An option with a number within bounds."""
    return typer.Option(*names, metavar="NUMBER", min=least, max=most, help=text)


def flag(name: str, text: str) -> Any:
    return typer.Option(name, help=text)
