# SPDX-License-Identifier: Apache-2.0
"""A profile for tests: what an experiment on a machine with four kinds of memory could have found,
with made-up numbers that follow from a few rules and a seed."""

from __future__ import annotations

import functools
import itertools
import math
import random
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import headrace

Row = dict[str, Any]
Document = dict[str, Any]
Change = Callable[[Document], None]

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
DELAYS = (0, 25, 50, 100, 200, 400, 800, 1600, 6400, 25600)


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
        "provenance": {"cpu": "Example CPU", "kernel": "Linux 6.1"},
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
            "max": max(samples), "low": min(samples), "high": max(samples),
            "interval": f"range of {len(samples)}", "samples": samples,
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
    for cpu, memory, mix, (point, delay) in itertools.product(
        CPU_NODES, MEMORY, ("read", "2:1", "1:1", "nt_write"), enumerate(DELAYS)
    ):
        far = SOCKET[memory] != cpu
        best = MEMORY[memory][2] * MIXES[mix] * (0.55 if far else 1)
        used = 1 / (1 + delay / (700.0 if memory == 3 else 90.0))
        ns = _nanoseconds(cpu, memory) * (1 + 0.35 * used / (1.13 - used))
        details = {"bandwidth": best * used, "bus": best * used * (1 if mix == "read" else 1.3),
                   "delay_ns": float(delay),
                   "p50": ns * 0.97, "p90": ns * 1.3, "p99": ns * 2.2, "p999": ns * 5}  # fmt: skip
        yield make.row("loaded", "ns", ns, cpu_node=cpu, memory_node=memory, traffic_cpu_node=cpu,
                       traffic_memory_node=memory, mix=mix,
                       load_percent=100 - 5 * point, details=details)  # fmt: skip


def family(make: Maker) -> Iterator[Row]:
    """Loaded latencies of one memory by the share of reads: 21 mixes, as --full measures them."""
    tenths = ("9:1", "4:1", "7:3", "3:2", "1:1", "2:3", "3:7", "1:4", "1:9", "write")
    for mix in ("read", *(f"{stores}{mix}" for stores in ("", "nt_") for mix in tenths)):
        around, name = mix.startswith("nt_"), mix.removeprefix("nt_")
        reads, writes = {"read": (1, 0), "write": (0, 1)}.get(name) or map(int, name.split(":"))
        share = writes / (reads + writes)
        best = MEMORY[0][2] * (1 - (0.3 if around else 0.18) * share)
        for load, part in ((100, 1.0), (90, 0.9), (80, 0.8), (60, 0.6), (40, 0.4), (10, 0.1)):
            ns = MEMORY[0][1] * (1 + (0.2 + 0.5 * share) * part**4 / (1.18 - part))
            program = best * part / (1 if around else 1 + share)
            yield make.row(
                "loaded", "ns", ns, cpu_node=0, memory_node=0, traffic_cpu_node=0,
                traffic_memory_node=0, mix=mix, load_percent=load,
                details={"bandwidth": program, "bus": best * part, "delay_ns": 100.0 - load},
            )  # fmt: skip


def stream(make: Maker) -> Iterator[Row]:
    kernels = {"copy": 0.72, "scale": 0.71, "add": 0.78, "triad": 0.79}
    for nodes, (kernel, share) in itertools.product(((0, 0, 0), (0, 0, 3)), kernels.items()):
        a, b, c = nodes
        rate = share / (2 / MEMORY[a][2] + 1 / MEMORY[c][2]) * 3
        yield make.row("stream", "B/s", rate, kernel=kernel, a=a, b=b, c=c, threads=8)


