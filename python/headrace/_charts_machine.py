"""The machine as a picture: nodes as boxes, engines in them, links with their measured rates.

Drawn directly as SVG: Vega has no graphs whose boxes hold text. The text takes the page's colour.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import Any

from headrace._charts import BLUE, GREEN, GREY, ORANGE
from headrace._report_words import rate_text, size_text

KIND_COLORS = {"dram": BLUE, "hbm": ORANGE, "cxl": "#9b72cf", "gpu": GREEN, "storage": GREY}
KIND_NAMES = {
    "dram": "DRAM", "hbm": "HBM", "cxl": "CXL memory", "gpu": "GPU memory", "storage": "storage",
}  # fmt: skip
#: Memory that the CPUs are at, then memory further away, then what lies behind an I/O link.
ROWS = (("hbm", "dram"), ("cxl", "gpu"), ("storage",))

BOX_WIDTH, GAP, ROW_GAP, MARGIN = 176, 28, 92, 6
SMALLEST_BOX, LARGEST_BOX = 74, 112
#: Boxes beside each other: more would be unreadable on a telephone, 390 px wide.
PER_ROW = 4


@dataclass
class _Box:
    node: dict[str, Any]
    x: float = 0
    y: float = 0
    height: float = SMALLEST_BOX

    @property
    def middle(self) -> float:
        return self.x + BOX_WIDTH / 2


def machine_svg(machine: dict[str, Any]) -> tuple[str, float, float]:
    """The picture as an SVG element, with its width and height in pixels."""
    boxes, width, height = _layout(machine["nodes"])
    by_id = {box.node["id"]: box for box in boxes}
    parts = [_link(by_id, pair, rates) for pair, rates in _links(machine).items()]
    parts += [_box(box, machine) for box in boxes]
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" fill="currentColor" role="img" '
        f'font-family="system-ui, -apple-system, sans-serif" aria-label="The machine">'
        + "".join(parts)
        + "</svg>"
    )
    return svg, width, height


def _layout(nodes: list[dict[str, Any]]) -> tuple[list[_Box], float, float]:
    rows: list[list[_Box]] = []
    for kinds in ROWS:
        row = [_Box(node) for node in nodes if node["kind"] in kinds]
        rows += [row[i : i + PER_ROW] for i in range(0, len(row), PER_ROW)]
    largest = max((node["capacity_bytes"] or 0 for node in nodes), default=0)
    widest = max((len(row) for row in rows), default=1)
    width = widest * BOX_WIDTH + (widest - 1) * GAP + 2 * MARGIN
    # Room for a link's label beside a lone column of boxes.
    width = max(width, 2 * BOX_WIDTH)
    y = float(MARGIN)
    for row in rows:
        used = len(row) * BOX_WIDTH + (len(row) - 1) * GAP
        for i, box in enumerate(row):
            box.x = (width - used) / 2 + i * (BOX_WIDTH + GAP)
            box.y = y
            box.height = _box_height(box.node["capacity_bytes"], largest)
        y += max(box.height for box in row) + ROW_GAP
    return [box for row in rows for box in row], width, max(y - ROW_GAP, 0) + MARGIN


def _box_height(capacity: int | None, largest: int) -> float:
    """Taller by the logarithm of the capacity: a thousandth of the largest is the smallest box."""
    if not capacity or not largest:
        return SMALLEST_BOX
    share = 1 + math.log2(capacity / largest) / 10
    return SMALLEST_BOX + (LARGEST_BOX - SMALLEST_BOX) * min(1.0, max(0.0, share))


def _links(machine: dict[str, Any]) -> dict[tuple[int, int], dict[tuple[int, int], float | None]]:
    """Pairs of nodes that something copies between, with the best measured rate each way."""
    links: dict[tuple[int, int], dict[tuple[int, int], float | None]] = {}
    for rate in machine.get("copy_rates", []):
        way = (rate["from"], rate["to"])
        if way[0] == way[1]:
            continue
        rates = links.setdefault((min(way), max(way)), {})
        rates[way] = max(rates.get(way) or 0.0, rate["bandwidth_bytes_per_second"])
    # What is there but not measured: a storage device and its nearest memory.
    memory = [n["id"] for n in machine["nodes"] if n["kind"] in ("dram", "hbm")]
    for node in machine["nodes"]:
        if memory and node["id"] not in memory:
            pair = (min(memory[0], node["id"]), max(memory[0], node["id"]))
            if not any(node["id"] in linked for linked in links):
                links.setdefault(pair, {})
    return links


def _link(
    boxes: dict[int, _Box], pair: tuple[int, int], rates: dict[tuple[int, int], float | None]
) -> str:
    if pair[0] not in boxes or pair[1] not in boxes:
        return ""
    upper, lower = sorted((boxes[pair[0]], boxes[pair[1]]), key=lambda box: (box.y, box.x))
    if upper.y == lower.y:
        x1, y1, x2, y2 = upper.x + BOX_WIDTH, upper.y + 24, lower.x, lower.y + 24
    else:
        x1, y1, x2, y2 = upper.middle, upper.y + upper.height, lower.middle, lower.y
    line = (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="currentColor" '
        'stroke-opacity="0.45" stroke-width="2"/>'
    )
    up = rates.get((lower.node["id"], upper.node["id"]))
    down = rates.get((upper.node["id"], lower.node["id"]))
    labels = [f"{sign} {rate_text(rate)}" for sign, rate in (("↑", up), ("↓", down)) if rate]
    x, y = (x1 + x2) / 2 + 9, (y1 + y2) / 2 - 9 * (len(labels) - 1) + 4
    for label in labels:
        line += svg_text(x, y, label, size=13, bold=True)
        y += 18
    return line


def _box(box: _Box, machine: dict[str, Any]) -> str:
    node = box.node
    color = KIND_COLORS.get(node["kind"], GREY)
    capacity = size_text(node["capacity_bytes"]) if node["capacity_bytes"] else "capacity unknown"
    # A name that only repeats the kind and the number says nothing new.
    lines = [node["name"] or f"node {node['id']}"]
    cpus = len(node["cpus"])
    if cpus:
        lines.append(f"{cpus} CPU" + ("s" if cpus > 1 else ""))
    engines = [e["kind"] for e in machine.get("engines", []) if e["home"] == node["id"]]
    copying = sorted({kind for kind in engines if kind not in ("cpu", "migrate")})
    lines += [f"{kind.upper()} ×{engines.count(kind)}" for kind in copying if kind != "ssd"]
    within = max(
        (r["bandwidth_bytes_per_second"] for r in machine.get("copy_rates", [])
         if r["from"] == r["to"] == node["id"]), default=None,
    )  # fmt: skip
    content = svg_text(box.x + 12, box.y + 24, KIND_NAMES.get(node["kind"], node["kind"]), 14, True)
    content += svg_text(box.x + BOX_WIDTH - 12, box.y + 24, capacity, 14, True, "end")
    content += svg_text(box.x + 12, box.y + 45, " · ".join(lines), 12)
    if within:
        content += svg_text(box.x + 12, box.y + 63, f"copies {rate_text(within)} within", 12)
    title = escape(f"node {node['id']}: {node['kind']} because {node['reason']}")
    return (
        f'<g><title>{title}</title><rect x="{box.x:.1f}" y="{box.y:.1f}" width="{BOX_WIDTH}" '
        f'height="{box.height:.1f}" rx="8" fill="{color}" fill-opacity="0.16" stroke="{color}" '
        f'stroke-width="1.5"/>{content}</g>'
    )


def svg_text(
    x: float, y: float, text: str, size: int, bold: bool = False, anchor: str = "start"
) -> str:
    weight = ' font-weight="600"' if bold else ' fill-opacity="0.8"'
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"{weight}>'
        f"{escape(text)}</text>"
    )
