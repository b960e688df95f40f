# SPDX-License-Identifier: Apache-2.0
"""The machine as a picture: boxes of CPUs at the left, of memories at the right, and an arrow from
each memory to the CPUs that read it, as wide as the bandwidth. Heights and y coordinates are in
lines of text; Altair scales them to pixels.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import altair as alt

from headrace._report.charts import BLUE, GREEN, GREY, INK, ORANGE, VIOLET, Picture, Row

KIND_COLORS = {"dram": BLUE, "hbm": ORANGE, "cxl": VIOLET, "gpu": GREEN, "storage": GREY}
#: Where the boxes of CPUs end and those of memories begin, as shares of the width.
CPUS_END, MEMORY_START = 0.23, 0.34
#: Heights in lines of text: a box's head, a box's foot, the space between two boxes.
HEAD, FOOT, GAP = 1.6, 0.4, 0.7
#: Pixels of a line.
LINE = 19


@dataclass
class Link:
    """A line of text in a memory's box, with an arrow to the CPUs that read it, if any do."""

    words: str
    cpus: int | None = None  # the index of their box
    rate: float | None = None  # bytes per second; None: not known


@dataclass
class Memory:
    """A box at the right, with a line for each of its links."""

    kind: str
    name: str
    capacity: str
    links: list[Link] = field(default_factory=list)

    @property
    def height(self) -> float:
        return HEAD + len(self.links) + FOOT


def machine_chart(cpus: list[tuple[str, str]], memories: list[Memory]) -> Picture:
    """`cpus`: the name and a note for each box at the left."""
    height = sum(memory.height + GAP for memory in memories) - GAP
    pitch = (height + GAP) / max(1, len(cpus))
    boxes = [_box(0, CPUS_END, i * pitch, (i + 1) * pitch - GAP, GREY) for i in range(len(cpus))]
    names: list[Row] = []
    notes: list[Row] = []
    sizes: list[Row] = []
    arrows: list[Row] = []
    for box, (name, note) in zip(boxes, cpus, strict=True):
        middle = (box["y"] + box["y2"]) / 2
        names.append({"x": 0, "y": middle - 0.5, "text": name})
        notes.append({"x": 0, "y": middle + 0.5, "text": note})
    top = 0.0
    for memory in memories:
        color = KIND_COLORS.get(memory.kind, GREY)
        boxes.append(_box(MEMORY_START, 1, top, top + memory.height, color))
        names.append({"x": MEMORY_START, "y": top + 0.9, "text": memory.name})
        sizes.append({"x": 1, "y": top + 0.9, "text": memory.capacity})
        for index, link in enumerate(memory.links):
            y = top + HEAD + index + 0.5
            notes.append({"x": MEMORY_START, "y": y, "text": link.words})
            if link.cpus is not None:
                arrows.append({"from": y, "cpus": link.cpus, "rate": link.rate, "color": color,
                               "words": link.words, "link": len(arrows)})  # fmt: skip
        top += memory.height + GAP
    _spread_ends(arrows, pitch)
    layers = [_boxes(boxes), *_arrows(arrows)]
    layers += [_text(names, "left", 14, "bold"), _text(sizes, "right", 13), _text(notes, "left")]
    return alt.layer(*layers).properties(width="container", height=LINE * height)


def _spread_ends(arrows: list[Row], pitch: float) -> None:
    """Gives the arrows that reach one box of CPUs ends that are spread over its height."""
    for box in {arrow["cpus"] for arrow in arrows}:
        own = [arrow for arrow in arrows if arrow["cpus"] == box]
        for place, arrow in enumerate(own, 1):
            arrow["to"] = box * pitch + (pitch - GAP) * place / (len(own) + 1)


def _box(x: float, x2: float, y: float, y2: float, color: str) -> Row:
    return {"x": x, "x2": x2, "y": y, "y2": y2, "color": color}


def _x(field_name: str) -> alt.X:
    return alt.X(f"{field_name}:Q", scale=alt.Scale(domain=[0, 1]), axis=None)


def _y(field_name: str) -> alt.Y:
    return alt.Y(f"{field_name}:Q", scale=alt.Scale(reverse=True, zero=False, nice=False),
                 axis=None)  # fmt: skip


_COLOR = alt.Color("color:N", scale=None)


def _boxes(boxes: list[Row]) -> alt.Chart:
    base = alt.Chart(alt.Data(values=boxes))
    return base.mark_rect(cornerRadius=8, fillOpacity=0.16, strokeOpacity=0.8).encode(
        x=_x("x"), x2=alt.X2("x2:Q"), y=_y("y"), y2=alt.Y2("y2:Q"), color=_COLOR,
        stroke=alt.Stroke("color:N", scale=None),
    )  # fmt: skip


def _arrows(arrows: list[Row]) -> list[alt.Chart]:
    if not arrows:
        return []
    most = max(arrow["rate"] or 0 for arrow in arrows) or 1
    tip, third = CPUS_END + 0.02, (MEMORY_START - CPUS_END) / 3
    points = []
    for arrow in arrows:
        arrow["share"] = (arrow["rate"] or 0) / most
        # A spline from end to end, horizontal at both.
        for place, x in enumerate((MEMORY_START, MEMORY_START - third, tip + third, tip)):
            y = arrow["from"] if place < 2 else arrow["to"]
            points.append(arrow | {"x": x, "y": y, "place": place})
    wide = alt.Scale(domain=[0, 1], range=[1.5, 12])
    curves = (
        alt.Chart(alt.Data(values=points))
        .mark_line(interpolate="basis", opacity=0.75)
        .encode(
            x=_x("x"), y=_y("y"), color=_COLOR, detail=alt.Detail("link:N"),
            order=alt.Order("place:Q"),
            strokeWidth=alt.StrokeWidth("share:Q", scale=wide, legend=None),
            strokeDash=alt.condition("datum.rate > 0", alt.value([1, 0]), alt.value([3, 4])),
            tooltip=alt.Tooltip("words:N", title="from the memory to the CPUs"),
        )
    )  # fmt: skip
    heads = (
        alt.Chart(alt.Data(values=[point for point in points if point["place"] == 3]))
        .mark_point(shape="triangle-left", filled=True, opacity=1)
        .encode(
            x=_x("x"), y=_y("y"), color=_COLOR,
            size=alt.Size("share:Q", scale=alt.Scale(domain=[0, 1], range=[60, 500]), legend=None),
        )
    )  # fmt: skip
    return [curves, heads]


def _text(texts: list[Row], align: Any, size: int = 11, weight: Any = "normal") -> alt.Chart:
    margin = 10 if align == "left" else -10
    mark = alt.Chart(alt.Data(values=texts)).mark_text(
        align=align, dx=margin, fontSize=size, fontWeight=weight, color=INK
    )
    return mark.encode(x=_x("x"), y=_y("y"), text=alt.Text("text:N"))