def copy(make: Maker) -> Iterator[Row]:
    engines = {"memcpy": 0.34, "cpu": 0.5, "sse2_nt": 0.46, "avx2": 0.33, "avx2_nt": 0.5}
    for (start, end), (engine, share), state, threads in itertools.product(
        ((0, 0), (0, 2), (0, 3), (3, 0)), engines.items(), ("cold", "hot"), (1, 8)
    ):
        best = min(MEMORY[start][2], MEMORY[end][2]) * share * (1 if threads == 8 else 0.17)
        for size in (64 << 2 * e for e in range(10)):
            if state == "hot" and size > MIB:
                continue
            rate = best * size / (size + 48 * KIB) * (1.3 if state == "hot" else 1)
            yield make.row("copy", "B/s", rate, engine=engine, cpu_node=SOCKET[end],
                           **{"from": start}, to=end, bytes=size, threads=threads, state=state,
                           details={"read_write": 2 * rate, "cpu_s_per_gb": threads * 1e9 / rate},
                           )  # fmt: skip


def migrate(make: Maker) -> Iterator[Row]:
    methods = (("move_pages", 1), ("move_pages", 64), ("move_pages", 512), ("mbind", "all"),
               ("remap", "all"), ("copy", "all"))  # fmt: skip
    for (start, end), (method, batch), pages, threads in itertools.product(
        ((0, 2), (0, 3), (3, 0)), methods, ("base", "huge"), (1, 8)
    ):
        size, count = (4096, 8192) if pages == "base" else (2 * MIB, 16)
        at_once = count if isinstance(batch, str) else batch
        page = size / MEMORY[end][2] * 6e9 + {"remap": 380, "copy": 300}.get(method, 600)
        page += 0 if method == "copy" else 5200 / at_once
        page /= threads ** (1 if method == "copy" else 0.6)
        first = page * min(at_once, count)
        stall = 0.4 if method == "copy" else 1.0
        details = {"cpu_s_per_gb": threads * page / size, "per_page_ns": page,
                   "first_batch_ns": first, "stayed": 0.0,
                   "stall_p50_ns": 110.0, "stall_p99_ns": 640.0 + stall * page,
                   "stall_p999_ns": 9e3 + stall * page, "stall_max_ns": 4e4 + stall * first,
                   }  # fmt: skip
        yield make.row("migrate", "B/s", size / page * 1e9, method=method,
                       cpu_node=SOCKET[end], **{"from": start}, to=end, pages=pages, batch=batch,
                       threads=threads, details=details)  # fmt: skip


def storage(make: Maker) -> Iterator[Row]:
    ways = (("io_uring", "direct"), ("threads", "direct"), ("io_uring", "buffered"))
    for operation, (by, io), exponent, depth in itertools.product(
        ("read", "write"), ways, range(12, 23, 2), (1, 4, 16, 64)
    ):
        size = 1 << exponent
        best = 2.9e9 if operation == "read" else 1.7e9
        first = 82e3 if by == "io_uring" else 96e3
        ns = first + size * depth / best * 1e9
        details = {"iops": depth / ns * 1e9, "p50_ns": ns * 0.95, "p99_ns": ns * 1.9,
                   "cpu_s_per_gb": 3e3 / size}  # fmt: skip
        yield make.row("storage", "B/s", size * depth / ns * 1e9, node=1000, operation=operation,
                       by=by, io=io, bytes=size, depth=depth, details=details)  # fmt: skip


def interference(make: Maker) -> Iterator[Row]:
    """Jobs on one memory share its bandwidth. Jobs on different memories share only the way out of
    the cores."""
    jobs = ("read 0", "read 2", "read 3", "copy 0>2", "copy 0>3", "chase 0")
    for victim, aggressor, count in itertools.product(jobs, jobs, (1, 2, 3)):
        if aggressor == "chase 0" or (victim, aggressor) == ("read 3", "copy 0>3"):
            continue
        saturates = (victim, aggressor) in {("chase 0", "read 0"), ("read 0", "nt_write 0")}
        if count > 1 and victim != aggressor and not saturates:
            continue
        shared = set(victim) & set(aggressor) & set("023")
        factor = 1.06 + (0.84 * count if shared else 0.0)
        chases = victim.startswith("chase")
        alone = 88.0 if chases else MEMORY[int(victim[5])][2] * 0.4
        together = alone * factor if chases else alone / factor
        other = MEMORY[int(aggressor[5])][2] * 0.4
        details = {"alone": alone, "together": together, "aggressor_alone": other,
                   "aggressor_together": other / factor,
                   "total": (0 if chases else together) + count * other / factor}  # fmt: skip
        if victim == aggressor:
            details["fairness"] = 1 - 0.02 * count
        yield make.row("interference", "x", factor, victim=victim, aggressor=aggressor, cpu_node=0,
                       aggressor_cpu_node=0, aggressors=count, details=details)  # fmt: skip


