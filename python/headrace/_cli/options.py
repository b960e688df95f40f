# SPDX-License-Identifier: Apache-2.0
"""Options that several commands have, and options of files, each written once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

import headrace


def presets() -> list[str]:
    """Names that a shell completes; files it completes itself."""
    return list(headrace.presets())


Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Out = Annotated[
    Optional[Path], typer.Option("--out", metavar="FILE", help="Write the JSON document here too.")
]
#: Instead of stdout, not besides it.
OutOnly = Annotated[
    Optional[Path], typer.Option("--out", metavar="FILE", help="Write it here instead.")
]
Machine = Annotated[
    Optional[str],
    typer.Option(
        "--from",
        metavar="FILE|PRESET",
        help="A machine other than this one.",
        autocompletion=presets,
    ),
]
Convention = Annotated[
    Optional[str],
    typer.Option(
        "--convention",
        metavar="NAME",
        help="Add a column with what stream, likwid, mlc or mbw would print.",
    ),
]
Experiments = Annotated[
    Optional[list[str]],
    typer.Argument(metavar="[EXPERIMENT]...", help="Which to run; default all. --list names them."),
]
ListExperiments = Annotated[bool, typer.Option("--list", help="List the experiments.")]
Rounds = Annotated[
    int, typer.Option(metavar="NUMBER", min=1, max=1000, help="Interleaved repetitions.")
]
Threads = Annotated[
    Optional[int],
    typer.Option(metavar="NUMBER", min=1, max=4096, help="Default: one per core."),
]
Query = Annotated[str, typer.Option(metavar="NAME", help="sum, q6 or q1.")]
Scale = Annotated[float, typer.Option(metavar="NUMBER", help="TPC-H scale factor.")]
Runs = Annotated[
    int, typer.Option(metavar="NUMBER", min=1, max=1000, help="Interleaved runs of each mode.")
]
Data = Annotated[
    Optional[Path],
    typer.Option("--data", metavar="DIRECTORY", help="Where tables are kept and made."),
]


def given(context: typer.Context) -> list[str]:
    """The options that somebody wrote."""
    return [
        name for name in context.params
        if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
    ]  # fmt: skip
