# SPDX-License-Identifier: Apache-2.0
"""Figures of the machine and its links: each node if there are few, otherwise alike nodes as one.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace import _core
from headrace._core import format_bytes, format_rate
from headrace._format import listed, plural, time_text
from headrace._report.charts_machine import Link, Memory, machine_chart
from headrace._report.figure import Figure, Table
from headrace._report.figures_memory import memory_latency, read_bandwidth
from headrace._report.rows import Name, Pair, Rows, in_order, value

#: More arrows than this cannot be told apart.
MOST_ARROWS = 12
KIND_NAMES = {
    "dram": "DRAM", "hbm": "HBM", "cxl": "CXL memory", "gpu": "GPU memory", "storage": "storage",
}  # fmt: skip
#: With at most this number of links, each has a line in the table; otherwise alike links share one.
MOST_LINKS = 8
LINK_NAMES = {
    "upi": "UPI", "xgmi": "xGMI", "socket": "between sockets", "mesh": "mesh", "pcie": "PCIe",
    "cxl": "CXL", "nvlink": "NVLink", "c2c": "NVLink-C2C",
}  # fmt: skip
Found = dict[Pair, float]
#: Properties that nodes of one box share: kind, name, capacity, CPUs, and rates of copies.
_Likeness = tuple[str, str, int | None, int, tuple[str, ...]]


def machine_figure(machine: _core.Machine, experiments: dict[str, Rows]) -> Figure:
    """The picture, and a table of the links, where there are some."""
    figure = _picture(machine, experiments)
    if machine.links:
        figure.tables.insert(0, _links(machine))
    return figure


def _picture(machine: _core.Machine, experiments: dict[str, Rows]) -> Figure:
    """The picture with measured numbers; without them, with rated ones; without those, with nodes
    and CPUs only.
    """
    nothing = Rows([], {node.id: node.kind for node in machine.nodes})
    latencies = _values(memory_latency(experiments.get("latency", nothing)))
    rates = _values(read_bandwidth(experiments.get("bandwidth", nothing)))
    caption = (
        "An arrow goes from a memory to the CPUs that read it, as wide as the bandwidth that all "
        "of them reached; the time is that of one load alone."
    )
    if not latencies and not rates:
        measured = any(access.measured for node in machine.nodes for access in node.access)
        latencies, rates = _accesses(machine, measured)
        if not measured:
            caption = (
                "An arrow goes from a memory to the CPUs that read it, as wide as the bandwidth it "
                "is rated at."
            )
    pairs = [(cpu, memory) for cpu in in_order(pair[0] for pair in {*latencies, *rates})
             for memory in in_order(pair[1] for pair in {*latencies, *rates})
             if (cpu, memory) in latencies or (cpu, memory) in rates]  # fmt: skip
    if not pairs:
        return _unknown_links(machine)
    if len(pairs) <= MOST_ARROWS:
        cpus, memories = _each(machine, pairs, latencies, rates, nothing)
    else:
        cpus, memories = _alike(machine, pairs, latencies, rates)
        caption += (
            f" Similar CPU-memory pairs of the {len(pairs)} are merged; the best one is shown: "
            "each memory with its nearest CPUs, and with all others."
        )
    chart = machine_chart(cpus, memories + _storage(machine, experiments))
    rows = [
        [f"CPUs {cpu}, {nothing.node(memory)}",
         format_rate(rates[cpu, memory]) if (cpu, memory) in rates else "–",
         time_text(latencies[cpu, memory]) if (cpu, memory) in latencies else "–"]
        for cpu, memory in pairs
    ]  # fmt: skip
    table = Table(["nodes", "reading", "a load alone"], rows, plural(len(pairs), "pair"))
    return Figure("The machine", f"{machine.name}. {caption}", [("", chart)], [table])


def _unknown_links(machine: _core.Machine) -> Figure:
    """Each node with the best rates of copies from and to it; alike nodes as one."""
    kinds = [node.kind for node in machine.nodes]
    counted = [
        plural(kinds.count(kind), f"{name} node")
        for kind, name in KIND_NAMES.items()
        if kind in kinds
    ]
    best = _best_copies(machine)
    alike: dict[_Likeness, list[_core.Node]] = {}
    for node in machine.nodes:
        name = node.name if node.kind == "storage" else ""
        lines = (*_devices(machine, node), *_copies(node.id, best))
        alike.setdefault((node.kind, name, node.capacity, len(node.cpus), lines), []).append(node)
    with_cpus = [node.id for node in machine.nodes if node.cpus]
    memories = []
    for (kind, name, _, cpus, lines), nodes in alike.items():
        links = []
        if cpus:
            links.append(Link(plural(cpus, "CPU") + (" each" if len(nodes) > 1 else ""), 0))
        links += [Link(line) for line in lines]
        title = name or f"{KIND_NAMES.get(kind, kind)} {_span(node.id for node in nodes)}"
        memories.append(Memory(kind, title, _capacities(nodes), links))
    boxes = []
    if with_cpus:
        count = sum(len(node.cpus) for node in machine.nodes)
        boxes = [(f"CPUs {_span(with_cpus)}", plural(count, "CPU"))]
    caption = f"{machine.name} has {listed(counted)}."
    if any(start != end for start, end in best):
        how = "published" if machine.source.startswith("preset") else "measured"
        caption += f" In the boxes: the best copy rates that were {how}."
    else:
        caption += " Its links have not been measured."
    return Figure("The machine", caption, [("", machine_chart(boxes, memories))])


def _links(machine: _core.Machine) -> Table:
    """A row for each link: the nodes it joins, its bandwidth, its latency, and the sources."""
    alike: dict[tuple[object, ...], list[_core.Link]] = {}
    for place, link in enumerate(machine.links):
        known = (link.kind, _limit(link), link.latency, _basis(link))
        apart = place if len(machine.links) <= MOST_LINKS else None
        alike.setdefault((apart, *known), []).append(link)
    rows = []
    for links in alike.values():
        first = links[0]
        name = LINK_NAMES.get(first.kind, first.kind)
        rows.append([
            f"{len(links)} × {name}" if len(links) > 1 else name, _joined(machine, links),
            _limit(first), time_text(first.latency * 1e9) if first.latency else "–",
            _basis(first),
        ])  # fmt: skip
    head = ["link", "joins", "at most", "adds to an access", "known from"]
    return Table(head, rows, words=("joins", "at most", "known from"))


def _joined(machine: _core.Machine, links: list[_core.Link]) -> str:
    """ "DRAM 0–3 with DRAM 4–7": all nodes that these links join."""
    if len(links) == 1:
        return f"{_ends(machine, links[0].a)} with {_ends(machine, links[0].b)}"
    return f"pairs of {_ends(machine, [node for link in links for node in (*link.a, *link.b)])}"


def _ends(machine: _core.Machine, numbers: list[int]) -> str:
    """ "DRAM 0–3, HBM 8–11"; storage by its name."""
    kinds: dict[str, list[int]] = {}
    for node in machine.nodes:
        if node.id in numbers:
            kinds.setdefault(node.name if node.kind == "storage" else node.kind, []).append(node.id)
    return ", ".join(
        f"{KIND_NAMES[kind]} {_span(ids)}" if kind in KIND_NAMES else kind
        for kind, ids in kinds.items()
    )


def _limit(link: _core.Link) -> str:
    rates = ((link.each_way, "each way"), (link.both_ways, "both ways at once"))
    return ", ".join(f"{format_rate(rate)} {words}" for rate, words in rates if rate) or "unknown"


def _basis(link: _core.Link) -> str:
    """How the link was found, and the source of each number."""
    told = [
        f"{words}: {source}" for words, source in
        (("each way", link.each_way_source), ("both ways", link.both_ways_source),
         ("added", link.latency_source)) if source
    ]  # fmt: skip
    return "; ".join([*([link.reason] if link.reason else []), *told])


def _devices(machine: _core.Machine, node: _core.Node) -> list[str]:
    """ "4 × DSA": engines of the node that copy without cores."""
    kinds = [engine.kind for engine in machine.engines if engine.home == node.id]
    copying = sorted(set(kinds) - {"cpu", "migrate", "ssd"})
    return [f"{kinds.count(kind)} × {kind.upper()}" for kind in copying]


def _best_copies(machine: _core.Machine) -> Found:
    best: Found = {}
    for rate in machine.copy_rates:
        pair = rate.from_node, rate.to_node
        best[pair] = max(best.get(pair, 0.0), rate.bandwidth)
    return best


def _copies(node: Name, best: Found) -> list[str]:
    """ "copies 12.1 GB/s within", "to node 0: 760 MB/s, back 410 MB/s"."""
    lines = [f"copies {format_rate(rate)} within" for pair, rate in best.items()
             if pair == (node, node)]  # fmt: skip
    others = [pair[1] for pair in best if pair[0] == node != pair[1]]
    for other in others:
        back = best.get((other, node))
        # A pair is listed once: at the node with the higher number.
        if back is None or (isinstance(other, int) and isinstance(node, int) and other < node):
            text = f"to node {other}: {format_rate(best[node, other])}"
            lines.append(text + (f", back {format_rate(back)}" if back else ""))
    return lines


def _values(rows: dict[Pair, _core.Row]) -> Found:
    return {pair: value(row) for pair, row in rows.items()}


def _accesses(machine: _core.Machine, measured: bool) -> tuple[Found, Found]:
    """Load latencies in ns and read bandwidths as measured, or as firmware or the maker says."""
    latencies: Found = {}
    rates: Found = {}
    for node in machine.nodes:
        for access in node.access:
            if access.measured != measured:
                continue
            pair = (access.initiator, node.id)
            if access.read_latency:
                latencies[pair] = access.read_latency * 1e9
            if access.read_bandwidth:
                rates[pair] = access.read_bandwidth
    return latencies, rates


Picture = tuple[list[tuple[str, str]], list[Memory]]


def _each(
    machine: _core.Machine, pairs: list[Pair], latencies: Found, rates: Found, rows: Rows
) -> Picture:
    nodes: dict[Name, _core.Node] = {node.id: node for node in machine.nodes}
    cpus = list(dict.fromkeys(pair[0] for pair in pairs))
    boxes = [
        (f"CPUs {cpu}", plural(len(nodes[cpu].cpus), "CPU") if cpu in nodes else "")
        for cpu in cpus
    ]
    memories = []
    for number in in_order(pair[1] for pair in pairs):
        links = [
            Link(f"CPUs {cpu}: {_words([(cpu, memory)], latencies, rates)}", cpus.index(cpu),
                 rates.get((cpu, memory)))
            for cpu, memory in pairs
            if memory == number
        ]  # fmt: skip
        memories.append(Memory(rows.kind(number), rows.node(number),
                               _capacity(nodes.get(number)), links))  # fmt: skip
    return boxes, memories


def _alike(
    machine: _core.Machine, pairs: list[Pair], latencies: Found, rates: Found
) -> Picture:
    cpus = {pair[0] for pair in pairs}
    nearest = {}
    for memory in {pair[1] for pair in pairs}:
        own = [pair for pair in pairs if pair[1] == memory]
        nearest[memory] = min(own, key=lambda pair: _distance(pair, latencies, rates))
    memories = []
    for kind in dict.fromkeys(node.kind for node in machine.nodes):
        nodes = [node for node in machine.nodes if node.kind == kind and node.id in nearest]
        if not nodes:
            continue
        near = [nearest[node.id] for node in nodes]
        far = [p for p in pairs if p[1] in {n.id for n in nodes} and p not in near]
        links = [
            Link(f"{word}: {_words(chosen, latencies, rates)}", 0,
                 max((rates[p] for p in chosen if p in rates), default=None))
            for word, chosen in (("nearest", near), ("others", far))
            if chosen
        ]  # fmt: skip
        name = f"{kind.upper()} {_span(node.id for node in nodes)}"
        memories.append(Memory(kind, name, _capacities(nodes), links))
    count = sum(len(node.cpus) for node in machine.nodes if node.id in cpus)
    return [(f"CPUs {_span(cpus)}", plural(count, "CPU"))], memories


def _distance(pair: Pair, latencies: Found, rates: Found) -> tuple[bool, float]:
    """Sorts by latency; pairs without one come after the others, by bandwidth."""
    if pair in latencies:
        return False, latencies[pair]
    return True, -rates[pair]


def _span(numbers: Iterable[Name]) -> str:
    ordered = in_order(numbers)
    first, last = ordered[0], ordered[-1]
    whole = isinstance(first, int) and isinstance(last, int) and last - first == len(ordered) - 1
    if len(ordered) > 2 and whole:
        return f"{ordered[0]}–{ordered[-1]}"
    return ", ".join(map(str, ordered))


def _words(pairs: list[Pair], latencies: Found, rates: Found) -> str:
    """ "540 GB/s, 118 ns"; for several pairs "15.6–46.8 GB/s, 104–201 ns"."""
    parts = []
    speeds = sorted(rates[pair] for pair in pairs if pair in rates)
    if speeds:
        least, most = format_rate(speeds[0]), format_rate(speeds[-1])
        parts.append(most if least == most else f"{_bare(least, most)}–{most}")
    times = sorted(latencies[pair] for pair in pairs if pair in latencies)
    if times:
        fast, slow = f"{times[0]:.3g}", f"{times[-1]:.3g}"
        parts.append(f"{slow} ns" if fast == slow else f"{fast}–{slow} ns")
    return ", ".join(parts)


def _bare(text: str, other: str) -> str:
    """Without the unit, if the other has the same."""
    number, _, unit = text.partition(" ")
    return number if other.endswith(f" {unit}") else text


def _capacity(node: _core.Node | None) -> str:
    return format_bytes(node.capacity) if node is not None and node.capacity else ""


def _capacities(nodes: list[_core.Node]) -> str:
    """The capacity of one node, or of each node if all are equal."""
    capacities = {_capacity(node) for node in nodes}
    each = " each" if len(nodes) > 1 else ""
    return capacities.pop() + each if len(capacities) == 1 and "" not in capacities else ""


def _storage(machine: _core.Machine, experiments: dict[str, Rows]) -> list[Memory]:
    """A box for storage with its best rates, as no CPUs belong to it."""
    found = []
    for node in machine.nodes:
        if node.kind != "storage":
            continue
        rows = experiments.get("storage", Rows([], {})).of(node=node.id)
        words = [f"{operation} {format_rate(value(rows.of(operation=operation).best()))}"
                 for operation in rows.values("operation")]  # fmt: skip
        words = words or _copies(node.id, _best_copies(machine)) or ["not measured"]
        found.append(Memory("storage", node.name, _capacity(node), [Link(", ".join(words))]))
    return found