def dsa(make: Maker) -> Iterator[Row]:
    """A device takes 0.6 µs to begin and moves 30 GB/s; what is in flight hides the first."""

    def row(part: str, size: int, rate: float, /, **other: Any) -> Row:
        point = {"part": part, "method": "single", "bytes": size, "threads": 1, "at_once": 1,
                 "window": 1, "from": 0, "to": 0, "route": "one", "engines": "dsa0",
                 "queue": "shared", "group_engines": "any", "beside": "nothing"}  # fmt: skip
        details = {"mapped": 1.0, "cpu_s_per_gb": 600 / size + 2e8 / rate}
        return make.row("dsa", "B/s", rate, details=details, **(point | other))

    def rate(size: int, under_way: int = 1) -> float:
        return min(3e10, 3e10 * under_way * size / (size + 18 * KIB))

    ways = (("single", 1), ("batch", 10), ("batch", 50), ("vectored", 50))
    for exponent, (method, count) in itertools.product(range(10, 31, 2), ways):
        size = 1 << exponent
        yield row("submission", size, rate(size, count), method=method, at_once=count, window=count)
    for threads in (1, 2, 12):
        yield row("threads", MIB, rate(MIB, threads), threads=threads)
    for end, (policy, devices) in itertools.product((2, 3), (("brute_force", 4), ("smart", 2))):
        names = " ".join(f"dsa{n}" for n in range(devices))
        best = min(MEMORY[end][2], devices * 3e10)
        yield row("route", GIB, best, to=end, route=policy, engines=names, threads=devices)
    queues = ("shared", "dedicated")
    for queue, size, depth in itertools.product(queues, (4 * KIB, MIB), (1, 4, 64)):
        yield row("queue", size, rate(size, depth), window=depth, queue=queue, group_engines=1)
    others = {"nothing": 1, "1 more by the same device": 0.5, "STREAM triad": 0.7}
    for beside, share in others.items():
        yield row("interference", MIB, 3e10 * share, window=8, beside=beside)
    yield row("interference", MIB, 1.6e11, method="stream", window=8, beside="1 copy by a device")


def gpu(make: Maker) -> Iterator[Row]:
    """One GPU at node 0, behind a link that another socket reaches at two thirds."""

    def row(part: str, unit: str, value: float, **other: Any) -> Row:
        point = {"part": part, "direction": "to_gpu", "gpu": 2000, "node": 0, "by": "engine",
                 "memory": "pinned", "bytes": 64 * MIB, "count": 1}  # fmt: skip
        details = {"cpu_s_per_gb": 4e3 / (64 * MIB) + 1e8 / value} | other.pop("details", {})
        return make.row("gpu", unit, value, **(point | other), details=details)

    ways = {
        ("engine", "pinned"): 5.5e10, ("kernel", "pinned"): 5.2e10, ("engine", "pageable"): 1e10,
    }  # fmt: skip
    for size, direction in itertools.product((64 * KIB, 64 * MIB), ("to_gpu", "from_gpu")):
        for (by, memory), best in ways.items():
            rate = best * size / (size + 512 * KIB)
            yield row("copy", "B/s", rate, direction=direction, by=by, memory=memory, bytes=size)
    yield row("copy", "B/s", 3.6e10, node=1)
    yield row("copy", "B/s", 8.4e10, direction="both",
              details={"to_gpu": 4.3e10, "from_gpu": 4.1e10})  # fmt: skip
    yield row("copy", "B/s", 2e12, direction="inside", node=2000, memory="device")
    for count, by in itertools.product((1, 256), ("engine", "batch", "kernel")):
        each = 2500.0 / (1 if by == "engine" else count) + 400
        yield row("batch", "ns", each, by=by, bytes=64 * KIB, count=count)
    yield row("latency", "ns", 1100, by="kernel", bytes=16 * MIB)
    yield row("allocation", "ns/MiB", 9e4, by="placed")


