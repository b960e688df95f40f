# SPDX-License-Identifier: Apache-2.0
"""headrace model dsa"""

from __future__ import annotations

from typing import Annotated, Optional

import headrace
from headrace._cli import exit_codes, output, parse
from headrace._cli.interrupt import Interrupt
from headrace._cli.model import document
from headrace._cli.options import Experiments, Json, Out
from headrace._files import check_writable
from headrace._model import dsa
from headrace_bench.commands import dsa as bench_dsa
from headrace_bench.commands.options import option


def command(
    names: Experiments = None,
    machine: Annotated[
        str, option("NAME|FILE", "Machine whose DSA devices are modelled.")
    ] = "xeon-max",
    sizes: Annotated[
        Optional[str], option("LIST", "Sizes of submission and cpu (default: 1 KiB to 1 GiB).")
    ] = None,
    json: Json = False,
    out: Out = None,
) -> int:
    """Model DSA devices: submission, threads, routes.

    The experiments of headrace bench dsa (--list names them there) on modelled devices
    (docs/design/dsa-rates.md). Only cores, for comparison, are measured: those of this host.

    \b
    headrace model dsa submission route
    headrace model dsa submission --sizes 4KiB,1MiB
    """
    selections = bench_dsa.selected(names, sizes)
    if out is not None:
        check_writable(out, machine)
    modelled = parse.machine(machine)
    with Interrupt() as interrupt, output.ProgressBar("model"):
        rows = dsa.rows(modelled, selections, interrupt)
    host = headrace.Machine.discover(storage=[]).name
    fields = bench_dsa.fields(rows, modelled, host) | {"machine": modelled.asdict()}
    detail = (
        f"no DSA device was used; times of a model of the devices of {modelled.name}, cores of "
        "this host where a row says so"
    )
    document.deliver(
        "dsa", detail, dsa.CONSTANTS, fields, show=bench_dsa.print_rows, json=json, out=out
    )
    return exit_codes.SUCCESS
