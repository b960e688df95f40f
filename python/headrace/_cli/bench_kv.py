"""headrace bench kv"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

import headrace
from headrace._bench import kv, kv_live, programs
from headrace._cli import exit_codes, output, parse
from headrace._cli.advise.prose import prose
from headrace._cli.interrupt import Interrupt
from headrace._cli.options import Json, Out, given
from headrace._files import check_writable

#: Options that a model has no use for.
_MEASURED = ("configs", "rate", "seconds", "rounds", "settle")


def command(
    context: typer.Context,
    model: Annotated[
        Optional[str],
        typer.Option(metavar="NAME|FILE", help="Compute it for these memories instead: cxl-a1000."),
    ] = None,
    workloads: Annotated[
        Optional[str],
        typer.Option(metavar="LIST", help="YCSB's; default C, of a model A,B,C,D."),
    ] = None,
    configs: Annotated[
        Optional[str],
        typer.Option(metavar="LIST", help="Such as MMEM,MMEM-SSD-0.2,3:1; default all."),
    ] = None,
    records: Annotated[
        Optional[int],
        typer.Option(
            metavar="NUMBER",
            min=1000,
            max=10**11,
            help="Stored; default a million, of a model 512 million.",
        ),
    ] = None,
    value: Annotated[str, typer.Option(metavar="SIZE", help="Bytes of each value.")] = "1KiB",
    threads: Annotated[
        Optional[int],
        typer.Option(metavar="NUMBER", min=1, max=10**5, help="The model's server has; default 7."),
    ] = None,
    clients: Annotated[
        Optional[int],
        typer.Option(
            metavar="NUMBER",
            min=1,
            max=10**4,
            help="That ask, each one thing at a time; default 8, of a model 56.",
        ),
    ] = None,
    rate: Annotated[
        Optional[float],
        typer.Option(
            metavar="NUMBER", min=1, max=1e7, help="Operations per second; default a closed loop."
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option(metavar="NUMBER", min=0.01, max=600, help="Each measurement's time.")
    ] = 2.0,
    rounds: Annotated[
        int, typer.Option(metavar="NUMBER", min=1, max=1000, help="Repetitions.")
    ] = 5,
    settle: Annotated[
        float,
        typer.Option(
            metavar="NUMBER", min=0.01, max=3600,
            help="Seconds that Hot-Promote has before it is measured.",
        ),
    ] = 30.0,  # fmt: skip
    seed: Annotated[
        int, typer.Option(metavar="NUMBER", min=0, max=1 << 40, help="All that is drawn.")
    ] = 1,
    json: Json = False,
    out: Out = None,
) -> int:
    """Measure a redis-server with its data in DRAM, partly in slower memory, or in swap.

    Configurations and workloads are those of a talk on CXL memory (P. Zhou, MemCon 2024; YCSB A to
    D). What this machine lacks is left out, with the reason; --model computes it from published
    curves (docs/design/kv.md).

    \b
    headrace bench kv --workloads A,C --records 1000000
    headrace bench kv --configs MMEM,MMEM-SSD-0.2 --rate 5000
    headrace bench kv --model cxl-a1000
    headrace bench kv --model cxl-a1000 --workloads C --threads 200
    """
    if out is not None:
        check_writable(out)
    size = parse.size(value)
    if not 1 <= size <= 1 << 20:
        raise headrace.InvalidError(f"'{value}'; give 1 to 1MiB")
    if model is None:
        if threads is not None:
            raise headrace.InvalidError("--threads goes with --model; a redis-server has one")
        options = kv_live.Options(
            workloads=parse.chosen(workloads, kv.WORKLOADS, "workload", ["C"]),
            configs=parse.chosen(configs, kv_live.CONFIGS, "configuration", list(kv_live.CONFIGS)),
            records=records or 1_000_000, value=size, clients=clients or 8, seconds=seconds,
            rounds=rounds, rate=rate, settle=settle, seed=seed,
        )  # fmt: skip
        return measured(options, json, out)
    if foreign := [name for name in given(context) if name in _MEASURED]:
        told = ", ".join(f"--{name}" for name in foreign)
        raise headrace.InvalidError(f"{told}: of a measurement, not of a --model")
    return modelled(
        kv.ModelOptions(
            machine=model, records=records or 512_000_000, value=size, threads=threads or 7,
            workloads=parse.chosen(workloads, kv.WORKLOADS, "workload", list(kv.WORKLOADS)),
            clients=clients or 56, seed=seed,
        ), json, out
    )  # fmt: skip


def measured(options: kv_live.Options, json: bool, out: Path | None) -> int:
    machine = headrace.Machine.discover()
    points = kv_live.points(options)
    with Interrupt() as interrupt, output.ProgressBar("key-value store") as bar:
        version = kv_live.run(points, machine, options, interrupt, bar)
    document = output.document(
        "bench kv", machine, basis="measured", server=version, records=options.records,
        value_bytes=options.value, clients=options.clients, rate=options.rate,
        seconds=options.seconds, rounds=options.rounds, settle=options.settle, seed=options.seed,
        interrupted=interrupt.requested, rows=kv_live.rows(points),
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
    document = {
        "schema_version": headrace.SCHEMA_VERSION,
        "kind": "bench kv",
        "version": headrace.__version__,
        "basis": "modelled",
        **found,
    }
    output.deliver(document, out=out, json=json, show=lambda: output.print_text(text(document)))
    return exit_codes.SUCCESS


def print_measured(document: dict[str, Any]) -> None:
    """A table for each workload; what has no number, and why."""
    size = headrace.format_bytes(document["value_bytes"])
    loop = "" if document["rate"] is None else f", {document['rate']:g} operations per second"
    print(
        f"{document['server']}, {document['records']} records of {size}, "
        f"{document['clients']} clients{loop}"
    )
    for name in dict.fromkeys(row["workload"] for row in document["rows"]):
        rows = [row for row in document["rows"] if row["workload"] == name]
        found = [row for row in rows if row["ops_per_second"] is not None]
        if found:
            print(f"\nworkload {name}")
            _print_found(found)
    for row in {row["config"]: row for row in document["rows"] if row["reason"]}.values():
        print(f"{row['config']}: {row['reason']}")
    rests_on = document["rests_on"]["detail"]
    print(f"medians of {document['rounds']} rounds, {rests_on}")


def _print_found(rows: list[dict[str, Any]]) -> None:
    output.print_table(
        ("config", "the talk's words", "ops/s", "p50", "p99", "p99.9", "slow", "faults/op",
         "server CPU/op", "tier CPU/op"),
        [
            (row["config"], kv.TALK[row["config"]],
             f"{row['ops_per_second']:.0f} +- {row['ops_per_second_mad']:.0f}",
             *(_micro(row[name]) for name in ("p50_us", "p99_us", "p999_us")),
             f"{row['slow_share']:.1%}", _figure(row["major_faults_per_op"], 3),
             _figure(row["server_cpu_us_per_op"], 1, " us"),
             _figure(row["tier_cpu_us_per_op"] or None, 1, " us"))
            for row in rows
        ],
        left=2,
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
    for name in dict.fromkeys(row["workload"] for row in document["rows"]):
        parts.append(_workload(document, name))
    fitted = document["fitted"]
    parts.append(
        prose(
            "Computed, not measured: an operation takes "
            f"{fitted['cpu_ns'] / 1e3:.1f} us of CPU time and waits for "
            f"{fitted['dependent_lines']:g} cache lines, one after the other, and "
            f"{fitted['ssd_ns'] / 1e3:.1f} us more if its record is on SSD. These three were "
            "fitted to the rows marked so (docs/design/kv.md); all else follows from the curves."
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
