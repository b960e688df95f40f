# SPDX-License-Identifier: Apache-2.0
"""Writes a profile in the formats of tools that print matrices, so that scripts for those can read
it: the output of Intel's latency checker, and a copy matrix.

Layouts follow public logs of these tools; numbers follow their conventions.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import headrace
from headrace._format import plural
from headrace._profile import conventions
from headrace._profile.rows import absent, complete, delay_of
from headrace._selection import MLC_TRAFFIC

Pair = tuple[int, int]
Cells = dict[Pair, float]
#: One curve of loaded latency: the pair of nodes, the mix, and the threads of the traffic (0 if not
#: requested).
Curve = tuple[Pair, str, int]

#: The latency checker's names of traffic, with our mix that causes it. It counts on the bus, where
#: a plain store is a read and a write. Its triad writes past the caches.
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
        raise absent(profile, "latencies and no bandwidths", "measure latency and bandwidth")
    return "\n".join([_headrace(profile, complete(profile.rows)), *parts])


#: Flags of numbers that may differ at another time.
_DOUBTS = ("noisy", "few", "unsteady", "throttled")


def _headrace(profile: headrace.Profile, rows: Iterable[headrace.Row]) -> str:
    """The first lines: Headrace's name, and the basis of the numbers."""
    whose = "published figures" if profile.published else "measured"
    having = [row for row in rows if row.median is not None]
    bases = {row.basis for row in having}
    if "emulated" in bases:
        most = "figures" if bases == {"emulated"} else "some of the figures"
        whose = f"emulated: {most} are of a device made of software, no speed of hardware"
    elif "modelled" in bases:
        whose = "modelled"
    found = Counter(flag for row in having for flag in row.flags if flag in _DOUBTS)
    found["about, by their source"] = sum("about" in row.source.split() for row in having)
    found += Counter()  # drops what is 0
    doubts = ", ".join(f"{count} {flag}" for flag, count in found.most_common())
    said = f"; of {len(having)} rows {doubts}" if doubts else ""
    return f"Headrace: {profile.machine.name}, {whose}{said}\n"


def _digits(profile: headrace.Profile, places: int) -> Callable[[float], str]:
    """The number of decimal places. Published numbers get no more digits than were published."""
    if profile.published:
        return lambda number: f"{number:.6g}"
    return lambda number: f"{number:.{places}f}"


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
        and "pattern" not in row.parameters
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
        yield f"Measuring idle latencies (in ns)...\n{_matrix(cells, _digits(profile, 1))}"


def _bandwidths(profile: headrace.Profile) -> Iterator[str]:
    if cells := _rates(profile, "read"):
        yield (
            "Measuring Memory Bandwidths between nodes within system\n"
            "Bandwidths are in MB/sec (1 MB/sec = 1,000,000 Bytes/sec)\n"
            f"Using Read-only traffic type\n{_matrix(cells, _digits(profile, 1))}"
        )


def _peak_injection(profile: headrace.Profile) -> Iterator[str]:
    """Peak bandwidths: all CPUs of the machine, or else of a socket, use the memory near them.
    Fewer CPUs give no peak.
    """
    who, rows = _whole(profile)
    count = conventions.find("mlc").number
    cells: dict[tuple[str, str], float] = {}
    for row in rows:
        key = str(row.parameters["memory_node"]), str(row.parameters["mix"])
        cells[key] = max(cells.get(key, 0), count(row) or 0)
    reading = {memory: rate for (memory, mix), rate in cells.items() if mix == "read"}
    if not reading:
        return
    best = max(reading, key=lambda memory: reading[memory])
    nodes = f"node {best}" if best.isdigit() else f"nodes {best}"
    text = _digits(profile, 1)
    lines = [
        f"Measuring Peak Injection Memory Bandwidths, {who}, memory of {nodes}",
        "Bandwidths are in MB/sec (1 MB/sec = 1,000,000 Bytes/sec)",
    ]
    for name, mix in _INJECTED.items():
        found = cells.get((best, mix))
        lines += [f"{name:<17}:\t{text(found)}"] if found is not None else []
    yield "\n".join(lines) + "\n"


def _whole(profile: headrace.Profile) -> tuple[str, list[headrace.Row]]:
    """Rows of the largest part of the machine that was measured as a whole, and the name of that
    part."""
    rows = [
        row for row in complete(profile.rows)
        if row.experiment == "bandwidth" and row.median is not None
        and "pattern" not in row.parameters
    ]  # fmt: skip
    for part in ("machine", "socket"):
        found = [
            row for row in rows
            if row.parameters.get("on") == part and row.parameters.get("placed") == "near"
            and "order" not in row.parameters
        ]  # fmt: skip
        if found:
            return f"all cores of the {part}", found
    homes = [node for node in profile.machine.nodes if node.cpus]
    if len(homes) != 1:
        return "", []
    own = {"cpu_node": homes[0].id, "threads": len(homes[0].cpus)}
    found = [row for row in rows if own.items() <= row.parameters.items()]
    return "all CPUs of the machine", found


