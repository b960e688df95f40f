# SPDX-License-Identifier: Apache-2.0
"""One copy between two memories: by cores, by DSA devices, or as migration of its pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import headrace
from headrace_bench.predict import places
from headrace_bench.predict.answer import Column, Row
from headrace_bench.predict.command import Axis, Workload, command_of, count, size_of
from headrace_bench.predict.target import (
    LINE,
    Access,
    Binding,
    Estimate,
    Place,
    Share,
    Speed,
    Target,
)

COLUMNS = (Column("time", "s"), Column("rate", "B/s"))
WAYS = ("all", "cores", "dsa", "move_pages")
#: Requests in flight of copies from or to an SSD.
DEPTHS = (1, 4, 16, 64)
_PAGES = {"4KiB": 4096, "2MiB": 2 << 20}


def predict(target: Target, settings: Mapping[str, Any]) -> list[Row]:
    size = float(settings["size"])
    places.check_fits(target, 2 * size, "source and destination")
    there = {node["kind"] for node in target.nodes.values()}
    to = settings["to"] or next(kind for kind in ("hbm", "cxl", "gpu", "dram") if kind in there)
    run = Copy(target, size, settings["source"], to)
    way = settings["by"]
    disk, gpu = run.disk(), run.gpu()
    if (disk or gpu) and (way != "all" or settings["threads"] is not None):
        raise headrace.InvalidError(
            f"copies {'from or to an SSD' if disk else 'of GPU memory'} are predicted by its own "
            "engine only; leave out --by and --threads"
        )
    if disk:
        return run.by_disk(disk, settings["block"])
    if gpu:
        return [run.by_gpu(gpu)]
    rows: list[Row] = []
    if way in ("all", "cores"):
        rows += run.by_cores(settings["threads"])
    if way in ("all", "dsa"):
        rows += run.by_dsa(required=way == "dsa")
    if way in ("all", "move_pages"):
        rows += [run.migrated(page) for page in _PAGES]
    return rows


class Copy:
    def __init__(self, target: Target, size: float, source: str, to: str) -> None:
        self.target, self.size = target, size
        self.source, self.to = (_single(target, text) for text in (source, to))
        self.cpu_node = target.cpu_nodes[0]

    def row(self, name: str, rate: Estimate, binds: Binding, start: float = 0.0,
            given: bool = False) -> Row:  # fmt: skip
        time = rate.inverse(self.size)
        time = Estimate(time.value + start, time.low + start, time.high + start)
        return Row(name, {"time": time, "rate": time.inverse(self.size)}, binds, given)

    def cores(self, threads: int, nodes: Sequence[int]) -> Speed:
        """memcpy: reads, and stores around the caches for what is larger than them."""
        large = self.size > 0.75 * _last_cache(self.target) / max(1, threads)
        accesses = [Access(self.source, "read", 1.0)]
        accesses.append(Access(self.to, "write" if large else "store", 1.0))
        return self.target.together(nodes, threads, accesses, "sequential load")

    def by_cores(self, threads: int | None) -> list[Row]:
        node = self.target.nodes[self.cpu_node]
        cores = len(node["cpus"])
        every = sum(len(self.target.nodes[n]["cpus"]) for n in self.target.cpu_nodes)
        counts = [threads] if threads else sorted({n for n in (1, 2, 4, 8, cores) if n <= every})
        rows = []
        for number in counts:
            nodes = [self.cpu_node] if number <= cores else self.target.cpu_nodes
            speed = self.cores(number, nodes)
            words = f"{number} core" + ("s" if number > 1 else "")
            rows.append(self.row(words, speed.rate, speed.binds, given=threads is not None))
        return rows

    def by_dsa(self, *, required: bool) -> list[Row]:
        engines = [e for e in self.target.document["engines"] if e["kind"] == "dsa"]
        if not engines:
            if required:
                raise headrace.UnsupportedError(
                    f"{self.target.name} has no DSA; add one: --add dsa:1"
                )
            return []
        home = self.target.socket(self.cpu_node)
        on_socket = [e for e in engines if self.target.socket(e["home"]) == home]
        ways = [("1 DSA", engines[:1])]
        if len(on_socket) > 1:
            ways.append((f"{len(on_socket)} DSAs of the socket", on_socket))
        if len(engines) > len(on_socket):
            ways.append((f"all {len(engines)} DSAs", engines))
        rows = []
        for name, used in ways:
            speeds = self.target.solve([self._engine(e) for e in used])
            rate = _sum([speed.rate for speed in speeds])
            slowest = min(speeds, key=lambda speed: speed.rate.value)
            start = self.target.engine("dsa")["start_ns"] * 1e-9
            rows.append(self.row(name, rate, slowest.binds, start))
        return rows

    def _engine(self, engine: Mapping[str, Any]) -> dict[str, Any]:
        device = self.target.engine("dsa")
        flow = self.target.flow(
            engine["name"], engine["home"], 1,
            [Access(self.source, "read", 1.0), Access(self.to, "write", 1.0)],
            in_flight=device["in_flight_bytes"] / LINE, cap=device["bytes_per_second"],
        )  # fmt: skip
        return flow | {"engine": engine["name"]}

    def gpu(self) -> Mapping[str, Any] | None:
        """The GPU that is source or destination, whose engine then copies."""
        used = {share.node for place in (self.source, self.to) for share in place.shares}
        return next((dict(engine) for engine in self.target.document["engines"]
                     if engine["kind"] == "gpu" and engine["home"] in used), None)  # fmt: skip

    def by_gpu(self, engine: Mapping[str, Any]) -> Row:
        accesses = [Access(self.source, "read", 1.0), Access(self.to, "write", 1.0)]
        flow = self.target.flow(engine["name"], engine["home"], 1, accesses, in_flight=1.0)
        del flow["in_flight_bytes"], flow["in_flight_uncertainty"]
        flow |= {"engine": engine["name"], "cap_bytes_per_second": 1e12}
        speed = self.target.solve([flow])[0]
        if speed.binds.name == "demand":  # no ceiling is between them
            raise headrace.UnsupportedError(
                f"how fast {engine['name']} of {self.target.name} copies between these memories is "
                "not known; give --source or --to of the host's memory"
            )
        return self.row(f"copy engine of {engine['name']}", speed.rate, speed.binds)

    def disk(self) -> Mapping[str, Any] | None:
        """The engine of the SSD that is source or destination. UnsupportedError: nothing is known
        of its speed.
        """
        nodes = self.target.nodes
        kinds = {share.node: nodes[share.node]["kind"] for place in (self.source, self.to)
                 for share in place.shares if share.node is not None}  # fmt: skip
        disks = [node for node, kind in kinds.items() if kind == "storage"]
        if not disks:
            return None
        known = [each for each in self.target.model.get("ceilings", ())
                 if each["kind"] == "device" and disks[0] in each.get("to", ())]  # fmt: skip
        engines = [each for each in self.target.document["engines"]
                   if each["kind"] == "ssd" and each["home"] == disks[0]]  # fmt: skip
        if not known or not engines:
            raise headrace.UnsupportedError(
                f"the speed of the SSD of {self.target.name} is not known; measure one: headrace "
                "measure latency bandwidth storage --out p.json, then --from p.json"
            )
        return dict(engines[0])

    def by_disk(self, engine: Mapping[str, Any], block: float) -> list[Row]:
        """A request takes the time of a small one, and that of its bytes at the device's rate."""
        home, rows = engine["home"], []
        ceiling = next(each for each in self.target.model["ceilings"]
                       if each["kind"] == "device" and home in each.get("to", ()))  # fmt: skip
        reads = any(share.node == home for share in self.source.shares)
        rate = ceiling["bandwidth"][0 if reads else -1][1]
        takes = self.target.latency(home, home, writes=not reads) + block / rate * 1e9
        for depth in DEPTHS:
            flow = self.target.flow(
                engine["name"], home, 1,
                [Access(self.source, "read", 1.0, latency_ns=takes if reads else 1.0),
                 Access(self.to, "write", 1.0, latency_ns=1.0 if reads else takes)],
                in_flight=depth * block / LINE,
            )  # fmt: skip
            flow |= {"engine": engine["name"], "in_flight_uncertainty": 0.0}
            for access in flow["accesses"]:
                access["request_bytes"] = block
            speed = self.target.solve([flow])[0]
            size = headrace.format_bytes(int(block))
            words = f"SSD, {depth} request{'s' * (depth > 1)} of {size}"
            rows.append(self.row(words, speed.rate, speed.binds))
        return rows

    def migrated(self, page: str) -> Row:
        """One thread of the kernel copies each page with ordinary stores, and does its own work."""
        accesses = [Access(self.source, "read", 1.0), Access(self.to, "store", 1.0)]
        copy = self.target.together([self.cpu_node], 1, accesses, "sequential load").rate
        size, work = float(_PAGES[page]), places.constants("move_pages")["page_ns"]
        rates = [size / (work[end] * 1e-9 + size / rate) for rate, end in (
            (copy.value, "value"), (copy.low, "high"), (copy.high, "low"),
        )]  # fmt: skip
        binds = Binding("move_pages: one thread of the kernel", work["basis"], work["source"],
                        tuple(work["fitted_to"]))  # fmt: skip
        return self.row(f"move_pages, {page} pages", Estimate(*rates), binds)


