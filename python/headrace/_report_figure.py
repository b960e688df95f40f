"""A figure of the report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Figure:
    """Pictures and the sentence under them: Vega-Lite specifications or a ready SVG."""

    title: str
    caption: str
    charts: list[tuple[str, Any]] = field(default_factory=list)  # (heading, Altair chart)
    svg: tuple[str, float, float] | None = None
    table: str = ""
    missing: str = ""  # instead of all of these