def _loaded_latencies(profile: headrace.Profile) -> Iterator[str]:
    """Loaded latencies by pair of nodes, then type of traffic, then requested threads. Bandwidths
    are those on the bus."""
    points: dict[Curve, list[tuple[int, float, float]]] = {}
    for row in complete(profile.rows):
        mix, pair = str(row.parameters.get("mix")), _pair(row)
        if row.experiment != "loaded" or mix not in MLC_TRAFFIC or pair is None:
            continue
        if row.median is not None and pair == _pair(row, "traffic_cpu_node", "traffic_memory_node"):
            bus = row.details["bandwidth"] * conventions.Traffic.of(mix).bus / conventions.MB
            curve = pair, mix, int(row.parameters.get("threads", 0))
            points.setdefault(curve, []).append((int(delay_of(row)), row.median, bus))
    time, rate = _digits(profile, 2), _digits(profile, 1)
    for curve in sorted(points, key=_order_of_curves):
        ((cpu, memory), mix, threads), found = curve, points[curve]
        asked = f", traffic of {plural(threads, 'thread')}" if threads else ""
        lines = [
            f"Measuring Loaded Latencies, CPUs of node {cpu}, memory of node {memory}{asked}",
            f"Using {_TRAFFIC_TYPES[MLC_TRAFFIC[mix]]} traffic type",
            "Inject\tLatency\tBandwidth", "Delay\t(ns)\tMB/sec", "=" * 26,
            *(f" {delay:05}\t{time(ns)}\t{rate(bus):>10}" for delay, ns, bus in sorted(found)),
        ]  # fmt: skip
        yield "\n".join(lines) + "\n"


#: Names of the traffic by the letter of the option.
_TRAFFIC_TYPES = {
    "R": "Read-only", "W2": "W2, 2:1 Reads-Writes", "W3": "W3, 3:1 Reads-Writes",
    "W4": "W4, 3:2 Reads-Writes",
    "W5": "W5, 1:1 Reads-Writes", "W6": "W6, non-temporal writes",
    "W7": "W7, 2:1 Reads-NT Writes", "W8": "W8, 1:1 Reads-NT Writes",
    "W9": "W9, 3:1 Reads-NT Writes", "W12": "W12, 4:1 Reads-Writes",
}  # fmt: skip


def _order_of_curves(curve: Curve) -> tuple[Pair, int, int]:
    return curve[0], list(_TRAFFIC_TYPES).index(MLC_TRAFFIC[curve[1]]), curve[2]


def _matrix(cells: Cells, text: Callable[[float], str]) -> str:
    memories = sorted({memory for _, memory in cells})
    lines = ["\t\tNuma node", "Numa node\t" + "\t".join(f"{memory:8}" for memory in memories)]
    for cpu in sorted({cpu for cpu, _ in cells}):
        values = (cells.get((cpu, memory)) for memory in memories)
        lines.append(
            f"{cpu:9}\t" + "\t".join("       -" if v is None else f"{text(v):>8}" for v in values)
        )
    return "\n".join(lines) + "\n"


def as_nvbandwidth(profile: headrace.Profile) -> str:
    """The text of nvbandwidth for GPUs, then a matrix of GB/s from node to node for each engine.

    A matrix has the largest size that was measured cold, with the best number of threads. Each
    thread makes its own copies, as in nvbandwidth; rows whose threads share one copy are left out.
    """
    rows = [
        (row, pair)
        for row in complete(profile.rows)
        if row.experiment == "copy" and row.parameters.get("state") == "cold"
        and "work" not in row.parameters and row.median is not None
        and (pair := _pair(row, "from", "to")) is not None
    ]  # fmt: skip
    parts = list(_gpu_tests(profile))
    used = [row for row in complete(profile.rows) if row.experiment == "gpu"]
    used += [row for row, _ in rows]
    for engine in dict.fromkeys(str(row.parameters["engine"]) for row, _ in rows):
        of_engine = [(row, pair) for row, pair in rows if row.parameters["engine"] == engine]
        size = max(int(row.parameters["bytes"]) for row, _ in of_engine)
        cells = _best(
            (pair, (row.median or 0) / 1e9)
            for row, pair in of_engine
            if row.parameters["bytes"] == size
        )
        parts.append(_copies(engine, size, cells, _digits(profile, 2)))
    if not parts:
        raise absent(profile, "cold copies", "measure copy or gpu")
    return "\n".join([_headrace(profile, used), *parts])


