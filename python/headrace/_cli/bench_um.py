# SPDX-License-Identifier: Apache-2.0
"""headrace bench um"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

import headrace
from headrace._bench import um, um_live, um_rows
from headrace._cli import exit_codes, output, parse
from headrace._cli.interrupt import Interrupt
from headrace._cli.options import Json, Out, given
from headrace._files import check_writable
from headrace._format import plural, prose, say
from headrace._provenance import EMULATED_GPUS

#: Options that choose one experiment; without any of them a model shows all that was published.
_CASE = {
    "memory", "accessed_by", "read_mostly", "preferred_location_cpu", "touch_on_host", "op", "size",
    "runs", "prefetch_block", "streams", "kernel", "as_reprex",
}  # fmt: skip
_MOST_BYTES = 1 << 42


def command(
    context: typer.Context,
    model: Annotated[
        Optional[str],
        typer.Option(
            metavar="NAME", help="Machine to compute the results for: ac922, x86-pcie3 or gh200."
        ),
    ] = None,
    memory: Annotated[
        str, typer.Option(metavar="WHICH", help="Memory of the array: managed, system, or node:N.")
    ] = "managed",
    accessed_by: Annotated[
        bool,
        typer.Option("--accessed-by", help="Advise the driver that the GPU will access the array."),
    ] = False,
    read_mostly: Annotated[
        bool, typer.Option("--read-mostly", help="Advise the driver that the array is mostly read.")
    ] = False,
    preferred_location_cpu: Annotated[
        bool,
        typer.Option(
            "--preferred-location-cpu", help="Advise the driver to keep the array in host memory."
        ),
    ] = False,
    touch_on_host: Annotated[
        bool, typer.Option("--touch-on-host", help="Write the array on the host before each run.")
    ] = False,
    op: Annotated[
        str, typer.Option(metavar="WHAT", help="Access of the kernel: read or write.")
    ] = "read",
    size: Annotated[
        Optional[str],
        typer.Option(
            metavar="SIZE",
            help="Size of the array (default: 32GiB, at most half of the free memory).",
        ),
    ] = None,
    runs: Annotated[
        int, typer.Option(metavar="NUMBER", min=1, max=1000, help="Number of kernel runs.")
    ] = 5,
    prefetch_block: Annotated[
        Optional[str],
        typer.Option(
            metavar="SIZE",
            help="Size of the blocks to prefetch ahead of the kernel: 16MiB; with --model a "
            "multiple of 2MiB.",
        ),
    ] = None,
    streams: Annotated[
        int,
        typer.Option(
            metavar="NUMBER", min=1, max=64, help="Number of streams that prefetch in turn."
        ),
    ] = 2,
    kernel: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Kernel: reprex (the original) or wide (far more loads in flight)."
        ),
    ] = "reprex",
    device: Annotated[
        int, typer.Option(metavar="NUMBER", min=0, max=1000, help="GPU number of the driver.")
    ] = 0,
    node: Annotated[
        Optional[int],
        typer.Option(
            metavar="NUMBER",
            min=0,
            max=100000,
            help="Host node that runs the host's part and touches the array first (default: "
            "the nearest to the GPU).",
        ),
    ] = None,
    oversubscribe: Annotated[
        bool,
        typer.Option("--oversubscribe", help="Allow more managed memory than the GPU has free."),
    ] = False,
    as_reprex: Annotated[
        bool, typer.Option("--as-reprex", help="Print the original program's output.")
    ] = False,
    json: Json = False,
    out: Out = None,
) -> int:
    """Read a host array with a GPU through Unified Memory.

    The experiment is C. Lutz's um_reprex with its parameters as options. Published figures of the
    same case stand beside the results. --model computes them from a model of the driver
    (docs/design/gpu/um.md); without other options it computes every published case.

    \b
    headrace bench um --size 1GiB --accessed-by
    headrace bench um --model ac922
    headrace bench um --model ac922 --size 8GiB --accessed-by --touch-on-host
    headrace bench um --model x86-pcie3 --preferred-location-cpu --as-reprex
    """
    if out is not None:
        check_writable(out)
    case = um.Case(
        memory=_memory(memory), accessed_by=accessed_by, read_mostly=read_mostly,
        preferred_location_cpu=preferred_location_cpu, touch_on_host=touch_on_host,
        op=_one_of(op, um.OPS, "--op"), runs=runs, streams=streams,
        kernel=_one_of(kernel, um.KERNELS, "--kernel"),
    )  # fmt: skip
    if node is not None:
        if memory.startswith("node:"):
            raise headrace.InvalidError(f"--node {node}: --memory {memory} says it; leave one out")
        case = replace(case, cpu_node=node)
    if size is not None:
        case = replace(case, size=_size(size, "--size"))
    if prefetch_block is not None:
        case = replace(case, prefetch_block=_size(prefetch_block, "--prefetch-block"))
    _check(case)
    show = reprex_text if as_reprex else text
    if model is None:
        return measured(case, size is None, device, oversubscribe, json, out, show)
    if foreign := [n for n in ("device", "node", "oversubscribe") if n in given(context)]:
        raise headrace.InvalidError(
            f"--{foreign[0]}: for a measurement only; "
            "leave it out, or --model"
        )
    document = {
        "schema_version": headrace.SCHEMA_VERSION,
        "kind": "bench um",
        "version": headrace.__version__,
        "basis": "modelled",
        "rests_on": {"level": "model", "detail": "a model of the driver's states, not a GPU"},
        **um_rows.model(model, case if _CASE & set(given(context)) else None),
    }
    output.deliver(document, out=out, json=json, show=lambda: output.print_text(show(document)))
    return exit_codes.SUCCESS


def measured(
    case: um.Case, choose_size: bool, device: int, oversubscribe: bool, json: bool,
    out: Path | None, show: Callable[[dict[str, Any]], str],
) -> int:  # fmt: skip
    machine = headrace.Machine.discover()
    gpu = headrace.unified_memory_gpu(machine, device)
    if choose_size:
        case = replace(case, size=um_live.default_size(gpu.managed_bytes))
    if oversubscribe and (told := um_live.evictions(case, gpu.managed_bytes)):
        say(told)
    with Interrupt() as interrupt, output.ProgressBar("Unified Memory") as bar:
        fields = um_live.run(machine, case, device, oversubscribe, interrupt, bar)
    document = output.document("bench um", machine, interrupted=interrupt.requested, **fields)
    if fields["emulated"]:
        document["rests_on"] = EMULATED_GPUS
    output.deliver(document, out=out, json=json, show=lambda: output.print_text(show(document)))
    um_live.check(document)
    return exit_codes.INTERRUPTED if interrupt.requested else exit_codes.SUCCESS


def _memory(word: str) -> str:
    node = word.removeprefix("node:")
    if word in ("managed", "system") or (node != word and node.isascii() and node.isdecimal()):
        return word
    raise headrace.InvalidError(f"--memory {word}: give managed, system, or node:0")


def _one_of(word: str, there: tuple[str, ...], option: str) -> str:
    if word not in there:
        raise headrace.InvalidError(f"{option} {word}: give {' or '.join(there)}")
    return word


def _size(word: str, option: str) -> int:
    found = parse.size(word)
    if not um.MIB <= found <= _MOST_BYTES:
        raise headrace.InvalidError(f"{option} {word}: give 1MiB to 4TiB")
    return found


def _check(case: um.Case) -> None:
    advised = case.accessed_by or case.read_mostly or case.preferred_location_cpu
    if not case.managed and (advised or case.prefetch_block is not None):
        raise headrace.InvalidError(
            "advice and prefetching are for managed memory; leave them out, or leave out "
            f"--memory {case.memory}"
        )


def reprex_text(document: dict[str, Any]) -> str:
    """The lines of the original, and on stderr that no GPU gave them, if none did."""
    case, asked = document["cases"][0], document["cases"][0]["options"]
    measured = document["basis"] != "modelled"
    blocks, threads = (document[name] for name in ("blocks", "threads_per_block"))
    lines = [
        f"Running on device {document['device_number']} with grid dim {blocks} and block dim "
        f"{threads}",
        "Managed memory enabled" if asked["memory"] == "managed" else "System memory enabled",
    ]
    if asked["accessed_by"]:
        lines.append("cudaMemAdviseSetAccessedBy enabled")
    if asked["read_mostly"]:
        lines.append("cudaMemAdviseSetReadMostly enabled")
    if asked["preferred_location_cpu"]:
        lines.append("cudaMemAdviseSetPreferredLocation CPU enabled")
    lines.append(f"Running {asked['op']} kernel")
    for row in document["rows"]:
        if row["machine"] != case["machine"]:
            continue  # what was published beside it
        rate = row["measured" if measured else "modelled"]
        if rate is None:
            raise headrace.UnsupportedError(row["reason"])
        lines.append(f"Throughput: {rate:g} GiB/s")
    if not measured:
        say("modelled, not measured")
    elif document["emulated"]:
        say("emulated by software, no speed of a GPU")
    return "\n".join(lines)


def text(document: dict[str, Any]) -> str:
    """A table for each machine, what is met and what not, and what the model rests on."""
    parts = []
    for machine in document["machines"]:
        head = f"{machine['name']}: {machine['words']}; GiB/s by run"
        parts.append(f"{head}\n\n{_table(document, machine['name'])}")
    if document["basis"] != "modelled":
        parts += [prose(line) for line in _measured(document)]
    parts += [prose(line) for line in (*_judged(document), *_constants(document))]
    return "\n\n".join(parts)


def _measured(document: dict[str, Any]) -> list[str]:
    """The basis of measured rows, and where the pages were."""
    how = (
        "Emulated by software, so that no speed means anything"
        if document["emulated"]
        else ("Measured here")
    )
    flight = headrace.format_bytes(document["cases"][0]["bytes_in_flight"])
    lines = [
        f"{how}: {document['blocks']} blocks of {document['threads_per_block']} threads have "
        f"{flight} in flight, which bounds what device memory gives them. Run 1 stands apart."
    ]
    if document["node"] is not None:
        lines[0] += f" The host's part ran on CPUs of node {document['node']}."
    if document["advice_confirmed"] is False:
        lines.append("The driver does not name the advice when it is asked.")
    places = [
        f"run {row['run']}: {_share(row['before'])} before, {_share(row['after'])} after"
        for row in document["rows"] if row.get("before") and row.get("after")
    ]  # fmt: skip
    if places:
        lines.append(f"Pages on the host by {'; '.join(places[:5])}.")
    for row in document["rows"]:
        if "misplaced" in row.get("flags", ()):
            lines.append(
                f"Misplaced: run {row['run']} began with pages on {_nodes(row['before'])} and not "
                f"all on node {row['asked_node']}, as asked; its rate is of another memory."
            )
    return lines


def _nodes(where: dict[str, Any]) -> str:
    """Node 0 70%, node 1 30%."""
    whole = max(sum(where["host_bytes"].values()) + where["absent_bytes"], 1)
    there = [f"node {node} {size / whole:.0%}" for node, size in where["host_bytes"].items()]
    return ", ".join(there) or "no node of the host"


def _share(where: dict[str, Any]) -> str:
    there = sum(where["host_bytes"].values())
    return f"{there / max(there + where['absent_bytes'], 1):.0%}"


def _table(document: dict[str, Any], machine: str) -> str:
    cases = [case for case in document["cases"] if case["machine"] == machine]
    runs = max(case["options"]["runs"] for case in cases)
    shown = min(runs, 5)
    rows = []
    for case in cases:
        mine = [
            row for row in document["rows"]
            if all(row[k] == case[k] for k in ("machine", "case", "size", "kernel"))
        ]  # fmt: skip
        named = False
        for whose in ("published", "modelled", "measured"):
            if (
                case["first"].get(whose) is None
                and case["steady"].get(whose) is None
                and (whose != "modelled" or case["first"].get("measured") is not None)
            ):
                continue
            first, named = not named, True
            rows.append((
                case["case"] if first else "",
                headrace.format_bytes(case["size"]) if first else "",
                "emulated" if whose == "measured" and document["emulated"] else whose,
                *(_rate(row.get(whose)) for row in mine[:shown]), *([""] * (shown - len(mine))),
                _rate(case["steady"][whose]),
                *(_error(case[part]["error"]) if whose == "modelled" else ""
                  for part in ("first", "steady")),
            ))  # fmt: skip
    numbers = [str(n + 1) for n in range(shown)]
    heads = ("case", "size", "", *numbers, "after 1", "error 1", "error after")
    return output.table_text(heads, rows, left=3)


def _rate(rate: float | list[float] | None) -> str:
    if isinstance(rate, list):
        return " to ".join(f"{each:.3g}" for each in rate)
    if rate is None:
        return "-"
    return f"{rate:.2f}" if rate < 100 else f"{rate:.1f}"


def _error(error: float | None) -> str:
    return "" if error is None else f"{error:+.0%}"


def _judged(document: dict[str, Any]) -> list[str]:
    """Figures met within 15 %, figures missed, and single runs that are off by more."""
    lines = [f"{case['case']}: {case['reason']}" for case in document["cases"] if case["reason"]]
    judged = um_rows.figures(document)
    if not judged:
        return [*lines, "Nobody published this case; no figure stands beside it."]
    off = [(case, which, figure) for case, which, figure in judged if not figure["met"]]
    lines.append(
        f"{len(judged) - len(off)} of {len(judged)} figures (run 1, and the median of those after "
        f"it) are met within {um_rows.WITHIN:.0%}."
    )
    for case, which, figure in off:
        size = headrace.format_bytes(case["size"])
        lines.append(
            f"Not explained: {case['machine']}, {case['case']}, {size}, "
            f"{'run 1' if which == 'first' else 'after it'}: {_rate(figure['published'])} "
            f"published, {_rate(figure['modelled'])} modelled."
        )
    single = [
        f"{row['machine']} {row['case']} {headrace.format_bytes(row['size'])} run {row['run']} "
        f"({row['published']:.2f}, modelled {row['modelled']:.2f})"
        for row in document["rows"]
        if row["error"] is not None and abs(row["error"]) > um_rows.WITHIN
    ]
    if single:
        lines.append(f"Single runs that are off by more: {'; '.join(single)}.")
    return lines


def _constants(document: dict[str, Any]) -> list[str]:
    modelled = [machine for machine in document["machines"] if "fitted" in machine]
    if not modelled:
        return []
    fitted = sum(len(machine["fitted"]) for machine in modelled)
    flight = headrace.format_bytes(document["cases"][-1]["bytes_in_flight"])
    which = "these machines" if len(modelled) > 1 else "this machine"
    return [
        f"What is modelled is computed, not measured: {plural(fitted, 'constant')} of {which} "
        "were fitted to all published figures of run 1 and of the runs after it, so none of these "
        "is predicted (docs/design/gpu/um.md). A kernel has "
        f"{flight} in flight there, which bounds what device memory gives it."
    ]
