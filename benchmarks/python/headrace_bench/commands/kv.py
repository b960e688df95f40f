# SPDX-License-Identifier: Apache-2.0
"""headrace bench kv"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from headrace._core import HostFiles as Files

import headrace
from headrace._cli import exit_codes, output, parse
from headrace._cli.interrupt import Interrupt
from headrace._cli.options import Json, Out, Seed
from headrace._files import check_writable
from headrace._format import interval_text, rounds_text
from headrace._profile.documents import Fields, all_fields
from headrace._tiering import status
from headrace_bench import kv_live, kv_pages, kv_place, kv_servers
from headrace_bench.commands.options import number, option
from headrace_bench.runner import check

Records = Annotated[
    int, typer.Option(metavar="NUMBER", min=1000, max=10**11, help="Number of records.")
]
Value = Annotated[str, typer.Option(metavar="SIZE", help="Size of each value.")]
WORKLOADS = ("A", "B", "C", "D")
#: Words of the talk on each configuration; it has none on CXL.
TALK = {
    "MMEM": "entire working set in main memory",
    "MMEM-SSD-0.2": "20 % of the working set spilled to SSD",
    "MMEM-SSD-0.4": "40 % of the working set spilled to SSD",
    "3:1": "naive interleaving: significant performance drop",
    "1:1": "naive interleaving: significant performance drop",
    "1:3": "naive interleaving: significant performance drop",
    "CXL": "",
    "Hot-Promote": "nearly as well as local DRAM",
    }


def command(
    server: Annotated[
        Optional[str], option("LIST", "Servers: redis, valkey, memcached, own (default: redis).")
    ] = None,
    workloads: Annotated[
        Optional[str], option("LIST", "YCSB workloads: A, B, C, D (default: C).")
    ] = None,
    configs: Annotated[Optional[str], option(
        "LIST", "Configurations, such as MMEM,MMEM-SSD-0.2,3:1 (default: all).",
    )] = None,
    records: Records = 1_000_000,
    value: Value = "1KiB",
    clients: Annotated[
        int, number("Number of clients, one outstanding request each.", 1, 10**4)
    ] = 8,
    rate: Annotated[Optional[float], number(
        "Operations per second (default: as many as a closed loop gives).", 1, 1e7,
    )] = None,
    seconds: Annotated[float, number("Seconds per measurement.", 0.01, 600)] = 2.0,
    rounds: Annotated[int, number("Number of repetitions.", 1, 1000)] = 5,
    settle: Annotated[
        float, number("Seconds of warm-up in configurations that move pages.", 0.01, 3600)
    ] = 30.0,
    directory: Annotated[Optional[Path], option(
        "DIR", "Directory on the SSD for values there (default: the one for temporary files).",
    )] = None,
    seed: Seed = 1,
    json: Json = False,
    out: Out = None,
) -> int:
    """Measure key-value servers on DRAM, CXL memory and SSD.

    Configurations and workloads come from a talk on CXL memory (P. Zhou, MemCon 2024; YCSB A to
    D). Configurations that this machine lacks are skipped, with the reason. headrace predict kv
    predicts another machine.

    \b
    headrace bench kv --workloads A,C --records 1000000
    headrace bench kv --server redis,own --configs MMEM,MMEM-SSD-0.2
    headrace bench kv --configs MMEM --rate 5000
    """
    if out is not None:
        check_writable(out)
    options = kv_live.Options(
        servers=parse.chosen(server, list(kv_servers.SERVERS), "server", ["redis"]),
        workloads=parse.chosen(workloads, WORKLOADS, "workload", ["C"]),
        configs=parse.chosen(configs, kv_live.CONFIGS, "configuration", list(kv_live.CONFIGS)),
        records=records, value=value_bytes(value), clients=clients, seconds=seconds, rounds=rounds,
        rate=rate, settle=settle, seed=seed,
        directory=kv_place.directory(directory, tempfile.gettempdir()),
    )  # fmt: skip
    return measured(options, json, out)


def measured(options: kv_live.Options, json: bool, out: Path | None) -> int:
    machine = headrace.Machine.discover()
    points = kv_live.points(options)
    with Interrupt() as interrupt, output.ProgressBar("key-value store") as bar:
        versions, runners = kv_live.run(points, machine, options, interrupt, bar)
    document = output.document(
        "bench kv", machine, basis="measured", servers=versions, records=options.records,
        value_bytes=options.value, clients=options.clients, rate=options.rate,
        seconds=options.seconds, rounds=options.rounds, settle=options.settle, seed=options.seed,
        sampled_every_seconds=kv_pages.EVERY_SECONDS, interrupted=interrupt.requested,
        swap=[each["kind"] for each in status.swaps(Files())],
        order=[runner.order(points) for runner in runners],
        rows=[row.asdict() for row in kv_live.rows(points, options)], pages=kv_live.pages(points),
    )  # fmt: skip
    output.deliver(document, out=out, json=json, show=lambda: print_measured(document))
    check(document, "a value is")
    return exit_codes.INTERRUPTED if interrupt.requested else exit_codes.SUCCESS


def print_measured(document: dict[str, Any]) -> None:
    """Prints a table for each workload, then reasons for missing numbers."""
    size = headrace.format_bytes(document["value_bytes"])
    loop = "" if document["rate"] is None else f", {document['rate']:g} operations per second"
    output.print_text(
        f"{', '.join(document['servers'].values())}; {document['records']} records of {size}, "
        f"{document['clients']} clients{loop}"
    )
    rows = all_fields(document)
    for name in dict.fromkeys(row["workload"] for row in rows):
        found = [row for row in rows if row["workload"] == name and row["median"] is not None]
        if found:
            output.print_text(f"\nworkload {name}")
            _print_found(found)
    for who, told in _remarks(rows):
        output.print_text(f"{who}: {told}")
    rests_on = document["rests_on"]["detail"]
    output.print_text(f"medians of {rounds_text(document)} and their intervals, {rests_on}")
    if any(row["slow_share"] for row in rows):
        print("slow: faults per operation, pages elsewhere and slow reads; compare within a config")
    if "zram" in document.get("swap", ()) and any(
        row["config"] in kv_place.SSD and not kv_servers.SERVERS[row["server"]].spills
        for row in rows
    ):
        print("MMEM-SSD of servers without a file is in zram: compressed memory, not an SSD")


def _remarks(rows: list[Fields]) -> list[tuple[str, str]]:
    """Remarks on rows, each once for all servers that it holds for."""
    by: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if told := row["reason"] or row["note"]:
            by.setdefault((row["config"], told), []).append(row["server"])
    several = len({row["server"] for row in rows}) > 1
    said: dict[tuple[str, str], None] = {}
    for (config, told), servers in by.items():
        names = ", ".join(dict.fromkeys(servers))
        said[f"{names} {config}" if several else config, told] = None
    return list(said)


def _print_found(rows: list[Fields]) -> None:
    several = len({row["server"] for row in rows}) > 1
    output.print_table(
        (*(["server"] if several else []),
         "config", "the talk's words", "ops/s", "interval", "p50", "p99", "p99.9", "slow",
         "faults/op", "SSD B/op", "server CPU/op", "tier CPU/op"),
        [
            (*([row["server"]] if several else []), row["config"], TALK[row["config"]],
             _ops(row["median"]), interval_text(row, _ops),
             *(_micro(row[name]) for name in ("p50_us", "p99_us", "p999_us")),
             f"{row['slow_share']:.1%}", _figure(row["major_faults_per_op"], 3),
             _figure(row["ssd_bytes_per_op"], 0), _figure(row["server_cpu_us_per_op"], 1, " us"),
             _figure(row["tier_cpu_us_per_op"] or None, 1, " us"))
            for row in rows
        ],
        left=3 if several else 2,
    )  # fmt: skip


def _ops(value: float) -> str:
    return f"{value:.0f}"


def _figure(value: float | None, digits: int, unit: str = "") -> str:
    return "-" if value is None else f"{value:.{digits}f}{unit}"


def _micro(us: float) -> str:
    return f"{us:.0f} us"


def value_bytes(word: str) -> int:
    size = parse.size(word)
    if not 1 <= size <= 1 << 20:
        raise headrace.InvalidError(f"'{word}'; give 1 to 1MiB")
    return size