#: Test cases of nvbandwidth, with pinned memory: direction, name, its drawing of the path, and the
#: detail with one direction's share of copies in both.
_GPU_TESTS = (
    ("to_gpu", "host_to_device_memcpy", "CPU(row) -> GPU(column)", None),
    ("from_gpu", "device_to_host_memcpy", "CPU(row) <- GPU(column)", None),
    ("both", "host_to_device_bidirectional_memcpy", "CPU(row) <-> GPU(column)", "to_gpu"),
    ("both", "device_to_host_bidirectional_memcpy", "CPU(row) <-> GPU(column)", "from_gpu"),
    ("across", "device_to_device_memcpy_write", "GPU(row) -> GPU(column)", None),
)
#: nvbandwidth's names for movers: copy engines, multiprocessors.
_MOVERS = {"engine": "CE", "kernel": "SM"}


def _gpu_tests(profile: headrace.Profile) -> Iterator[str]:
    """The largest size of each test. Rows are nodes of the host; GPUs are counted from 0."""
    rows = [
        row for row in complete(profile.rows)
        if row.experiment == "gpu" and row.median is not None and _pair(row, "gpu", "node")
        and row.parameters["memory"] in ("pinned", "device")
    ]  # fmt: skip
    gpus = sorted({int(row.parameters["gpu"]) for row in rows})
    text = _digits(profile, 2)
    for (by, mover), (direction, name, way, share) in itertools.product(
        _MOVERS.items(), _GPU_TESTS
    ):
        found = [
            row for row in rows
            if row.parameters["part"] == "copy" and row.parameters["by"] == by
            and row.parameters["direction"] == direction
            and (share is None or share in row.details)
        ]  # fmt: skip
        size = max((int(row.parameters.get("bytes", 0)) for row in found), default=0)
        cells = {
            _gpu_pair(row, gpus): (row.median or 0 if share is None else row.details[share]) / 1e9
            for row in found
            if row.parameters.get("bytes", 0) == size
        }
        if cells:
            buffers = headrace.format_bytes(size) if size else "a size that was not published"
            yield f"Buffers of {buffers}.\n" + _gpu_test(
                f"{name}_{mover.lower()}", f"memcpy {mover} {way} bandwidth (GB/s)", cells,
                text,
            )  # fmt: skip
    latencies = {
        _gpu_pair(row, gpus): row.median or 0
        for row in rows
        if row.parameters["part"] == "latency" and row.parameters["memory"] == "pinned"
    }
    if latencies:
        yield _gpu_test("host_device_latency_sm",
                        "memory latency SM CPU(row) <-> GPU(column) (ns)", latencies,
                        text)  # fmt: skip


def _gpu_pair(row: headrace.Row, gpus: list[int]) -> Pair:
    """Row and column of a cell: the host's node and the GPU, or source and destination of two GPUs.
    """
    gpu, node = gpus.index(int(row.parameters["gpu"])), int(row.parameters["node"])
    if row.parameters["direction"] == "across":
        return gpu, gpus.index(node) if node in gpus else len(gpus)
    return node, gpu


def _gpu_test(name: str, what: str, cells: Cells, text: Callable[[float], str]) -> str:
    columns = sorted({column for _, column in cells})
    lines = [f"Running {name}.", what, "  " + "".join(f"{column:>10}" for column in columns)]
    for start in sorted({start for start, _ in cells}):
        values = (cells.get((start, column)) for column in columns)
        lines.append(
            f"{start:>2}" + "".join(f"{'N/A' if v is None else text(v):>10}" for v in values)
        )
    return "\n".join([*lines, "", f"SUM {name} {text(sum(cells.values()))}", ""])


def _copies(engine: str, size: int, cells: Cells, text: Callable[[float], str]) -> str:
    columns = sorted({to for _, to in cells})
    lines = [
        f"Running node_to_node_memcpy, {engine}, {headrace.format_bytes(size)}.",
        "memcpy node(row) -> node(column) bandwidth (GB/s)",
        "From\\To  " + "".join(f"{to:>10}" for to in columns),
    ]
    for start in sorted({start for start, _ in cells}):
        values = (cells.get((start, to)) for to in columns)
        lines.append(
            f"{start:>7}  " + "".join(f"{'N/A' if v is None else text(v):>10}" for v in values)
        )
    return "\n".join([*lines, "", f"SUM node_to_node_memcpy {text(sum(cells.values()))}", ""])
