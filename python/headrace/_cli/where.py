# SPDX-License-Identifier: Apache-2.0
"""headrace where: the pages of a running program, per node."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

import headrace
from headrace import format_bytes
from headrace._cli import output
from headrace._cli.interrupt import by_ctrl_c, heard
from headrace._cli.metrics import Family, Metrics, page
from headrace._cli.options import Json
from headrace._run import numa_maps

_SECONDS = 1.0


def command(
    pid: Annotated[
        int, typer.Argument(metavar="PID", min=1, help="Process ID of a running program.")
    ],
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", help="Print the table every second until the program ends or Ctrl-C."
        ),
    ] = False,
    json: Json = False,
    metrics: Metrics = False,
) -> None:
    """Show on which nodes the memory of a running program is.

    \b
    headrace where 4711             once
    headrace where --watch 4711     as it grows and moves
    headrace where --json 4711      for scripts
    headrace where --metrics 4711   for Prometheus
    """
    given = {"--watch": watch, "--json": json, "--metrics": metrics}
    if len(both := [name for name, is_given in given.items() if is_given]) > 1:
        raise headrace.InvalidError(f"{' and '.join(both)} exclude each other; give one")
    machine = headrace.Machine.discover(storage=[])
    if watch:
        _watch(machine, pid)
    elif json:
        output.print_json(_document(machine, pid, *_look(pid)))
    elif metrics:
        output.print_as_is(_metrics(_document(machine, pid, *_look(pid))))
    else:
        output.print_text(_text(machine, pid, *_look(pid)))


def _look(pid: int, proc: Path = Path("/proc")) -> tuple[numa_maps.Places, int | None]:
    """The pages by node now. AbsentError: no such process, or it has just ended."""
    folder = proc / str(pid)
    try:
        with (folder / "numa_maps").open(errors="replace") as file:
            places = numa_maps.parse(file)
    except (FileNotFoundError, ProcessLookupError):
        if not folder.is_dir() or _ended(pid, proc):
            raise headrace.AbsentError(f"no process {pid}; see ps -e") from None
        raise headrace.UnsupportedError(
            "this kernel has no /proc/PID/numa_maps (it was built without NUMA); all memory is on "
            "its one node"
        ) from None
    except PermissionError:
        raise headrace.DeniedError(
            f"process {pid} is another user's, or protected; run headrace where as its user or as "
            "root (sudo)"
        ) from None
    try:
        huge = numa_maps.transparent_huge((folder / "smaps_rollup").read_text())
    except OSError:
        huge = None
    return places, huge


def _ended(pid: int, proc: Path = Path("/proc")) -> bool:
    """Whether the process is gone, or dead and not yet waited for."""
    try:
        stat = (proc / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[:1] in (["Z"], ["X"])


def _name(pid: int) -> str:
    try:
        text = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return ""
    return "".join(c if c.isprintable() else "?" for c in text)


def _kinds(machine: headrace.Machine, places: numa_maps.Places) -> dict[int, str]:
    """The nodes with memory, and any others with pages, by kind of memory."""
    kinds: dict[int, str] = {
        n.id: n.kind for n in machine.nodes if n.byte_addressable and n.capacity != 0
    }
    return {node: kinds.get(node, "unknown") for node in sorted({*kinds, *places.nodes})}


def _document(
    machine: headrace.Machine, pid: int, places: numa_maps.Places, huge: int | None
) -> dict[str, Any]:
    nodes = [
        {
            "node": node,
            "kind": kind,
            **{f"{group}_bytes": places.groups[group].get(node, 0) for group in numa_maps.GROUPS},
            "bytes": places.total(node),
            "hugetlb_bytes": places.hugetlb.get(node, 0),
        }
        for node, kind in _kinds(machine, places).items()
    ]
    return output.document(
        "where", machine, pid=pid, command=_name(pid), nodes=nodes, transparent_huge_bytes=huge
    )


def _metrics(document: dict[str, Any]) -> str:
    process = {"pid": document["pid"], "command": document["command"]}
    memory = Family(
        "headrace_process_memory_bytes", "gauge", "Memory of a process, by node.", "bytes"
    )
    huge = Family("headrace_process_huge_bytes", "gauge", "Those of it in huge pages.", "bytes")
    for node in document["nodes"]:
        place = {"node": node["node"], "kind": node["kind"]}
        for group in numa_maps.GROUPS:
            memory.add(node[f"{group}_bytes"], **process, **place, group=group)
        huge.add(node["hugetlb_bytes"], **process, **place, pages="hugetlb")
    huge.add(document["transparent_huge_bytes"], **process, pages="transparent")
    return page([memory, huge])


def _text(machine: headrace.Machine, pid: int, places: numa_maps.Places, huge: int | None) -> str:
    everything = sum(map(places.total, places.nodes))
    rows = []
    for node, kind in _kinds(machine, places).items():
        sizes = [places.groups[group].get(node, 0) for group in numa_maps.GROUPS]
        total = places.total(node)
        share = f"{100 * total / everything:.0f} %" if everything else "-"
        rows.append([f"{node}", kind, *(_size(size) for size in (*sizes, total)), share])
    table = output.table_text(["node", "kind", *numa_maps.GROUPS, "total", "share"], rows, left=2)
    pools = [f"hugetlb {_size(size)} on node {node}" for node, size in places.hugetlb.items()]
    if huge:
        pools.insert(0, f"transparent {_size(huge)}")
    told = ", ".join(pools) or ("unknown" if huge is None else "none")
    return f"process {pid} ({_name(pid)})\n{table}\nhuge pages: {told}"


def _size(size: int) -> str:
    return format_bytes(size) if size else "-"


def _watch(machine: headrace.Machine, pid: int) -> None:
    """Watches until the process ends, or until Ctrl-C, which is not a failure."""
    text = _text(machine, pid, *_look(pid))  # whatever is wrong now is said as an error
    try:
        with output.Live(sys.stdout) as live:
            while True:
                live.show(text)
                time.sleep(_SECONDS)
                if _ended(pid):
                    return
                text = _text(machine, pid, *_look(pid))
    except headrace.AbsentError:
        return
    except KeyboardInterrupt:
        if not by_ctrl_c():
            raise
        heard()
