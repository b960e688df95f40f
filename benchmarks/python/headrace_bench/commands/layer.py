# SPDX-License-Identifier: Apache-2.0
"""headrace bench layer"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

import headrace
from headrace._cli import exit_codes, output, parse
from headrace._cli.interrupt import Interrupt
from headrace._cli.options import Json, Out, Threads, given
from headrace._files import check_writable
from headrace._format import interval_text, plural
from headrace._profile.documents import Fields
from headrace._profile.nested import rows_of
from headrace._provenance import EMULATED_GPUS
from headrace_bench.commands.options import number, option

#: Largest layer in bytes: more than any machine keeps, and minutes for each repetition on the
#: fastest.
_MOST_BYTES = 1 << 43

_LIMITED = "more is not carried by the memory beside the layer"
#: Options that do not apply to modelled rows.
_MEASURED = ("on", "threads", "repetitions", "directory", "profile")


def command(
    context: typer.Context,
    model: Annotated[
        str, option("NAME", "Model whose layer is streamed: llama-3.1-8b, qwen3-32b, ...")
    ] = "llama-3.1-8b",
    batch: Annotated[int, number("Number of sequences in the batch.", 1, 10**6)] = 2,
    tokens: Annotated[int, number("Number of tokens per sequence.", 0, 10**8, "--context")] = 8192,
    on: Annotated[str, option("PLACE", "Memory of the layer, as for headrace run.")] = "dram",
    dtype: Annotated[
        str, option("TYPE", "Type of the weights: bf16, fp16, fp8, int8, fp32.")
    ] = "bf16",
    kv_dtype: Annotated[str, option("TYPE", "Type of keys and values.")] = "bf16",
    target: Annotated[Optional[str], option(
        "DURATION", "Time limit per layer: 2ms (default: 1.1 times the measured time).",
    )] = None,
    bandwidth: Annotated[Optional[str], option(
        "LIST", "Rates of memories to model instead of measuring: 306GB/s,200GB/s.",
    )] = None,
    threads: Threads = None,
    repetitions: Annotated[int, number("Number of layers after the first.", 1, 1000)] = 10,
    directory: Annotated[
        Path, option("DIRECTORY", "Directory on the disk whose reads count as an engine.")
    ] = Path("."),
    profile: Annotated[Optional[str], option(
        "FILE", "Profile of this host whose rates are used instead of measuring them.",
    )] = None,
    json: Json = False,
    out: Out = None,
) -> int:
    """Stream the bytes that a layer of a language model reads.

    The layer's weights and the KV cache of a batch are random bytes of the real size. No tokens
    are computed. The table shows what is left of each memory's bandwidth.

    \b
    headrace bench layer --model llama-3.1-8b --batch 2 --on hbm
    headrace bench layer --bandwidth 306GB/s --dtype int8
    """
    from headrace import _language_models as models
    from headrace_bench.llm import layer, settings

    load = layer.Load(models.model(model), batch, tokens, dtype, kv_dtype)
    load.asdict()  # refuses types that there are not
    if load.bytes > _MOST_BYTES:
        raise headrace.InvalidError(
            f"a layer would read {headrace.format_bytes(load.bytes)}; "
            "give a smaller --batch or --context"
        )
    allowed = None if target is None else parse.duration(target)
    if allowed is not None and allowed <= 0:
        raise headrace.InvalidError("a layer in no time; give --target 2ms or more")
    if out is not None:
        check_writable(out, profile)
    if bandwidth is not None:
        return _model(context, load, bandwidth, allowed, json, out)
    known = None if profile is None else headrace.Profile.load(profile)
    with Interrupt() as interrupt:
        with interrupt.suspended():
            machine = headrace.Machine.discover(storage=[directory])
            bench = _bench(context, machine, load, on, threads)
        interrupt.keeps = True
        with output.ProgressBar("layers") as bar:
            bench.repeat(repetitions, interrupt, bar)
        row = bench.row()
        engines: list[dict[str, Any]] = []
        if row["ms_per_layer"] is not None and not interrupt():
            seconds = 1e-3 * row["ms_per_layer"]
            engines = layer.engine_rates(
                machine, min(row["residency"]), directory, interrupt, link=bench.link(),
                profile=known,
            )  # fmt: skip
            layer.budget(
                load, allowed or layer.SLOWER * seconds, seconds, row["peak_bytes_per_second"],
                engines,
            )  # fmt: skip
        stopped = interrupt()
    document = output.document(
        "bench layer", machine, **load.asdict(), settings=settings.settings(),
        interrupted=stopped, order=bench.order, rows=[layer.row_of_layer(load, row).asdict()],
        engines=engines,
    )  # fmt: skip
    if row["basis"] == "emulated":
        document["rests_on"] = EMULATED_GPUS
    output.deliver(document, out=out, json=json, show=lambda: print_layer(document))
    return exit_codes.INTERRUPTED if stopped else exit_codes.SUCCESS


def _bench(
    context: typer.Context, machine: headrace.Machine, load: Any, on: str, threads: int | None
) -> Any:
    from headrace_bench.llm import layer
    from headrace_bench.llm.gpu import gpu_named

    if (gpu := gpu_named(machine, on)) is None:
        bench = layer.Bench(machine, load, on, threads)
        bench.fill()
        return bench
    if "threads" in given(context):
        raise headrace.InvalidError(f"--on {on} is read by a GPU; leave out --threads")
    return layer.GpuBench(machine, load, on, gpu)


def _model(
    context: typer.Context, load: Any, bandwidth: str, target: float | None, json: bool,
    out: Path | None,
) -> int:  # fmt: skip
    from headrace_bench.llm import layer

    unused = [name for name in given(context) if name in _MEASURED]
    if unused:
        raise headrace.InvalidError(
            f"--bandwidth models a memory; leave out --{unused[0]}, which is for measuring one"
        )
    rates = [parse.rate(word) for word in parse.words(bandwidth)]
    if not rates:
        raise headrace.InvalidError("no bandwidth given; write --bandwidth 306GB/s")
    rows = [layer.modelled(load, rate) for rate in rates]
    if target is not None:
        for row in rows:
            left = row["bytes_per_second"] * target - load.bytes
            row |= {"target_ms": 1e3 * target, "left_bytes": max(0, int(left))}
    machine = headrace.Machine.discover(storage=[])
    document = output.document(
        "bench layer", machine, **load.asdict(), settings=None, interrupted=False,
        rows=[layer.row_of_layer(load, row).asdict() for row in rows], engines=[],
    )  # fmt: skip
    document["rests_on"] = {"level": "model", "detail": "modelled: all of the bandwidth is used"}
    output.deliver(document, out=out, json=json, show=lambda: print_layer(document))
    return exit_codes.SUCCESS


def print_layer(document: dict[str, Any]) -> None:
    d = document
    output.print_text(
        f"{d['model']}, batch {d['batch']}, context {d['context']}: a layer reads "
        f"{_mb(d['weight_bytes'])} of weights ({d['dtype']}) and {_mb(d['kv_bytes'])} of KV "
        f"({d['kv_dtype']})"
    )
    rows = rows_of(d, "layer")
    for row in rows:
        _print_row(row)
    for line in _claim(rows, d["claim_needs_bytes_per_second"]):
        output.print_text(line)
    if d["engines"]:
        _print_engines(d["engines"])
    output.print_text(d["rests_on"]["detail"])


def _print_row(row: Fields) -> None:
    rate = _rate(row["bytes_per_second"])
    if row["basis"] == "modelled":
        left = ""
        if row["left_bytes"] is not None:
            left = f", {_mb(row['left_bytes'])} left in {row['target_ms']:g} ms"
        output.print_text(
            f"modelled at {rate}: {row['median']:.2f} ms per layer, "
            f"{row['ms_per_step']:.1f} ms per step{left}"
        )
        return
    if row["median"] is None:
        output.print_text("interrupted before a layer was measured")
        return
    bounds = interval_text(row, lambda ms: f"{ms:.2f}")
    spread = f"{bounds}; " if bounds else ""
    who = f"{row['device']}, " if row["device"] else ""
    if row["basis"] == "emulated":
        who = f"emulated {who}"
    output.print_text(
        f"{row['on']} (node {row['place']}), {who}{plural(row['threads'], 'thread')}: "
        f"{row['median']:.2f} ms per layer ({spread}"
        f"the first {row['first_ms']:.2f}), {rate}, "
        f"{row['share_of_peak']:.0%} of the measured peak {_rate(row['peak_bytes_per_second'])}, "
        f"which gives {row['floor_ms']:.2f} ms"
    )
    if "shrunk" in row["flags"]:
        output.print_text(
            f"streamed in {headrace.format_bytes(int(row['memory_bytes']))} again and again: not "
            f"enough is free on {row['on']} for {headrace.format_bytes(int(row['wanted_bytes']))}"
        )


def _claim(rows: list[Fields], needed: float) -> list[str]:
    """Whether a layer is done within a millisecond, as is often said."""
    needs = _rate(needed)
    late = [row for row in rows if row["median"] is not None and row["median"] >= 1]
    lines = [f"a layer in less than 1 ms, as is often said, needs more than {needs}"]
    if late:
        found = ", ".join(
            f"{row['median']:.2f} ms at {_rate(row['bytes_per_second'])}" for row in late
        )
        lines[0] += f"; not so here: {found}"
    return lines


def _print_engines(engines: list[dict[str, Any]]) -> None:
    target = engines[0].get("target_ms")
    output.print_text(f"\nleft for moving into this memory while a layer takes {target:.2f} ms:")
    lines = [
        (row["engine"], "-" if row["from_node"] is None else str(row["from_node"]),
         _rate(row["bytes_per_second"]), "-" if row["bytes"] is None else _mb(row["bytes"]),
         "-" if row["share_of_kv"] is None else f"{row['share_of_kv']:.1%}",
         "; ".join(_notes(row)))
        for row in engines
    ]  # fmt: skip
    output.print_table(("engine", "from", "rate", "bytes", "of the layer's KV", ""), lines, left=1)


def _notes(row: dict[str, Any]) -> list[str]:
    """Why there is no rate; or its basis, if that is not a copy of this run, and its limit."""
    notes = [row["reason"]] if row["reason"] else []
    if row["source"] not in ("", "this run"):
        notes.append(row["source"])
    if row["basis"] == "emulated" and "emulated" not in row["source"]:
        notes.append("emulated")
    return [*notes, _LIMITED] if row["memory_limits"] else notes


def _mb(size: float) -> str:
    return f"{size / 1e6:.1f} MB"


def _rate(value: float | None) -> str:
    return "-" if value is None else str(headrace.format_rate(value))
