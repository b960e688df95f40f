# SPDX-License-Identifier: Apache-2.0
"""headrace model spark"""

from __future__ import annotations

from typing import Annotated, Any

import typer

import headrace
from headrace._cli import output
from headrace._cli.model import document
from headrace._cli.options import Json, Out
from headrace._files import check_writable
from headrace._format import prose
from headrace._model import spark


def command(
    machine: Annotated[
        str,
        typer.Option(metavar="NAME|FILE", help="Profile with loaded latencies of two memories."),
    ] = "cxl-a1000",
    json: Json = False,
    out: Out = None,
) -> None:
    """Model Spark with interleaved memory, promotion or spilling.

    The configurations of headrace bench spark on a machine that need not be here
    (docs/design/workloads/spark.md).

    \b
    headrace model spark
    headrace model spark --machine cxl-a1000 --json
    """
    check_writable(out, machine)
    detail = f"a closed loop of threads on the loaded-latency curves of {machine}"
    document.deliver(
        "spark", detail, spark.Constants().told(), spark.model(machine), json=json, out=out,
        show=lambda made: output.print_text(text(made)),
    )  # fmt: skip


def text(made: dict[str, Any]) -> str:
    table = output.table_text(
        ("config", "the talk's words", "slow", "slower"),
        [
            (row["config"], spark.TALK[row["config"]],
             "-" if row["slow_share"] is None else f"{row['slow_share']:.1%}",
             f"{row['slower']:.2f}")
            for row in made["rows"]
        ],
        left=2,
    )  # fmt: skip
    head = (
        f"{made['machine']}: Spark on {made['threads']} threads; MMEM uses "
        f"{made['first_memory_used']:.0%} of what its memory gives"
    )
    rate = headrace.format_rate(made["ssd_break_even_bytes_per_second"])
    notes = (
        "Nothing here is predicted: order and figures of the talk, and 1.4 to 9.8 for interleaving "
        "(second-hand), rest on constants that were fitted to them or assumed. With an SSD of more "
        f"than {rate} spilling is faster than 1:3."
    )
    return "\n\n".join((head, table, prose(notes)))
