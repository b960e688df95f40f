# SPDX-License-Identifier: Apache-2.0
"""headrace model um"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

import headrace
from headrace._cli import output
from headrace._cli.model import document, um_options
from headrace._cli.options import Json, Out
from headrace._files import check_writable
from headrace._format import prose
from headrace._model import um_rows
from headrace._model.um_cases import Case
from headrace._profile.nested import unified_memory_runs

Row = dict[str, Any]


def command(
    machine: Annotated[
        str, typer.Option(metavar="NAME", help="Machine: ac922, x86-pcie3 or gh200.")
    ] = "ac922",
    memory: um_options.Memory = "managed",
    accessed_by: um_options.AccessedBy = False,
    read_mostly: um_options.ReadMostly = False,
    preferred_location_cpu: um_options.PreferredLocationCpu = False,
    touch_on_host: um_options.TouchOnHost = False,
    op: um_options.Op = "read",
    size: Annotated[str, typer.Option(metavar="SIZE", help="Size of the array.")] = "32GiB",
    runs: um_options.Runs = 5,
    prefetch_block: um_options.PrefetchBlock = None,
    streams: um_options.Streams = 2,
    kernel: um_options.Kernel = "reprex",
    json: Json = False,
    out: Out = None,
) -> None:
    """Model a GPU that reads a host array through Unified Memory.

    The experiment of headrace bench um on a model of the driver (docs/design/gpu/um.md). Without
    options of a case it computes every published case of the machine.

    \b
    headrace model um
    headrace model um --size 8GiB --accessed-by --touch-on-host
    headrace model um --machine x86-pcie3 --preferred-location-cpu
    """
    check_writable(out)
    case = um_options.checked(Case(
        memory=memory, accessed_by=accessed_by, read_mostly=read_mostly,
        preferred_location_cpu=preferred_location_cpu, touch_on_host=touch_on_host, op=op,
        size=um_options.size(size), runs=runs, prefetch_block=um_options.block(prefetch_block),
        streams=streams, kernel=kernel,
    ))  # fmt: skip
    fields = um_rows.model(machine, None if case == Case() else case)
    constants = um_rows.constants(each["name"] for each in fields["machines"])
    document.deliver(
        "um", "the states of pages in a GPU's driver", constants, fields, json=json, out=out,
        show=lambda made: output.print_text(text(made)),
    )  # fmt: skip


def text(made: Row) -> str:
    """A table for each machine, and what has no figure."""
    named = {"published": "published", "modelled": "modelled"}
    parts = [table(made, machine, named) for machine in made["machines"]]
    lines = [f"{case['case']}: {case['reason']}" for case in made["cases"] if case["reason"]]
    if not any(case["source"] for case in made["cases"]):
        lines.append("Nobody published this case; no figure stands beside it.")
    return "\n\n".join([*parts, *map(prose, lines)])


def table(made: Row, machine: Row, named: Mapping[str, str]) -> str:
    """Cases of a machine by run; `named` has the kinds of figures and their words."""
    cases = [case for case in made["cases"] if case["machine"] == machine["name"]]
    shown = min(max(case["options"]["runs"] for case in cases), 5)
    errors = {"first": "error 1", "steady": "error after"} if "modelled" in named else {}
    rows = []
    for case in cases:
        mine = [
            row for row in unified_memory_runs(made)
            if all(row[k] == case[k] for k in ("machine", "case", "size", "kernel"))
        ][:shown]  # fmt: skip
        begins = [case["case"], headrace.format_bytes(case["size"])]
        for kind, word in named.items():
            if case["first"][kind] is case["steady"][kind] is None:
                continue
            rates = [_rate(row[kind]) for row in mine]
            off = [_error(case[part]["error"]) if kind == "modelled" else "" for part in errors]
            rows.append((
                *begins, word, *rates, *([""] * (shown - len(mine))), _rate(case["steady"][kind]),
                *off,
            ))  # fmt: skip
            begins = ["", ""]
    numbers = [str(n + 1) for n in range(shown)]
    heads = ("case", "size", "", *numbers, "after 1", *errors.values())
    head = f"{machine['name']}: {machine['words']}; GiB/s by run"
    return f"{head}\n\n{output.table_text(heads, rows, left=3)}"


def _rate(rate: float | list[float] | None) -> str:
    if isinstance(rate, list):
        return " to ".join(f"{each:.3g}" for each in rate)
    if rate is None:
        return "-"
    return f"{rate:.2f}" if rate < 100 else f"{rate:.1f}"


def _error(error: float | None) -> str:
    return "" if error is None else f"{error:+.0%}"