def parallelism(make: Maker) -> Iterator[Row]:
    """A core has at most twelve loads under way."""
    for memory, chains in itertools.product((0, 2), (1, 2, 4, 8, 16)):
        faster = min(chains, 12)
        ns = MEMORY[memory][1] / faster
        details = {"speedup": float(faster), "bandwidth": 64e9 / ns}
        yield make.row("parallelism", "ns", ns, cpu_node=0, memory_node=memory, chains=chains,
                       details=details)  # fmt: skip


def core_to_core(make: Maker) -> Iterator[Row]:
    """One pair of each distance, of 16 CPUs."""
    for other, apart, ns, pairs in ((1, "core", 12.0, 8), (2, "node", 48.0, 48),
                                    (8, "far", 130.0, 64)):  # fmt: skip
        details = {"round_trip": 2 * ns, "pairs": float(pairs)}
        yield make.row("core_to_core", "ns", ns, cpu=0, other_cpu=other, apart=apart,
                       details=details)  # fmt: skip


def split(make: Maker) -> Iterator[Row]:
    """A turn ends when the slower memory has given its pages."""
    for one, other in ((1, 0), (1, 1), (1, 3), (0, 1)):
        rate = (one + other) / max(one / MEMORY[0][2], other / MEMORY[2][2])
        yield make.row("split", "B/s", rate, cpu_node=0, memory_node=0, other_memory_node=2,
                       ratio=f"{one}:{other}", threads=8,
                       details={"share": other / (one + other)})  # fmt: skip


EXPERIMENTS = (
    latency, bandwidth, loaded, stream, copy, migrate, storage, interference, dsa, gpu,
    parallelism, core_to_core, split
)  # fmt: skip


def profile(seed: int = 1, noise: float = 0.01) -> Row:
    """The whole document: every known experiment and one of which the report knows nothing,
    rows without a number and noisy ones."""
    make = Maker(seed, noise)
    rows = [row for experiment in EXPERIMENTS for row in experiment(make)]
    rows.append(make.row("tlb", "ns", 7.5, entries=1536, pages="base"))
    rows.append(without("latency", "no memory free on node 3: 12 GiB asked for", cpu_node=1,
                        memory_node=3, bytes=16 * GIB, window="all", pages="huge"))  # fmt: skip
    rows.append(without("migrate", "out of budget", method="mbind", **{"from": 0}, to=1,
                        pages="huge", batch="all"))  # fmt: skip
    rows.append(without("dsa", "no DSA device here that this user may use"))
    for row in rows[7::97]:
        row["flags"] = ["noisy"]
    return machine() | {
        "conditions": {"date": "2026-11-21T04:00:00+00:00", "version": "0.1.0", "seed": "7",
                       "budget": "quick"},
        "rows": rows,
    }  # fmt: skip


