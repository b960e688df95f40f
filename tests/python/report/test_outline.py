# SPDX-License-Identifier: Apache-2.0
"""All that the report of each kind of document shows, as text: figures with their sentences, charts
with their lines and bars, tables. The golden files are in tests/golden/report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import profile_documents
import pytest
import report_documents
from conftest import Golden

import headrace
from headrace._report import contents
from headrace._report.charts import specification
from headrace._report.figure import Figure

Document = dict[str, Any]


def emulated_gpu() -> Document:
    figure = {"published": None, "measured": 2.0}
    return {
        "schema_version": 1, "kind": "bench um", "basis": "emulated", "emulated": True, "rows": [],
        "published": [], "machines": [{"name": "here", "words": "a GPU"}],
        "cases": [{"machine": "here", "case": "managed", "size": 1 << 20, "reason": None,
                   "source": None, "first": figure, "steady": figure}],
    }  # fmt: skip


DOCUMENTS: dict[str, Callable[[], Document]] = {
    "profile": profile_documents.profile,
    "profile_large": profile_documents.large_profile,
    "profile_movements": profile_documents.large_movements,
    "profile_mixes": lambda: profile_documents.machine() | {
        "conditions": {}, "rows": list(profile_documents.family(profile_documents.Maker(7)))},
    **{f"published_{name.replace('-', '_')}": headrace.Profile.load(name).asdict
       for name in ("cxl-a1000", "gh200", "h100", "xeon-max")},
    "demo": report_documents.whole,
    "kv": report_documents.kv,
    "kvcache": report_documents.kvcache,
    "kvcache_interrupted": lambda: report_documents.kvcache() | {
        "rows": [], "rates": {}, "hides": {}},
    "layer": report_documents.layer,
    "layer_interrupted": lambda: report_documents.layer() | {"rows": [], "engines": []},
    "stream": lambda: report_documents.stream([4]),
    "stream_sweep": lambda: report_documents.stream([1, 2, 4, 12]),
    "stream_interrupted": lambda: report_documents.stream([4], rate=0),
    "um_emulated": emulated_gpu,
}  # fmt: skip


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_report_shows_what_it_did(golden: Golden, name: str) -> None:
    content = contents.content_of(DOCUMENTS[name]())
    facts = [": ".join(fact) for fact in content.facts]
    head = [content.title, content.lead, *content.basis, *facts, *content.warnings, content.footer]
    told = [*filter(None, head), *(line for each in content.figures for line in outline(each))]
    golden(f"report/{name}.txt", "\n".join(told) + "\n")


def outline(figure: Figure) -> Iterator[str]:
    yield from ("", f"## {figure.title}", *filter(None, [figure.caption, figure.missing]))
    for heading, chart in figure.charts:
        yield f"* {heading or 'a chart'}"
        yield from (f"    {line}" for line in drawn(specification(chart)))
    for table in figure.tables:
        yield f"* table of {len(table.rows)}: {' | '.join(table.head)}"
        few = table.rows if len(table.rows) <= 30 else table.rows[:3]
        yield from (f"    {' | '.join(row)}" for row in few)
    yield from (f"- {item}" for item in figure.items)
    yield from (f"! {text}" for _, text in figure.remarks)


def drawn(chart: Document) -> Iterator[str]:
    """A line for each line, bar, lane or row of cells, and for what lies across them."""
    views = [chart, *chart.get("layer", [])]
    titles = [each.get("title") for view in views for name, each in view.get("encoding", {}).items()
              if name in ("x", "y") and isinstance(each, dict)]  # fmt: skip
    yield " by ".join(dict.fromkeys(title for title in titles if title))
    for values in (view["data"]["values"] for view in views if view.get("data")):
        yield from rows_of(values)


def rows_of(values: list[Document]) -> Iterator[str]:
    if not values:
        return
    first = values[0]
    if "shade" in first and "column" in first:  # a heat map
        for row in dict.fromkeys(cell["row"] for cell in values):
            yield f"{row}: {' '.join(c['text'] for c in values if c['row'] == row)}"
    elif "bar" in first:
        for each in values:
            bound = f", bound {each['bound']:.4g}" if each.get("bound") else ""
            yield f"{each['bar']!r} {each.get('line', '')}: {each['text']}{bound}"
    elif "line" in first:
        for line in dict.fromkeys(each["line"] for each in values):
            own = [each for each in values if each["line"] == line]
            ends = [each.get("text", f"{each['y']:.4g}") for each in (own[0], own[-1])]
            shade = f", shade {own[0]['shade']:.4g}" if "shade" in own[0] else ""
            label = shade + "".join(f", {each['label']}" for each in own if "label" in each)
            yield f"{line}: {len(own)} points, {own[0]['x']:.4g} to {own[-1]['x']:.4g}, " \
                f"{' to '.join(ends)}{label}"  # fmt: skip
    elif "text" in first or "words" in first:
        yield from dict.fromkeys(str(each.get("text", each.get("words"))) for each in values)
    else:
        kept = [f"{each:.4g}" if isinstance(each, float) else str(each)
                for name, each in first.items() if name in ("x", "y", "mode", "floor")]  # fmt: skip
        yield f"{len(values)} more, the first at {', '.join(kept)}"
