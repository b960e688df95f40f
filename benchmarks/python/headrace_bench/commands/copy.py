# SPDX-License-Identifier: Apache-2.0
"""headrace bench copy"""

from __future__ import annotations

import os
from typing import Annotated, Any, Optional

import headrace
from headrace._cli import exit_codes, output, parse
from headrace._cli.interrupt import Interrupt
from headrace._cli.options import Json, Out, Rounds
from headrace._errors import unknown
from headrace._files import check_writable
from headrace._profile.documents import Fields, all_fields
from headrace._profile.row_documents import copy_rows, reached
from headrace_bench.commands.options import flag, option

#: Sizes of --quick and the demo: below, at and above the streaming threshold, and beyond all
#: caches. Then the smallest number of rounds that gives a median.
QUICK_SIZES = (4 << 10, 256 << 10, 4 << 20, 64 << 20)
QUICK_ROUNDS = 3


#: 64 B to 1 GiB.
_ALL_SIZES = tuple(64 << power for power in range(0, 25, 2))


def measure_copy(
    machine: headrace.Machine,
    interrupt: Interrupt,
    *,
    sizes: list[int],
    threads: list[int],
    engines: list[str],
    rounds: int,
) -> dict[str, Any]:
    """The document of a session of `copy` within the first node, until done or interrupted."""
    home = _first_node(machine)
    only: dict[str, int | str | list[int | str]] = {
        "from": home, "to": home, "bytes": [*sizes], "threads": [*threads],
        "engine": [*dict.fromkeys(["memcpy", *engines])],  # for the ratio
    }  # fmt: skip
    with output.ProgressBar("copying") as bar:
        profile = headrace.measure(
            machine,
            selections=[("copy", only)],
            budget=None,
            rounds=rounds,
            repetitions=1,
            noise_checks=False,
            stop=interrupt,
            progress=bar,
        )
    return output.document(
        "bench copy",
        machine,
        kernel=headrace.chosen_copy_kernel(),
        rounds=rounds,
        conditions=profile.conditions,
        interrupted=interrupt.requested,
        rows=[row.asdict() for row in copy_rows(reached(profile.rows), engines)],
    )


def _first_node(machine: headrace.Machine) -> int:
    """The node of the first CPU that this process may use, otherwise the first memory node."""
    node = machine.node_of_cpu(min(os.sched_getaffinity(0)))
    if node is not None and node.capacity:
        return int(node.id)
    for each in machine.nodes:
        if each.byte_addressable and each.capacity:
            return int(each.id)
    raise headrace.AbsentError(f"machine {machine.name} has no memory node; see headrace topo")


def command(
    json: Json = False,
    sizes: Annotated[Optional[str], option(
        "LIST", "Sizes, such as 64KiB,1MiB (default: 64 B to 1 GiB in steps of 4).",
    )] = None,
    threads: Annotated[str, option("LIST", "Numbers of threads, such as 1,2.")] = "1",
    engines: Annotated[
        str, option("LIST", "Engines, such as memcpy,avx2_nt; all: every copy kernel.")
    ] = "memcpy,cpu",
    rounds: Rounds = 7,
    quick: Annotated[
        bool, flag("--quick", "Measure few sizes and rounds: seconds, but wider intervals.")
    ] = False,
    out: Out = None,
) -> int:
    """Compare copy kernels with memcpy, in and out of caches."""
    known = ["memcpy", "cpu", *headrace.copy_kernels()]
    wanted = known if engines == "all" else parse.words(engines)
    for engine in wanted:
        if engine not in known:
            raise unknown("engine", engine, known)
    options: dict[str, Any] = {
        "sizes": parse.sizes(sizes) or [*(QUICK_SIZES if quick else _ALL_SIZES)],
        "threads": parse.counts(threads) or [1],
        "engines": wanted,
        "rounds": min(rounds, QUICK_ROUNDS) if quick else rounds,
    }
    if out is not None:
        check_writable(out)
    machine = headrace.Machine.discover()
    with Interrupt() as interrupt:
        document = measure_copy(machine, interrupt, **options)
    output.deliver(document, out=out, json=json, show=lambda: print_copy(document))
    return exit_codes.INTERRUPTED if interrupt.requested else exit_codes.SUCCESS


def print_copy(document: dict[str, Any]) -> None:
    """One line per state, size and threads; one column per engine: rate and ratio to memcpy."""
    rows = all_fields(document)
    engines = list(dict.fromkeys(row["engine"] for row in rows))
    lines: dict[tuple[str, int, int], dict[str, str]] = {}
    for row in rows:
        line = lines.setdefault((row["state"], row["bytes"], row["threads"]), {})
        line[row["engine"]] = _cell(row)
    output.print_table(
        ("state", "bytes", "threads", *engines),
        (
            (state, headrace.format_bytes(size), str(threads), *(cells.get(e, "") for e in engines))
            for (state, size, threads), cells in lines.items()
        ),
    )
    for reason in dict.fromkeys(row["reason"] for row in rows if row["reason"]):
        output.print_text(f"not measured: {reason}")


def _cell(row: Fields) -> str:
    if row["median"] is None:
        return "-"
    rate: str = headrace.format_rate(row["median"])
    ratio = row["ratio_to_memcpy"]
    return rate if ratio is None or row["engine"] == "memcpy" else f"{rate}  x{ratio:.2f}"
