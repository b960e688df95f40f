# SPDX-License-Identifier: Apache-2.0
"""The page and the picture of a report. Jinja2 makes the page, Altair the picture."""

from __future__ import annotations

import json
import re
import textwrap
from dataclasses import dataclass
from typing import Any

import altair as alt
import jinja2

from headrace import _isolated_calls
from headrace._format import BIDI
from headrace._report import libraries
from headrace._report.charts import INK, Picture, specification, stacked
from headrace._report.figure import Figure

#: Width of a chart in the picture, and the scale of its pixels: sharp on paper.
PNG_WIDTH, PNG_SCALE = 900, 2
#: Letters of a line under a heading of the picture.
_COLUMNS = 130
#: Control characters and UTF-16 surrogates, which HTML and XML do not allow, and characters that
#: change the direction of text.
_UNPRINTABLE = re.compile(
    f"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff{BIDI}]"
)


@dataclass
class Content:
    """The text that the template shows."""

    title: str
    lead: str
    basis: list[str]
    facts: list[tuple[str, str]]
    figures: list[Figure]
    warnings: list[str]
    footer: str


def printable(value: Any) -> Any:
    """The JSON value, with strings that are safe in a page and in a picture."""
    if isinstance(value, str):
        return _UNPRINTABLE.sub("\ufffd", value)
    if isinstance(value, list):
        return [printable(item) for item in value]
    if isinstance(value, dict):
        return {printable(key): printable(item) for key, item in value.items()}
    return value


def rendered(content: Content) -> str:
    """The page as one HTML file that needs no other."""
    charts: dict[str, Any] = {}
    for figure in content.figures:
        for _, chart in figure.charts:
            charts[f"figure{len(charts) + 1}"] = specification(chart)
    names = iter(charts)
    places = [[(heading, next(names)) for heading, _ in f.charts] for f in content.figures]
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("headrace", "_report"), autoescape=True,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    template = environment.get_template("page.html")
    script = libraries.script()
    return template.render(vars(content), places=places, charts=charts, libraries=script)


def picture(content: Content) -> bytes:
    """All figures below each other on white, as PNG."""
    basis = [line for text in (content.lead, *content.basis) for line in _wrapped(text)]
    title = alt.Title(content.title, subtitle=basis, fontSize=26, subtitleFontSize=14, offset=24)
    figures = [_sheet(f) for f in content.figures if f.charts or f.missing or f.caption]
    whole = stacked(figures, spacing=44, title=title, background="#ffffff", padding=36)
    specified, longest = json.dumps(specification(whole)), libraries.LONGEST_SECONDS
    return _isolated_calls.call(libraries.WRITER, _png, specified, seconds=longest)


def _sheet(figure: Figure) -> Picture:
    """The figure with its headings as titles."""
    charts = [
        chart.properties(width=PNG_WIDTH, title=alt.Title(heading, fontSize=14, offset=8))
        for heading, chart in figure.charts
    ]
    nothing = alt.Chart(alt.Data(values=[])).mark_point().properties(width=PNG_WIDTH, height=1)
    title = alt.Title(
        figure.title, subtitle=_wrapped(figure.missing or figure.caption), fontSize=19,
        subtitleFontSize=13, offset=14,
    )  # fmt: skip
    return stacked(charts or [nothing], spacing=24, title=title)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _COLUMNS)


def _png(chart: str) -> bytes:
    import vl_convert

    svg = vl_convert.vegalite_to_svg(chart.replace(INK, "#1b2129"))
    return vl_convert.svg_to_png(svg, scale=PNG_SCALE)
