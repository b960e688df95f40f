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


Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Out = Annotated[
    Optional[Path],
    typer.Option(
        "--out", metavar="FILE", help="File for the JSON document, in addition to stdout."
    ),
]
#: Instead of stdout, not besides it.
OutOnly = Annotated[
    Optional[Path],
    typer.Option("--out", metavar="FILE", help="File for the output (default: stdout)."),
]
Machine = Annotated[
    Optional[str],
    typer.Option(
        "--from",
        metavar="FILE|PRESET",
        help="Another machine: a file of topo --json, or a preset (default: this host).",
        autocompletion=presets,
    ),
]
Convention = Annotated[
    Optional[str],
    typer.Option(
        "--convention",
        metavar="NAME",
        help="Another tool's counting, as one more column: stream, likwid, mlc or mbw.",
    ),
]
Experiments = Annotated[
    Optional[list[str]],
    typer.Argument(
        metavar="[EXPERIMENT]...", help="Experiments to run (default: all; --list names them)."
    ),
]
ListExperiments = Annotated[bool, typer.Option("--list", help="List the experiments.")]
Rounds = Annotated[
    int, typer.Option(metavar="NUMBER", min=1, max=1000, help="Number of interleaved repetitions.")
]
Seed = Annotated[
    int, typer.Option(metavar="NUMBER", min=0, max=1 << 40, help="Seed of every random choice.")
]
Threads = Annotated[
    Optional[int],
    typer.Option(
        metavar="NUMBER", min=1, max=4096, help="Number of threads (default: one per core)."
    ),
]
Query = Annotated[str, typer.Option(metavar="NAME", help="Query to run: sum, q6 or q1.")]
Scale = Annotated[float, typer.Option(metavar="NUMBER", help="TPC-H scale factor.")]
Runs = Annotated[
    int,
    typer.Option(
        metavar="NUMBER", min=1, max=1000, help="Number of interleaved runs of each mode."
    ),
]
Data = Annotated[
    Optional[Path],
    typer.Option(
        "--data",
        metavar="DIRECTORY",
        help="Directory of the generated tables (default: ~/.cache/headrace).",
    ),
]


def given(context: typer.Context) -> list[str]:
    """The options that somebody wrote."""
    return [
        name for name in context.params
        if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
    ]  # fmt: skip
