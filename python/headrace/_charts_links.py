"""The measured machine as a picture: CPUs beside the memories they read, an arrow as wide as the
bandwidth from each memory to each.

Drawn directly as SVG, like the machine that was not measured: narrow, so that a telephone shows it
at nearly its size.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape

from headrace._charts import GREY
from headrace._charts_machine import KIND_COLORS, svg_text

CPU_WIDTH, SPACE, MEMORY_WIDTH, MARGIN = 92, 64, 250, 6
WIDTH = CPU_WIDTH + SPACE + MEMORY_WIDTH + 2 * MARGIN
HEAD, LINE, GAP = 32, 19, 14
THINNEST, THICKEST = 1.5, 12.0


@dataclass
class Link:
    """From a memory to the CPUs that read it; None: no CPUs do, the words only are shown."""

    cpus: int | None  # which of the picture's boxes
    words: str
    rate: float | None = None


@dataclass
class Memory:
    kind: str
    name: str
    capacity: str
    links: list[Link] = field(default_factory=list)
    y: float = 0

    @property
    def height(self) -> float:
        return HEAD + LINE * len(self.links) + 6


def links_svg(cpus: list[tuple[str, str]], memories: list[Memory]) -> tuple[str, float, float]:
    """The picture as an SVG element, with its width and height; `cpus` are name and note."""
    height = float(MARGIN)
    for memory in memories:
        memory.y = height
        height += memory.height + GAP
    height += MARGIN - GAP
    ends = _ends(len(cpus), memories, height)
    parts = [_memory(memory) for memory in memories]
    most = max((link.rate or 0 for m in memories for link in m.links), default=0)
    for (number, index), (x, y) in ends.items():
        parts.append(_arrow(memories[number], index, most, x, y))
    parts += [_cpus(name, note, *_cpu_box(i, len(cpus), height))
              for i, (name, note) in enumerate(cpus)]  # fmt: skip
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'width="{WIDTH}" height="{height:.0f}" fill="currentColor" role="img" '
        'font-family="system-ui, -apple-system, sans-serif" aria-label="The machine, measured">'
        + "".join(parts)
        + "</svg>"
    )
    return svg, WIDTH, height


def _cpu_box(index: int, count: int, height: float) -> tuple[float, float]:
    """Its top and its height: all boxes share the height of the picture."""
    each = (height - 2 * MARGIN - GAP * (count - 1)) / count
    return MARGIN + index * (each + GAP), each


def _ends(
    count: int, memories: list[Memory], height: float
) -> dict[tuple[int, int], tuple[float, float]]:
    """Where the arrow of each (memory, link) ends, spread over the box of its CPUs."""
    found: dict[tuple[int, int], tuple[float, float]] = {}
    for box in range(count):
        top, tall = _cpu_box(box, count, height)
        arriving = [
            (m, i) for m, memory in enumerate(memories)
            for i, link in enumerate(memory.links) if link.cpus == box
        ]  # fmt: skip
        for place, key in enumerate(arriving):
            found[key] = (MARGIN + CPU_WIDTH, top + tall * (place + 1) / (len(arriving) + 1))
    return found


def _arrow(memory: Memory, index: int, most: float, x: float, y: float) -> str:
    link = memory.links[index]
    color = KIND_COLORS.get(memory.kind, GREY)
    start_x, start_y = MARGIN + CPU_WIDTH + SPACE, memory.y + HEAD + LINE * index + LINE / 2 - 2
    wide = THINNEST + (THICKEST - THINNEST) * (link.rate / most) if link.rate else THINNEST
    dash = "" if link.rate else ' stroke-dasharray="3 4"'
    head = 5 + wide * 0.7
    bend = SPACE * 0.45
    return (
        f'<path d="M{start_x:.1f},{start_y:.1f} C{start_x - bend:.1f},{start_y:.1f} '
        f'{x + head + bend * 0.6:.1f},{y:.1f} {x + head:.1f},{y:.1f}" fill="none" stroke="{color}" '
        f'stroke-width="{wide:.1f}" stroke-opacity="0.75"{dash}><title>{escape(link.words)}</title>'
        f'</path><path d="M{x:.1f},{y:.1f} l{head:.1f},{-head * 0.75:.1f} v{head * 1.5:.1f} z" '
        f'fill="{color}"/>'
    )


def _memory(memory: Memory) -> str:
    color = KIND_COLORS.get(memory.kind, GREY)
    x, y = MARGIN + CPU_WIDTH + SPACE, memory.y
    text = svg_text(x + 10, y + 21, memory.name, 14, True)
    text += svg_text(x + MEMORY_WIDTH - 10, y + 21, memory.capacity, 13, False, "end")
    for index, link in enumerate(memory.links):
        text += svg_text(x + 10, y + HEAD + LINE * index + 12, link.words, 12)
    return _rect(x, y, MEMORY_WIDTH, memory.height, color) + text


def _cpus(name: str, note: str, y: float, height: float) -> str:
    middle = y + height / 2
    return (
        _rect(MARGIN, y, CPU_WIDTH, height, "currentColor", 0.06)
        + svg_text(MARGIN + 10, middle - 2, name, 14, True)
        + svg_text(MARGIN + 10, middle + 16, note, 12)
    )


def _rect(x: float, y: float, width: float, height: float, color: str, fill: float = 0.16) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="8" '
        f'fill="{color}" fill-opacity="{fill}" stroke="{color}" stroke-opacity="0.8"/>'
    )
