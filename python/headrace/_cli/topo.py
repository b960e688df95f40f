# SPDX-License-Identifier: Apache-2.0
"""headrace topo"""

from __future__ import annotations

from typing import Annotated

import typer

import headrace
from headrace._cli import output, parse
from headrace._cli.options import Json, Machine


def command(
    json: Json = False,
    source: Machine = None,
    xml: Annotated[
        bool, typer.Option("--xml", help="Print hwloc XML with the kind of each node.")
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Print one line per node, even where several are alike.")
    ] = False,
) -> None:
    """Show a machine: its memories and what copies between them."""
    if json and xml:
        raise headrace.InvalidError("--json and --xml exclude each other; give one")
    if source is None:
        machine = headrace.Machine.discover()
    else:
        machine = parse.machine(source)
    if json:
        output.print_as_is(machine.to_json())
        return
    machine = parse.in_lines(machine)
    if xml:
        output.print_as_is(machine.to_hwloc_xml())
    else:
        output.print_text(machine.to_text() if every else machine.overview())
