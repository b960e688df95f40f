"""A profile as text in the manner of tools that print matrices, so that scripts that read those
read it: a latency checker's whole run, and a copy matrix.

Layouts as their public logs show them, written anew; numbers in their conventions.
"""

from __future__ import annotations

from collections.abc import Iterator

import headrace
from headrace._profile import conventions
from headrace._profile.rows import complete

Pair = tuple[int, int]
Cells = dict[Pair, float]

#: A latency checker names mixes by what the bus sees, where a plain store is a read and a write;
#: beside each the mix of ours that gives the same traffic. Its triad writes past the caches.
_INJECTED = {
    "ALL Reads": "read", "3:1 Reads-Writes": "2:1", "2:1 Reads-Writes": "1:1",
    "1:1 Reads-Writes": "write", "Stream-triad like": "nt_2:1",
}  # fmt: skip


def as_mlc(profile: headrace.Profile) -> str:
    """Idle latencies, peak bandwidths by mix, bandwidths node to node, loaded latencies."""
    parts = [
        *_idle_latencies(profile),
        *_peak_injection(profile),
        *_bandwidths(profile),
        *_loaded_latencies(profile),
    ]
    if not parts:
        raise headrace.AbsentError(
            "the profile has neither latencies nor bandwidths; measure latency and bandwidth"
        )
    whose = "published figures" if profile.published else "measured"
    return f"Headrace: {profile.machine.name}, {whose}\n\n" + "\n".join(parts)


def _pair(row: headrace.Row, start: str = "cpu_node", end: str = "memory_node") -> Pair | None:
    one, other = row.parameters.get(start), row.parameters.get(end)
    return (one, other) if isinstance(one, int) and isinstance(other, int) else None


def _best(rows: Iterator[tuple[Pair | None, float | None]]) -> Cells:
    """The largest number of each pair."""
    cells: Cells = {}
    for pair, number in rows:
        if pair is not None and number is not None:
            cells[pair] = max(cells.get(pair, 0), number)
    return cells


def _rates(profile: headrace.Profile, mix: str) -> Cells:
    """MB/s over the bus per pair of nodes, with the best number of threads."""
    count = conventions.find("mlc").number
    return _best(
        (_pair(row), count(row))
        for row in complete(profile.rows)
        if row.experiment == "bandwidth" and row.parameters.get("mix") == mix
    )


def _idle_latencies(profile: headrace.Profile) -> Iterator[str]:
    rows = [
        row
        for row in complete(profile.rows)
        if row.experiment == "latency" and row.median is not None
        and row.parameters.get("window") == "all" and row.parameters.get("pages") != "base"
    ]  # fmt: skip
    rows.sort(key=lambda row: int(row.parameters["bytes"]))  # the largest is the last and stays
    cells = {pair: row.median or 0 for row in rows if (pair := _pair(row)) is not None}
    if cells:
        yield f"Measuring idle latencies (in ns)...\n{_matrix(cells)}"


def _bandwidths(profile: headrace.Profile) -> Iterator[str]:
    if cells := _rates(profile, "read"):
        yield (
            "Measuring Memory Bandwidths between nodes within system\n"
            "Bandwidths are in MB/sec (1 MB/sec = 1,000,000 Bytes/sec)\n"
            f"Using Read-only traffic type\n{_matrix(cells)}"
        )


def _peak_injection(profile: headrace.Profile) -> Iterator[str]:
    """Of the best pair of nodes: what all pairs reach at once was not measured."""
    reading = _rates(profile, "read")
    if not reading:
        return
    cpu, memory = best = max(reading, key=lambda pair: reading[pair])
    lines = [
        f"Measuring Peak Injection Memory Bandwidths, CPUs of node {cpu}, memory of node {memory}",
        "Bandwidths are in MB/sec (1 MB/sec = 1,000,000 Bytes/sec)",
    ]
    for name, mix in _INJECTED.items():
        found = _rates(profile, mix).get(best)
        lines += [f"{name:<17}:\t{found:.1f}"] if found is not None else []
    yield "\n".join(lines) + "\n"


def _loaded_latencies(profile: headrace.Profile) -> Iterator[str]:
    points: dict[Pair, list[tuple[int, float, float]]] = {}
    for row in complete(profile.rows):
        p, pair = row.parameters, _pair(row)
        if row.experiment != "loaded" or p.get("mix") != "read" or pair is None:
            continue
        if row.median is not None and pair == _pair(row, "traffic_cpu_node", "traffic_memory_node"):
            megabytes = row.details["bandwidth"] / conventions.MB
            points.setdefault(pair, []).append((int(p["delay_ns"]), row.median, megabytes))
    for (cpu, memory), found in points.items():
        lines = [
            f"Measuring Loaded Latencies, CPUs of node {cpu}, memory of node {memory}",
            "Using Read-only traffic type",
            "Inject\tLatency\tBandwidth", "Delay\t(ns)\tMB/sec", "=" * 26,
            *(f" {delay:05}\t{ns:.2f}\t{rate:10.1f}" for delay, ns, rate in sorted(found)),
        ]  # fmt: skip
        yield "\n".join(lines) + "\n"


def _matrix(cells: Cells) -> str:
    memories = sorted({memory for _, memory in cells})
    lines = ["\t\tNuma node", "Numa node\t" + "\t".join(f"{memory:8}" for memory in memories)]
    for cpu in sorted({cpu for cpu, _ in cells}):
        values = (cells.get((cpu, memory)) for memory in memories)
        lines.append(
            f"{cpu:9}\t" + "\t".join("       -" if v is None else f"{v:8.1f}" for v in values)
        )
    return "\n".join(lines) + "\n"


def as_nvbandwidth(profile: headrace.Profile) -> str:
    """A matrix per engine: what it copies from node to node, GB/s, the largest size measured cold
    and the best number of threads."""
    rows = [
        (row, pair)
        for row in complete(profile.rows)
        if row.experiment == "copy" and row.parameters.get("state") == "cold"
        and row.median is not None and (pair := _pair(row, "from", "to")) is not None
    ]  # fmt: skip
    parts = []
    for engine in dict.fromkeys(str(row.parameters["engine"]) for row, _ in rows):
        of_engine = [(row, pair) for row, pair in rows if row.parameters["engine"] == engine]
        size = max(int(row.parameters["bytes"]) for row, _ in of_engine)
        cells = _best(
            (pair, (row.median or 0) / 1e9)
            for row, pair in of_engine
            if row.parameters["bytes"] == size
        )
        parts.append(_copies(engine, size, cells))
    if not parts:
        raise headrace.AbsentError("the profile has no cold copies; measure copy")
    return "\n".join(parts)


def _copies(engine: str, size: int, cells: Cells) -> str:
    columns = sorted({to for _, to in cells})
    lines = [
        f"Running node_to_node_memcpy, {engine}, {headrace.format_bytes(size)}.",
        "memcpy node(row) -> node(column) bandwidth (GB/s)",
        "From\\To  " + "".join(f"{to:>10}" for to in columns),
    ]
    for start in sorted({start for start, _ in cells}):
        values = (cells.get((start, to)) for to in columns)
        lines.append(
            f"{start:>7}  " + "".join(f"{'N/A' if v is None else f'{v:.2f}':>10}" for v in values)
        )
    return "\n".join([*lines, "", f"SUM node_to_node_memcpy {sum(cells.values()):.2f}", ""])
