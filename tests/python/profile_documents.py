"""A profile for tests: what an experiment on a machine with four kinds of memory could have found,
with made-up numbers that follow from a few rules and a seed."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Iterator
from typing import Any

Row = dict[str, Any]

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
CPU_NODES = (0, 1)
#: Node -> kind, nanoseconds from its own CPUs, bytes per second.
MEMORY = {
    0: ("dram", 88.0, 2.1e11), 1: ("dram", 88.0, 2.1e11), 2: ("hbm", 118.0, 5.4e11),
    3: ("cxl", 248.0, 2.6e10),
}  # fmt: skip
#: Nanoseconds more when the CPUs are those of the other socket; CXL hangs on socket 0.
SOCKET = {0: 0, 1: 1, 2: 0, 3: 0}
FAR = 62.0
MIXES = {
    "read": 1.0, "write": 0.52, "nt_write": 0.81, "copy": 0.66, "nt_copy": 0.74, "2:1": 0.9,
    "3:1": 0.94, "1:1": 0.83,
}  # fmt: skip
DELAYS = (0, 10, 30, 60, 120, 250, 500, 1000, 2000, 8000)


def machine() -> Row:
    def node(number: int, kind: str) -> Row:
        return {
            "id": number, "kind": kind, "reason": "made up", "name": f"node {number}",
            "capacity_bytes": {"dram": 64, "hbm": 16, "cxl": 128, "storage": 800}[kind] * GIB,
            "cpus": list(range(number * 8, number * 8 + 8)) if number in CPU_NODES else [],
        }  # fmt: skip

    return {
        "schema_version": 1,
        "name": "testbed",
        "source": "discovered",
        "nodes": [*(node(n, kind) for n, (kind, _, _) in MEMORY.items()), node(1000, "storage")],
        "engines": [{"id": n, "kind": "cpu", "name": f"cpu{n}", "home": n} for n in CPU_NODES],
        "provenance": {"cpu_model": "Example CPU", "kernel": "Linux 6.1"},
    }


class Maker:
    """Makes rows whose samples vary by `noise`."""

    def __init__(self, seed: int, noise: float = 0.01, samples: int = 5) -> None:
        self._random = random.Random(seed)
        self._noise, self._samples = noise, samples

    def row(self, experiment: str, unit: str, value: float, /, **parameters: Any) -> Row:
        details = parameters.pop("details", {})
        samples = [
            value * math.exp(self._random.gauss(0, self._noise)) for _ in range(self._samples)
        ]
        middle = statistics.median(samples)
        return {
            "experiment": experiment, "parameters": parameters, "unit": unit, "median": middle,
            "mad": statistics.median(abs(s - middle) for s in samples), "min": min(samples),
            "max": max(samples), "low": min(samples), "high": max(samples), "samples": samples,
            "details": details, "flags": [], "reason": "",
        }  # fmt: skip


def without(experiment: str, reason: str, **parameters: Any) -> Row:
    return {
        "experiment": experiment, "parameters": parameters, "unit": "", "median": None,
        "samples": [], "details": {}, "flags": [], "reason": reason,
    }  # fmt: skip


def _nanoseconds(cpu: int, memory: int, size: int = 4 * GIB) -> float:
    far = FAR if SOCKET[memory] != cpu else 0.0
    below = ((32 * KIB, 1.4), (1 * MIB, 4.6), (32 * MIB, 19.0))
    for level, ns in below:
        if size <= level:
            return ns
    cached = min(1.0, 32 * MIB / size)
    return cached * 19.0 + (1 - cached) * (MEMORY[memory][1] + far)


def latency(make: Maker) -> Iterator[Row]:
    for cpu, memory in itertools.product(CPU_NODES, MEMORY):
        point = {"cpu_node": cpu, "memory_node": memory}
        sizes = [1 << e for e in range(12, 33, 2)] if cpu == 0 else [4 * GIB]
        for size, pages in itertools.product(sizes, ("huge", "base")):
            tables = 1.0 if pages == "huge" else 1 + 0.045 * max(0, math.log2(size / (8 * MIB)))
            yield make.row("latency", "ns", _nanoseconds(cpu, memory, size) * tables, **point,
                           bytes=size, window="all", pages=pages)  # fmt: skip
        for window in (64 * KIB, 2 * MIB, 64 * MIB) if cpu == 0 else ():
            found = _nanoseconds(cpu, memory) * (0.86 if window < 64 * MIB else 0.95)
            yield make.row("latency", "ns", found, **point, bytes=4 * GIB, window=window,
                           pages="huge")  # fmt: skip


def bandwidth(make: Maker) -> Iterator[Row]:
    for cpu, memory, (mix, share) in itertools.product(CPU_NODES, MEMORY, MIXES.items()):
        best = MEMORY[memory][2] * share * (0.55 if SOCKET[memory] != cpu else 1)
        for threads in (1, 8):
            rate = best * (1 if threads == 8 else 0.21)
            bus = rate * (1.5 if mix in ("write", "copy") else 1)
            yield make.row("bandwidth", "B/s", rate, cpu_node=cpu, memory_node=memory, mix=mix,
                           threads=threads, details={"read_write": rate, "bus": bus})  # fmt: skip


def loaded(make: Maker) -> Iterator[Row]:
    for memory, mix, delay in itertools.product((0, 3), ("read", "nt_write", "2:1"), DELAYS):
        best = MEMORY[memory][2] * MIXES[mix]
        used = 1 / (1 + delay / (90.0 if memory == 0 else 700.0))
        ns = _nanoseconds(0, memory) * (1 + 0.35 * used / (1.13 - used))
        details = {"bandwidth": best * used, "p50": ns, "p90": ns * 1.3, "p99": ns * 2.2,
                   "p999": ns * 5}  # fmt: skip
        yield make.row("loaded", "ns", ns, cpu_node=0, memory_node=memory, traffic_cpu_node=0,
                       traffic_memory_node=memory, mix=mix, delay_ns=delay,
                       details=details)  # fmt: skip


def stream(make: Maker) -> Iterator[Row]:
    kernels = {"copy": 0.72, "scale": 0.71, "add": 0.78, "triad": 0.79}
    for nodes, (kernel, share) in itertools.product(((0, 0, 0), (0, 0, 3)), kernels.items()):
        a, b, c = nodes
        rate = share / (2 / MEMORY[a][2] + 1 / MEMORY[c][2]) * 3
        yield make.row("stream", "B/s", rate, kernel=kernel, a=a, b=b, c=c, threads=8)


def copy(make: Maker) -> Iterator[Row]:
    for (start, end), engine, state in itertools.product(
        ((0, 0), (0, 3), (3, 0)), ("cpu", "memcpy"), ("cold", "hot")
    ):
        best = min(MEMORY[start][2], MEMORY[end][2]) * (0.5 if engine == "cpu" else 0.34)
        for exponent in range(12, 31, 3):
            size = 1 << exponent
            rate = best * size / (size + 48 * KIB) * (1.3 if state == "hot" else 1)
            yield make.row("copy", "B/s", rate, engine=engine, **{"from": start}, to=end,
                           bytes=size, threads=1, state=state)  # fmt: skip


def migrate(make: Maker) -> Iterator[Row]:
    for (start, end), method, batch in itertools.product(
        ((0, 3), (3, 0)), ("move_pages", "mbind"), (1, 16, 256, 4096)
    ):
        page = 600.0 + (5200.0 if method == "move_pages" else 7900.0) / batch
        details = {"per_page_ns": page, "first_page_ns": page * 3.1, "stall_p50_ns": 900.0,
                   "stall_p99_ns": 21e3, "stall_max_ns": 410e3}  # fmt: skip
        yield make.row("migrate", "B/s", 4096 / page * 1e9, method=method, **{"from": start},
                       to=end, pages="base", batch=batch, threads=1, details=details)  # fmt: skip


def storage(make: Maker) -> Iterator[Row]:
    for operation, depth, exponent in itertools.product(
        ("read", "write"), (1, 16), range(12, 23, 2)
    ):
        size = 1 << exponent
        best = 2.9e9 if operation == "read" else 1.7e9
        rate = best * size * depth / (size * depth + 300 * KIB)
        yield make.row("storage", "B/s", rate, node=1000, operation=operation, block=size,
                       depth=depth, way="direct")  # fmt: skip


EXPERIMENTS = (latency, bandwidth, loaded, stream, copy, migrate, storage)


def profile(seed: int = 1, noise: float = 0.01) -> Row:
    """The whole document: seven known experiments and one of which the report knows nothing,
    rows without a number and noisy ones."""
    make = Maker(seed, noise)
    rows = [row for experiment in EXPERIMENTS for row in experiment(make)]
    rows.append(make.row("tlb", "ns", 7.5, entries=1536, pages="base"))
    rows.append(without("latency", "no memory free on node 3: 12 GiB asked for", cpu_node=1,
                        memory_node=3, bytes=16 * GIB, window="all", pages="huge"))  # fmt: skip
    rows.append(without("migrate", "out of budget", method="mbind", **{"from": 0}, to=1,
                        pages="huge", batch=1, threads=1))  # fmt: skip
    for row in rows[7::97]:
        row["flags"] = ["noisy"]
    return machine() | {
        "conditions": {"date": "2026-11-21T04:00:00+00:00", "version": "0.1.0", "seed": "7",
                       "budget": "quick"},
        "rows": rows,
    }  # fmt: skip
