"""headrace tier attach: keeps a running process within a budget of memory."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from headrace._cli import exit_codes, output
from headrace._cli.options import Json
from headrace._cli.tier import watch


def command(
    pid: Annotated[int, typer.Argument(metavar="PID", help="The process.")],
    budget: watch.Budget,
    source: watch.Source = None,
    guard: watch.Guard = watch.GUARD,
    rate: watch.Rate = watch.RATE,
    seconds: Annotated[
        Optional[float],
        typer.Option("--for", metavar="SECONDS", min=0.1, help="End after this time."),
    ] = None,
    decisions: watch.Decisions = 0,
    json: Json = False,
) -> int:
    """Keep the memory of a running process within a budget: the hot in DRAM, the rest in swap.

    \b
    headrace tier attach 4711 --budget 8GiB               until Ctrl-C, or it ends
    headrace tier attach 4711 --budget 8GiB --for 60 --json
    headrace tier attach 4711 --budget 8GiB --guard 0     whatever it costs the program
    headrace tier attach 4711 --budget 8GiB --decisions 20    and the last 20 of them

    It takes root and swap (zram, or on an SSD). What is out stays out at the end until it is used.
    """
    request = watch.Request(
        watch.size_of(budget), source, watch.share_of(guard), watch.size_of(rate)
    )
    with watch.attached(pid, request) as tier:
        done = watch.until_end(tier, seconds=seconds)
    if json:
        output.print_json(watch.document(pid, request, done, decisions))
    else:
        output.print_text(watch.text(done, decisions))
    return exit_codes.INTERRUPTED if done.interrupted else exit_codes.SUCCESS
