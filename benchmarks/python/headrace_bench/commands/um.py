# SPDX-License-Identifier: Apache-2.0
"""headrace bench um"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Optional

import headrace
from headrace._cli import exit_codes, output, um_options
from headrace._cli.interrupt import Interrupt
from headrace._cli.options import Json, Out
from headrace._files import check_writable
from headrace._format import prose, say
from headrace._model.um_cases import Case
from headrace._profile.nested import unified_memory_runs
from headrace._provenance import EMULATED_GPUS
from headrace_bench import um_live
from headrace_bench.commands.options import flag, number, option


def command(
    memory: um_options.Memory = "managed",
    accessed_by: um_options.AccessedBy = False,
    read_mostly: um_options.ReadMostly = False,
    preferred_location_cpu: um_options.PreferredLocationCpu = False,
    touch_on_host: um_options.TouchOnHost = False,
    op: um_options.Op = "read",
    size: Annotated[Optional[str], option(
        "SIZE", "Size of the array (default: 32GiB, at most half of the free memory).",
    )] = None,
    runs: um_options.Runs = 5,
    prefetch_block: um_options.PrefetchBlock = None,
    streams: um_options.Streams = 2,
    kernel: um_options.Kernel = "reprex",
    device: Annotated[int, number("GPU number of the driver.", 0, 1000)] = 0,
    node: Annotated[Optional[int], number(
        "Host node that runs the host's part and touches the array first (default: the nearest "
        "to the GPU).", 0, 100000,
    )] = None,
    oversubscribe: Annotated[
        bool, flag("--oversubscribe", "Allow more managed memory than the GPU has free.")
    ] = False,
    as_reprex: Annotated[bool, flag("--as-reprex", "Print the original program's output.")] = False,
    json: Json = False,
    out: Out = None,
) -> int:
    """Read a host array with a GPU through Unified Memory.

    The experiment is C. Lutz's um_reprex with its parameters as options. Published figures of the
    same case stand beside the results. headrace predict um predicts them.

    \b
    headrace bench um --size 1GiB --accessed-by
    headrace bench um --size 8GiB --prefetch-block 16MiB --as-reprex
    """
    if out is not None:
        check_writable(out)
    if node is not None and memory.startswith("node:"):
        raise headrace.InvalidError(f"--node {node}: --memory {memory} says it; leave one out")
    case = um_options.checked(Case(
        memory=memory, accessed_by=accessed_by, read_mostly=read_mostly,
        preferred_location_cpu=preferred_location_cpu, touch_on_host=touch_on_host, op=op,
        runs=runs, prefetch_block=um_options.block(prefetch_block), streams=streams, kernel=kernel,
        cpu_node=node,
    ))  # fmt: skip
    if size is not None:
        case = replace(case, size=um_options.size(size))
    show = reprex_text if as_reprex else text
    return measured(case, size is None, device, oversubscribe, json, out, show)


def measured(
    case: Case, choose_size: bool, device: int, oversubscribe: bool, json: bool,
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
    um_live.check_written(document)
    return exit_codes.INTERRUPTED if interrupt.requested else exit_codes.SUCCESS


def reprex_text(document: dict[str, Any]) -> str:
    """The lines of the original, and on stderr that no GPU gave them, if none did."""
    case, asked = document["cases"][0], document["cases"][0]["options"]
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
    lines += (
        f"Throughput: {row['measured']:g} GiB/s"
        for row in unified_memory_runs(document) if row["machine"] == case["machine"]
    )  # fmt: skip
    if document["emulated"]:
        say("emulated by software, no speed of a GPU")
    return "\n".join(lines)


def text(document: dict[str, Any]) -> str:
    """A table for each machine, and the basis of the measured rows."""
    named = {"published": "published", "measured": document["basis"]}
    parts = [_table(document, machine, named) for machine in document["machines"]]
    parts += [prose(line) for line in _measured(document)]
    if len(document["machines"]) == 1:
        parts.append("Nobody published this case; no figure stands beside it.")
    return "\n\n".join(parts)


def _table(made: dict[str, Any], machine: dict[str, Any], named: Mapping[str, str]) -> str:
    """Cases of a machine by run; `named` has the kinds of figures and their words."""
    cases = [case for case in made["cases"] if case["machine"] == machine["name"]]
    shown = min(max(case["options"]["runs"] for case in cases), 5)
    rows = []
    for case in cases:
        mine = [
            row for row in unified_memory_runs(made)
            if all(row[k] == case[k] for k in ("machine", "case", "size", "kernel"))
        ][:shown]  # fmt: skip
        begins = [case["case"], headrace.format_bytes(case["size"])]
        for kind, word in named.items():
            if case["first"][kind] is case["steady"][kind] is None:
                continue
            rates = [_rate(row[kind]) for row in mine]
            rows.append((
                *begins, word, *rates, *([""] * (shown - len(mine))), _rate(case["steady"][kind]),
            ))  # fmt: skip
            begins = ["", ""]
    numbers = [str(n + 1) for n in range(shown)]
    heads = ("case", "size", "", *numbers, "after 1")
    head = f"{machine['name']}: {machine['words']}; GiB/s by run"
    return f"{head}\n\n{output.table_text(heads, rows, left=3)}"


def _rate(rate: float | list[float] | None) -> str:
    if isinstance(rate, list):
        return " to ".join(f"{each:.3g}" for each in rate)
    if rate is None:
        return "-"
    return f"{rate:.2f}" if rate < 100 else f"{rate:.1f}"


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
    rows = unified_memory_runs(document)
    places = [
        f"run {row['run']}: {_share(row['before'])} before, {_share(row['after'])} after"
        for row in rows if row.get("before") and row.get("after")
    ]  # fmt: skip
    if places:
        lines.append(f"Pages on the host by {'; '.join(places[:5])}.")
    for row in rows:
        if "misplaced" in row.get("flags", ()):
            lines.append(
                f"Misplaced: run {row['run']} began with pages on {_nodes(row['before'])} and not "
                f"all on node {row['asked_node']:.0f}, as asked; its rate is of another memory."
            )
    return lines


def _nodes(where: dict[str, Any]) -> str:
    """Node 0 70%, node 1 30%."""
    host = where["host_bytes"] or {}
    whole = max(sum(host.values()) + where["absent_bytes"], 1)
    there = [f"node {node} {size / whole:.0%}" for node, size in host.items()]
    return ", ".join(there) or "no node of the host"


def _share(where: dict[str, Any]) -> str:
    there = sum((where["host_bytes"] or {}).values())
    return f"{there / max(there + where['absent_bytes'], 1):.0%}"
