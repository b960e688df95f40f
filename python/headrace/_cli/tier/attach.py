# SPDX-License-Identifier: Apache-2.0
"""headrace tier attach: keeps a running process within a budget of fast memory."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from headrace._cli import exit_codes, output
from headrace._cli.options import Json
from headrace._cli.tier import watch


def command(
    pid: Annotated[
        int, typer.Argument(metavar="PID", min=1, max=(1 << 31) - 1, help="Process ID.")
    ],
    budget: watch.Budget,
    fast: watch.Fast = None,
    slow: watch.Slow = None,
    source: watch.Source = None,
    guard: watch.Guard = watch.GUARD,
    rate: watch.Rate = watch.RATE,
    hold: watch.Hold = None,
    seconds: Annotated[
        Optional[float],
        typer.Option(
            "--for",
            metavar="SECONDS",
            min=0.1,
            help="Seconds until the end (default: until Ctrl-C or the process ends).",
        ),
    ] = None,
    decisions: watch.Decisions = 0,
    json: Json = False,
) -> int:
    """Keep a running process within a budget of fast memory.

    The hottest pages stay in fast memory.

    \b
    headrace tier attach 4711 --budget 8GiB              until Ctrl-C, or its end
    headrace tier attach 4711 --budget 8GiB --for 60 --json
    headrace tier attach 4711 --budget 8GiB --guard 0    at any cost to it
    headrace tier attach 4711 --budget 8GiB --decisions 20   lists the last 20
    headrace tier attach 4711 --budget 8GiB --fast 0 --slow 1
    headrace tier attach 4711 --budget 8GiB --slow swap  despite slower nodes
    headrace tier attach 4711 --budget 8GiB --hold cgroup    limits it, too

    Slow memory is the nodes of the kernel's slower memory tiers (CXL; DRAM beside HBM); the same
    user may use them. Without such nodes it is swap (zram, or on an SSD), which needs root. Pages
    that are out at the end stay out: in swap until they are used.
    """
    request = watch.request(budget, source, guard, rate, fast, slow, hold)
    with watch.attached(pid, request) as tier:
        done = watch.until_end(tier, request, pid=pid, seconds=seconds)
    if json:
        output.print_json(watch.document(pid, request, done, decisions))
    else:
        output.print_text(watch.text(done, decisions))
    return exit_codes.INTERRUPTED if done.interrupted else exit_codes.SUCCESS
