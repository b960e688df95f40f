"""The machine as its links were measured: node by node where few, else alike nodes as one."""

from __future__ import annotations

from collections.abc import Iterable

from headrace import _core
from headrace._charts_links import Link, Memory, links_svg
from headrace._figures_memory import memory_latency, read_bandwidth
from headrace._report_figure import Figure
from headrace._report_rows import Pair, Rows, folded, text_of, value
from headrace._report_words import plural, rate_text, size_text

#: More arrows than this cannot be told apart.
MOST_ARROWS = 12
Found = dict[Pair, _core.Row]


def machine_figure(machine: _core.Machine, experiments: dict[str, Rows]) -> Figure | None:
    """The picture; None where no pair of nodes was measured."""
    latencies: Found = {}
    rates: Found = {}
    if "latency" in experiments:
        latencies = memory_latency(experiments["latency"])
    if "bandwidth" in experiments:
        rates = read_bandwidth(experiments["bandwidth"])
    pairs = sorted({*latencies, *rates})
    if not pairs:
        return None
    rows = experiments["latency" if latencies else "bandwidth"]
    caption = (
        "An arrow goes from a memory to the CPUs that read it, as wide as the bandwidth that all "
        "of them reached; the time is that of one load alone."
    )
    if len(pairs) <= MOST_ARROWS:
        cpus, memories = _each(machine, pairs, latencies, rates, rows)
    else:
        cpus, memories = _alike(machine, pairs, latencies, rates)
        caption += (
            f" Of {len(pairs)} pairs of nodes those alike are one arrow, as wide as the best of "
            "them: each memory with its nearest CPUs, and with all others."
        )
    svg = links_svg(cpus, memories + _storage(machine, experiments))
    lines = [
        [rows.name(pair), *(text_of(f[pair]) if pair in f else "–" for f in (rates, latencies))]
        for pair in pairs
    ]
    table = folded(plural(len(pairs), "pair"), ["nodes", "reading", "a load alone"], lines)
    return Figure("The machine", f"{machine.name}. {caption}", svg=svg, table=table)


Picture = tuple[list[tuple[str, str]], list[Memory]]


def _each(
    machine: _core.Machine, pairs: list[Pair], latencies: Found, rates: Found, rows: Rows
) -> Picture:
    nodes = {node.id: node for node in machine.nodes}
    cpus = list(dict.fromkeys(pair[0] for pair in pairs))
    boxes = [
        (f"CPUs {cpu}", plural(len(nodes[cpu].cpus), "CPU") if cpu in nodes else "")
        for cpu in cpus
    ]
    memories = []
    for number in sorted({pair[1] for pair in pairs}):
        links = [
            Link(cpus.index(cpu), f"CPUs {cpu}: {_words([(cpu, memory)], latencies, rates)}",
                 rates[cpu, memory].median if (cpu, memory) in rates else None)
            for cpu, memory in pairs
            if memory == number
        ]  # fmt: skip
        memories.append(Memory(rows.kinds.get(number, ""), rows.node(number),
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
            Link(0, f"{word}: {_words(chosen, latencies, rates)}",
                 max((value(rates[p]) for p in chosen if p in rates), default=None))
            for word, chosen in (("nearest", near), ("others", far))
            if chosen
        ]  # fmt: skip
        first = _capacity(nodes[0])
        capacity = f"{first} each" if len({_capacity(n) for n in nodes}) == 1 < len(nodes) else ""
        name = f"{kind.upper()} {_span([n.id for n in nodes])}"
        memories.append(Memory(kind, name, capacity or (first if len(nodes) == 1 else ""), links))
    count = sum(len(node.cpus) for node in machine.nodes if node.id in cpus)
    return [(f"CPUs {_span(cpus)}", plural(count, "CPU"))], memories


def _distance(pair: Pair, latencies: Found, rates: Found) -> tuple[bool, float]:
    """By latency; pairs without one after the others, by bandwidth."""
    if pair in latencies:
        return False, value(latencies[pair])
    return True, -value(rates[pair])


def _span(numbers: Iterable[int]) -> str:
    ordered = sorted(numbers)
    if len(ordered) > 2 and ordered[-1] - ordered[0] == len(ordered) - 1:
        return f"{ordered[0]}–{ordered[-1]}"
    return ", ".join(map(str, ordered))


def _words(pairs: list[Pair], latencies: Found, rates: Found) -> str:
    """ "540 GB/s, 118 ns", of several pairs "15.6–46.8 GB/s, 104–201 ns"."""
    parts = []
    speeds = sorted(value(rates[pair]) for pair in pairs if pair in rates)
    if speeds:
        least, most = rate_text(speeds[0]), rate_text(speeds[-1])
        parts.append(most if least == most else f"{_bare(least, most)}–{most}")
    times = sorted(value(latencies[pair]) for pair in pairs if pair in latencies)
    if times:
        fast, slow = f"{times[0]:.3g}", f"{times[-1]:.3g}"
        parts.append(f"{slow} ns" if fast == slow else f"{fast}–{slow} ns")
    return ", ".join(parts)


def _bare(text: str, other: str) -> str:
    """Without the unit, if the other has the same."""
    number, _, unit = text.partition(" ")
    return number if other.endswith(f" {unit}") else text


def _capacity(node: _core.Node | None) -> str:
    return size_text(node.capacity) if node is not None and node.capacity else ""


def _storage(machine: _core.Machine, experiments: dict[str, Rows]) -> list[Memory]:
    """Storage has no CPUs of its own that read it: a box with its best rates."""
    found = []
    for node in machine.nodes:
        if node.kind != "storage":
            continue
        rows = experiments.get("storage", Rows([], {})).of(node=node.id)
        words = [f"{operation} {rate_text(value(rows.of(operation=operation).best()))}"
                 for operation in rows.values("operation")]  # fmt: skip
        words = words or ["not measured"]
        found.append(Memory("storage", node.name, _capacity(node), [Link(None, ", ".join(words))]))
    return found
