"""headrace bench kv"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Optional

import typer

import headrace
from headrace._cli import exit_codes, output, parse
from headrace._cli.advise.prose import prose
from headrace._cli.interrupt import Interrupt
from headrace._cli.options import Json, Out
from headrace._files import check_writable


def command(
    model: Annotated[
        Optional[str],
        typer.Option(metavar="NAME|FILE", help="Whose memories are modelled: cxl-a1000."),
    ] = None,
    workloads: Annotated[
        Optional[str],
        typer.Option(metavar="LIST", help="YCSB's, such as A,C; default A,B,C,D."),
    ] = None,
    records: Annotated[
        Optional[int],
        typer.Option(
            metavar="NUMBER", min=1000, max=10**11, help="Stored; default 512 million: 512 GB."
        ),
    ] = None,
    value: Annotated[str, typer.Option(metavar="SIZE", help="Bytes of each value.")] = "1KiB",
    threads: Annotated[
        int, typer.Option(metavar="NUMBER", min=1, max=10**5, help="Threads of the server.")
    ] = 7,
    clients: Annotated[
        int,
        typer.Option(metavar="NUMBER", min=1, max=10**5, help="That ask one thing at a time."),
    ] = 56,
    seed: Annotated[
        int, typer.Option(metavar="NUMBER", min=0, max=1 << 40, help="All that is drawn.")
    ] = 1,
    json: Json = False,
    out: Out = None,
) -> int:
    """Compute what a key-value store gives with its data in DRAM, partly in CXL memory or on SSD.

    Configurations and workloads are those of a talk on CXL memory (P. Zhou, MemCon 2024; YCSB A to
    D), with its words and other reports beside them. Computed from published latency curves, not
    measured (docs/design/kv.md).

    \b
    headrace bench kv --model cxl-a1000
    headrace bench kv --model cxl-a1000 --workloads C --threads 200
    """
    from headrace._bench import kv, programs

    if out is not None:
        check_writable(out)
    if model is None:
        raise headrace.InvalidError("which machine's memories? give --model cxl-a1000")
    size = parse.size(value)
    if not 1 <= size <= 1 << 20:
        raise headrace.InvalidError(f"'{value}'; give 1 to 1MiB")
    options = kv.ModelOptions(
        machine=model, workloads=chosen(workloads), records=records or 512_000_000, value=size,
        threads=threads, clients=clients, seed=seed,
    )  # fmt: skip
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


def chosen(workloads: str | None) -> list[str]:
    """AbsentError: it names what there is."""
    from headrace._bench.kv import WORKLOADS

    for name in parse.words(workloads):
        if name not in WORKLOADS:
            raise headrace.AbsentError(f"no workload '{name}'; there are {', '.join(WORKLOADS)}")
    return list(dict.fromkeys(parse.words(workloads))) or list(WORKLOADS)


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
    from headrace._bench.kv import TALK

    rows = [row for row in document["rows"] if row["workload"] == name]
    table = output.table_text(
        ("config", "the talk's words", "ops/s", "p50", "p99", "slow", "promoted", "slower"),
        [
            (row["config"], TALK[row["config"]], f"{row['ops_per_second']:.0f}",
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