def large_profile() -> Row:
    """Eight nodes with CPUs and DRAM, and beside each a node of HBM: 128 pairs, one unmeasured."""
    make = Maker(1)
    nodes = [
        {"id": n, "kind": "dram" if n < 8 else "hbm", "reason": "made up", "name": f"node {n}",
         "capacity_bytes": (128 if n < 8 else 16) * GIB,
         "cpus": list(range(n * 12, n * 12 + 12)) if n < 8 else []}
        for n in range(16)
    ]  # fmt: skip
    rows = []
    for cpu, memory in itertools.product(range(8), range(16)):
        hops = 0 if memory % 8 == cpu else 1 if memory % 8 // 4 == cpu // 4 else 2
        ns = (88.0, 104.0, 171.0)[hops] + (30 if memory >= 8 else 0)
        rate = (1, 0.9, 0.3)[hops] * (5.2e10 if memory < 8 else 1.3e11)
        point = {"cpu_node": cpu, "memory_node": memory}
        rows.append(make.row("latency", "ns", ns, **point, bytes=GIB, window="all", pages="huge"))
        if (cpu, memory) == (7, 8):
            rows.append(without("bandwidth", "out of budget", **point, mix="read", threads=12))
        else:
            rows.append(make.row("bandwidth", "B/s", rate, **point, mix="read", threads=12))
    return machine() | {"nodes": nodes, "engines": [], "conditions": {}, "rows": rows}


def large_movements() -> Row:
    """Movements between 16 nodes: from each to itself, its neighbour's kind, and the last one."""
    make = Maker(1)
    document = large_profile()
    for node in range(16):
        for mix, rate in (("read", 5e10), ("nt_write", 4e10), ("nt_copy", 3e10)):
            document["rows"].append(make.row("bandwidth", "B/s", rate, cpu_node=node % 8,
                                             memory_node=node, mix=mix, threads=12,
                                             details={"read_write": rate, "bus": rate},
                                             ))  # fmt: skip
    for start in (0, 5, 8, 15):
        for end in {start, (start + 8) % 16, 15}:
            pair = {"from": start, "to": end}
            for engine in ("memcpy", "cpu"):
                document["rows"] += [
                    make.row("copy", "B/s", 2e10, engine=engine, cpu_node=end % 8, **pair,
                             bytes=1 << exponent, threads=threads, state="cold",
                             details={"read_write": 4e10})
                    for exponent in (12, 30) for threads in (1, 12)
                ]  # fmt: skip
            document["rows"] += [
                make.row("migrate", "B/s", 4096e6, method="move_pages", cpu_node=end % 8, **pair,
                         pages="base", batch=batch, threads=1,
                         details={"per_page_ns": 1e3, "first_batch_ns": 1e3, "stayed": 0.0})
                for batch in (1, 512) if start != end
            ]  # fmt: skip
    return document


CONDITIONS = {
    "kernel": "6.8.0", "governor": "performance", "numa_balancing": "0", "microcode": "0x2b",
    "transparent_hugepage": "always [madvise] never", "date": "today", "load_average": "0.1",
}  # fmt: skip


@functools.cache
def written_here() -> Document:
    """The profile that a measurement of this host writes: its names, not its values, are used."""
    here = headrace.Machine.discover(storage=[])
    node = next(node.id for node in here.nodes if node.cpus)
    only = {"cpu_node": node, "memory_node": node, "bytes": 16 * KIB}
    made = headrace.measure(
        here, experiments=["latency"], only=only, budget=None, rounds=1, repetitions=1,
        noise_checks=False,
    )
    return made.asdict()


def host(name: str, seed: int, noise: float = 0.01) -> Document:
    """Fewer rows than a profile has, of machines that are alike except for the noise. The names of
    conditions and of the provenance are those that the product writes.
    """
    make = Maker(seed, noise)
    rows = [*stream(make), *latency(make), *interference(make)]
    real = written_here()
    return machine() | {
        "name": name, "rows": rows,
        "provenance": real["provenance"] | machine()["provenance"],
        "conditions": real["conditions"] | CONDITIONS | {"seed": str(seed)},
    }  # fmt: skip


def scaled(factor: float, experiment: str = "", every: int = 1) -> Change:
    """Multiplies times by `factor`, and divides rates by it."""

    def change(document: Document) -> None:
        rows = [r for r in document["rows"] if experiment in ("", r["experiment"])][::every]
        for row in rows:
            by = 1 / factor if row["unit"] == "B/s" else factor
            row["median"] *= by
            row["samples"] = [sample * by for sample in row["samples"]]

    return change