def _single(target: Target, text: str) -> Place:
    """A kind means one node: a copy has one source. Weights spread it."""
    place = places.place(target, text)
    shares = []
    for share in place.shares:
        node = share.node
        if node is None:
            node = target.near(target.cpu_nodes[0], share.near or "")[0]
        shares.append(Share(share.part, node=node))
    return Place(place.words, tuple(shares))


def _last_cache(target: Target) -> float:
    return max((float(c["size_bytes"]) for c in target.document.get("caches", ())), default=0.0)


def _sum(each: Sequence[Estimate]) -> Estimate:
    return Estimate(sum(e.value for e in each), sum(e.low for e in each), sum(e.high for e in each))


WORKLOAD = Workload(
    "copy",
    "Predict a copy by cores, by DSA, and as page migration.",
    """PLACE is a kind (its node nearest to CPU node 0), a node, or weights. The node
    of an SSD needs a profile with `storage` rows (--from).

    \b
    headrace predict copy --machine xeon-max --to hbm
    headrace predict copy --machine xeon-max --source 0 --to 15 --by dsa
    headrace predict copy --machine spr-hbm --by cores --sweep size=1MiB,1GiB""",
    (
        Axis("source", "PLACE", str, "dram", "Memory that is read."),
        Axis("to", "PLACE", str, None,
             "Memory that is written (default: HBM, CXL or a GPU, else DDR)."),
        Axis("size", "SIZE", size_of, "1GiB", "Size of the copy."),
        Axis("by", "WAY", WAYS, "all", "Way: cores, dsa, move_pages or all."),
        Axis("block", "SIZE", size_of, "1MiB", "Size of a request to an SSD."),
        Axis("threads", "NUMBER", count, None, "Number of cores (default: several)."),
    ),
    COLUMNS,
    predict,
)
command = command_of(WORKLOAD)
