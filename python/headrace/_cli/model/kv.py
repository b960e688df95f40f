# SPDX-License-Identifier: Apache-2.0
"""headrace model kv"""

from __future__ import annotations

from typing import Annotated, Any, Optional

import typer

import headrace
from headrace._cli import output, parse
from headrace._cli.interrupt import Interrupt
from headrace._cli.model import document
from headrace._cli.options import Json, Out, Seed
from headrace._files import check_writable
from headrace._format import prose
from headrace._model import kv

Row = dict[str, Any]

Records = Annotated[
    int, typer.Option(metavar="NUMBER", min=1000, max=10**11, help="Number of records.")
]
Value = Annotated[str, typer.Option(metavar="SIZE", help="Size of each value.")]


def command(
    machine: Annotated[
        str,
        typer.Option(metavar="NAME|FILE", help="Profile with loaded latencies of two memories."),
    ] = "cxl-a1000",
    workloads: Annotated[
        Optional[str], typer.Option(metavar="LIST", help="YCSB workloads (default: A,B,C,D).")
    ] = None,
    records: Records = 512_000_000,
    value: Value = "1KiB",
    threads: Annotated[
        int, typer.Option(metavar="NUMBER", min=1, max=10**4, help="Number of server threads.")
    ] = 7,
    clients: Annotated[
        Optional[int],
        typer.Option(
            metavar="NUMBER",
            min=1,
            max=10**4,
            help="Number of clients, one outstanding request each (default: 56, at least one per "
            "thread).",
        ),
    ] = None,
    seed: Seed = 1,
    json: Json = False,
    out: Out = None,
) -> None:
    """Model a key-value server on DRAM, CXL memory and SSD.

    The configurations of headrace bench kv on a machine that need not be here
    (docs/design/workloads/kv-model.md).

    \b
    headrace model kv
    headrace model kv --machine cxl-a1000 --workloads C --threads 200
    """
    check_writable(out, machine)
    options = kv.Options(
        machine=machine, workloads=parse.chosen(workloads, kv.WORKLOADS, "workload", [*"ABCD"]),
        records=records, value=value_bytes(value), threads=threads,
        clients=clients or max(56, threads), seed=seed,
    )  # fmt: skip
    with Interrupt() as interrupt, output.ProgressBar("model"):
        found = kv.model(options, interrupt)
    fitted = found.pop("fitted")
    most = max(row["ops_per_second"] for row in found["rows"])
    nodes = headrace.Profile.load(machine).machine.nodes
    found["cpus"] = sum(len(node.cpus) for node in nodes)
    found["cpus_busy"] = most * fitted["cpu_ns"] / 1e9
    detail = f"a closed loop of threads on the loaded-latency curves of {machine}"
    document.deliver(
        "kv", detail, kv.constants(fitted), found, json=json, out=out,
        show=lambda made: output.print_text(text(made)),
    )  # fmt: skip


def value_bytes(word: str) -> int:
    size = parse.size(word)
    if not 1 <= size <= 1 << 20:
        raise headrace.InvalidError(f"'{word}'; give 1 to 1MiB")
    return size


def text(made: Row) -> str:
    size = headrace.format_bytes(int(made["value_bytes"]))
    head = (
        f"{made['machine']}: a key-value store of {made['records']} records of {size}, "
        f"{made['threads']} threads, {made['clients']} clients"
    )
    parts = [prose(head)]
    busy, cpus = made["cpus_busy"], made["cpus"]
    if busy > cpus:
        parts.insert(0, prose(
            f"WARNING: the model does not limit CPU time: the fastest row takes {busy:.0f} CPUs, "
            f"{made['machine']} has {cpus}. A real server would be slower: give fewer --threads."
        ))  # fmt: skip
    names = dict.fromkeys(row["workload"] for row in made["rows"])
    return "\n\n".join([*parts, *(_workload(made, name) for name in names)])


def _workload(made: Row, name: str) -> str:
    rows, checks = (
        [each for each in made[kind] if each["workload"] == name] for kind in ("rows", "checks")
    )
    table = output.table_text(
        ("config", "the talk's words", "ops/s", "p50", "p99", "slow", "promoted", "slower"),
        [
            (row["config"], kv.TALK[row["config"]], f"{row['ops_per_second']:.0f}",
             *(f"{row[each]:.0f} us" for each in ("p50_us", "p99_us")), f"{row['slow_share']:.1%}",
             _bytes(row["promoted_bytes"]), f"{row['slower']:.2f}")
            for row in rows
        ],
        left=2,
    )  # fmt: skip
    claims = output.table_text(
        ("claim", "modelled", "met", "source"),
        [
            (check["claim"], check["found"],
             ("yes" if check["met"] else "NO") + ("" if check["predicted"] else ", fitted"),
             check["source"])
            for check in checks
        ],
        left=4,
    )  # fmt: skip
    used = rows[0]["first_memory_used"]
    return f"workload {name}; MMEM uses {used:.0%} of what its memory gives\n{table}\n\n{claims}"


def _bytes(size: float) -> str:
    return str(headrace.format_bytes(int(size))) if size else "-"
