# SPDX-License-Identifier: Apache-2.0
"""headrace bench kv"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

import headrace
from headrace._basis import rests_on
from headrace._bench import kv, kv_live, kv_pages, kv_place, kv_servers, programs
from headrace._cli import exit_codes, output, parse
from headrace._cli.advise.prose import prose
from headrace._cli.interrupt import Interrupt
from headrace._cli.options import Json, Out, given
from headrace._files import check_writable
from headrace._tiering import status
from headrace._core import HostFiles as Files
from headrace._words import rounds_text

#: Options that a model has no use for.
_MEASURED = (
    "server", "configs", "rate", "seconds", "rounds", "settle", "directory", "profile",
)  # fmt: skip


def command(
    context: typer.Context,
    model: Annotated[
        Optional[str],
        typer.Option(
            metavar="NAME|FILE",
            help="Memories to compute the results for, instead of measuring: cxl-a1000.",
        ),
    ] = None,
    server: Annotated[
        Optional[str],
        typer.Option(
            metavar="LIST", help="Servers: redis, valkey, memcached, own (default: redis)."
        ),
    ] = None,
    workloads: Annotated[
        Optional[str],
        typer.Option(metavar="LIST", help="YCSB workloads (default: C; with --model A,B,C,D)."),
    ] = None,
    configs: Annotated[
        Optional[str],
        typer.Option(
            metavar="LIST", help="Configurations, such as MMEM,MMEM-SSD-0.2,3:1 (default: all)."
        ),
    ] = None,
    records: Annotated[
        Optional[int],
        typer.Option(
            metavar="NUMBER",
            min=1000,
            max=10**11,
            help="Number of records (default: 1 million; with --model 512 million).",
        ),
    ] = None,
    value: Annotated[str, typer.Option(metavar="SIZE", help="Size of each value.")] = "1KiB",
    threads: Annotated[
        Optional[int],
        typer.Option(
            metavar="NUMBER",
            min=1,
            max=10**4,
            help="Number of server threads, with --model (default: 7).",
        ),
    ] = None,
    clients: Annotated[
        Optional[int],
        typer.Option(
            metavar="NUMBER",
            min=1,
            max=10**4,
            help="Number of clients, one outstanding request each (default: 8; with --model 56).",
        ),
    ] = None,
    rate: Annotated[
        Optional[float],
        typer.Option(
            metavar="NUMBER",
            min=1,
            max=1e7,
            help="Operations per second (default: as many as a closed loop gives).",
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option(metavar="NUMBER", min=0.01, max=600, help="Seconds per measurement.")
    ] = 2.0,
    rounds: Annotated[
        int, typer.Option(metavar="NUMBER", min=1, max=1000, help="Number of repetitions.")
    ] = 5,
    settle: Annotated[
        float,
        typer.Option(
            metavar="NUMBER",
            min=0.01,
            max=3600,
            help="Seconds of warm-up in configurations that move pages.",
        ),
    ] = 30.0,
    directory: Annotated[
        Optional[Path],
        typer.Option(
            metavar="DIR",
            help="Directory on the SSD for values there (default: the one for temporary files).",
        ),
    ] = None,
    profile: Annotated[
        Optional[str],
        typer.Option(
            metavar="FILE", help="Profile of measure loaded, whose curves give the best share."
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(metavar="NUMBER", min=0, max=1 << 40, help="Seed of every random choice.")
    ] = 1,
    json: Json = False,
    out: Out = None,
) -> int:
    """Measure key-value servers on DRAM, CXL memory and SSD.

    Configurations and workloads come from a talk on CXL memory (P. Zhou, MemCon 2024; YCSB A to
    D). Configurations that this machine lacks are skipped, with the reason. --model computes them
    from published curves (docs/design/workloads/kv.md).

    \b
    headrace bench kv --workloads A,C --records 1000000
    headrace bench kv --server redis,own --configs MMEM,MMEM-SSD-0.2
    headrace bench kv --configs MMEM --rate 5000
    headrace bench kv --model cxl-a1000
    headrace bench kv --model cxl-a1000 --workloads C --threads 200
    """
    if out is not None:
        check_writable(out, profile, model)
    size = parse.size(value)
    if not 1 <= size <= 1 << 20:
        raise headrace.InvalidError(f"'{value}'; give 1 to 1MiB")
    if model is None:
        if threads is not None:
            raise headrace.InvalidError("--threads goes with --model; servers have their own")
        options = kv_live.Options(
            servers=parse.chosen(server, list(kv_servers.SERVERS), "server", ["redis"]),
            workloads=parse.chosen(workloads, kv.WORKLOADS, "workload", ["C"]),
            configs=parse.chosen(configs, kv_live.CONFIGS, "configuration", list(kv_live.CONFIGS)),
            records=records or 1_000_000, value=size, clients=clients or 8, seconds=seconds,
            rounds=rounds, rate=rate, settle=settle, seed=seed,
            directory=kv_place.directory(directory, tempfile.gettempdir()), profile=profile,
        )  # fmt: skip
        return measured(options, json, out)
    if foreign := [name for name in given(context) if name in _MEASURED]:
        told = ", ".join(f"--{name}" for name in foreign)
        raise headrace.InvalidError(f"{told}: for a measurement only; leave it out, or --model")
    return modelled(
        kv.ModelOptions(
            machine=model, records=records or 512_000_000, value=size, threads=threads or 7,
            workloads=parse.chosen(workloads, kv.WORKLOADS, "workload", list(kv.WORKLOADS)),
            clients=clients or max(56, threads or 0), seed=seed,
        ), json, out
    )  # fmt: skip


def measured(options: kv_live.Options, json: bool, out: Path | None) -> int:
    machine = headrace.Machine.discover()
    points = kv_live.points(options)
    with Interrupt() as interrupt, output.ProgressBar("key-value store") as bar:
        versions = kv_live.run(points, machine, options, interrupt, bar)
    document = output.document(
        "bench kv", machine, basis="measured", servers=versions, records=options.records,
        value_bytes=options.value, clients=options.clients, rate=options.rate,
        seconds=options.seconds, rounds=options.rounds, settle=options.settle, seed=options.seed,
        sampled_every_seconds=kv_pages.EVERY_SECONDS, interrupted=interrupt.requested,
        swap=[each["kind"] for each in status.swaps(Files())],
        rows=kv_live.rows(points, options.rounds, rests_on(machine)["level"] == "guest"),
    )  # fmt: skip
    output.deliver(document, out=out, json=json, show=lambda: print_measured(document))
    kv_live.check(document)
    return exit_codes.INTERRUPTED if interrupt.requested else exit_codes.SUCCESS


def modelled(options: kv.ModelOptions, json: bool, out: Path | None) -> int:
    with Interrupt() as interrupt, output.ProgressBar("model"):
        try:
            found = kv.model(options, interrupt)
        except programs.Stopped:
            return exit_codes.INTERRUPTED
    machine = headrace.Profile.load(options.machine).machine
    most = max(row["ops_per_second"] for row in found["rows"])
    document = {
        "schema_version": headrace.SCHEMA_VERSION,
        "kind": "bench kv",
        "version": headrace.__version__,
        "basis": "modelled",
        "rests_on": {"level": "model", "detail": f"published curves of {options.machine}"},
        **found,
        "cpus": sum(len(node.cpus) for node in machine.nodes),
        "cpus_busy": most * found["fitted"]["cpu_ns"] / 1e9,
    }
    output.deliver(document, out=out, json=json, show=lambda: output.print_text(text(document)))
    return exit_codes.SUCCESS


def print_measured(document: dict[str, Any]) -> None:
    """A table for each workload; what has no number, and why."""
    size = headrace.format_bytes(document["value_bytes"])
    loop = "" if document["rate"] is None else f", {document['rate']:g} operations per second"
    output.print_text(
        f"{', '.join(document['servers'].values())}; {document['records']} records of {size}, "
        f"{document['clients']} clients{loop}"
    )
    for name in dict.fromkeys(row["workload"] for row in document["rows"]):
        rows = [row for row in document["rows"] if row["workload"] == name]
        found = [row for row in rows if row["ops_per_second"] is not None]
        if found:
            output.print_text(f"\nworkload {name}")
            _print_found(found)
    for who, told in _remarks(document["rows"]):
        output.print_text(f"{who}: {told}")
    rests_on = document["rests_on"]["detail"]
    output.print_text(f"medians of {rounds_text(document)}, {rests_on}")
    if any(row["slow_share"] for row in document["rows"]):
        print("slow: faults per operation, pages elsewhere and slow reads; compare within a config")
    if "zram" in document.get("swap", ()) and any(
        row["config"] in kv_place.SSD and not kv_servers.SERVERS[row["server"]].spills
        for row in document["rows"]
    ):
        print("MMEM-SSD of servers without a file is in zram: compressed memory, not an SSD")


def _remarks(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
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


def _print_found(rows: list[dict[str, Any]]) -> None:
    several = len({row["server"] for row in rows}) > 1
    output.print_table(
        (*(["server"] if several else []),
         "config", "the talk's words", "ops/s", "p50", "p99", "p99.9", "slow", "faults/op",
         "SSD B/op", "server CPU/op", "tier CPU/op"),
        [
            (*([row["server"]] if several else []), row["config"], kv.TALK[row["config"]],
             f"{row['ops_per_second']:.0f} +- {row['ops_per_second_mad']:.0f}",
             *(_micro(row[name]) for name in ("p50_us", "p99_us", "p999_us")),
             f"{row['slow_share']:.1%}", _figure(row["major_faults_per_op"], 3),
             _figure(row["ssd_bytes_per_op"], 0), _figure(row["server_cpu_us_per_op"], 1, " us"),
             _figure(row["tier_cpu_us_per_op"] or None, 1, " us"))
            for row in rows
        ],
        left=3 if several else 2,
    )  # fmt: skip


def _figure(value: float | None, digits: int, unit: str = "") -> str:
    return "-" if value is None else f"{value:.{digits}f}{unit}"


def text(document: Mapping[str, Any]) -> str:
    size = headrace.format_bytes(int(document["value_bytes"]))
    head = (
        f"{document['machine']}: a key-value store of {document['records']} records of {size}, "
        f"{document['threads']} threads, {document['clients']} clients"
    )
    parts = [prose(head)]
    busy, cpus = document["cpus_busy"], document["cpus"]
    if busy > cpus:
        parts.insert(0, prose(
            f"WARNING: the model does not limit CPU time: the fastest row takes {busy:.0f} CPUs, "
            f"{document['machine']} has {cpus}. A real server would be slower: give fewer "
            "--threads."
        ))  # fmt: skip
    for name in dict.fromkeys(row["workload"] for row in document["rows"]):
        parts.append(_workload(document, name))
    fitted = document["fitted"]
    parts.append(
        prose(
            "Computed, not measured: an operation takes "
            f"{fitted['cpu_ns'] / 1e3:.1f} us of CPU time and waits for "
            f"{fitted['dependent_lines']:g} cache lines, one after the other, and "
            f"{fitted['ssd_ns'] / 1e3:.1f} us more if its record is on SSD. These three were "
            "fitted to the rows marked so (docs/design/workloads/kv.md); all else follows from the "
            "curves."
        )
    )
    return "\n\n".join(parts)


def _workload(document: Mapping[str, Any], name: str) -> str:
    rows = [row for row in document["rows"] if row["workload"] == name]
    table = output.table_text(
        ("config", "the talk's words", "ops/s", "p50", "p99", "slow", "promoted", "slower"),
        [
            (row["config"], kv.TALK[row["config"]], f"{row['ops_per_second']:.0f}",
             _micro(row["p50_us"]), _micro(row["p99_us"]), f"{row['slow_share']:.1%}",
             _bytes(row["promoted_bytes"]), f"{row['slower']:.2f}")
            for row in rows
        ],
        left=2,
    )  # fmt: skip
    used = rows[0]["first_memory_used"]
    said = output.table_text(
        ("said", "found", "met", "by whom"),
        [
            (check["claim"], check["found"], _met(check), check["source"])
            for check in document["checks"]
            if check["workload"] == name
        ],
        left=4,
    )
    return f"workload {name}; MMEM uses {used:.0%} of what its memory gives\n{table}\n\n{said}"


def _met(check: Mapping[str, Any]) -> str:
    return ("yes" if check["met"] else "NO") + ("" if check["predicted"] else ", fitted")


def _micro(us: float) -> str:
    return f"{us:.0f} us"


def _bytes(size: float) -> str:
    return str(headrace.format_bytes(int(size))) if size else "-"
