# SPDX-License-Identifier: Apache-2.0
"""Predictions as rows, as a document, and as a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import shorten
from typing import Any

from headrace._cli import output
from headrace._format import prose, time_text
from headrace_bench.predict.target import Binding, Estimate, Target


@dataclass(frozen=True)
class Row:
    """One placement. The first value decides the order: times ascend, rates descend."""

    placement: str
    values: Mapping[str, Estimate | None]  #: by column; None: not predicted
    binds: Binding
    given: bool = False  #: the placement that was asked for
    note: str = ""
    point: Mapping[str, str] = field(default_factory=dict)  #: of a sweep, as it was written


@dataclass(frozen=True)
class Column:
    name: str
    unit: str  #: "s", "B/s", "/s" (operations), "ns", "x" (a quotient)

    def text(self, estimate: Estimate | None) -> str:
        return "-" if estimate is None else _UNITS[self.unit](estimate.value)


_UNITS: Mapping[str, Callable[[float], str]] = {
    "s": lambda value: time_text(value * 1e9),
    "B/s": lambda value: f"{value / 1e9:.4g}",
    "/s": lambda value: f"{float(f'{value:.4g}'):,.0f}",
    "ns": lambda value: f"{value:.0f}",
    "x": lambda value: f"{value:.3f}",
}
_HEADS = {"s": "", "B/s": " GB/s", "/s": " /s", "ns": " ns", "x": ""}


def in_order(rows: Sequence[Row], columns: Sequence[Column]) -> list[Row]:
    """Points of a sweep as they were given, and within each the fastest first."""
    key = columns[0]
    sign = 1 if key.unit in ("s", "x") else -1
    points = list(dict.fromkeys(tuple(row.point.items()) for row in rows))

    def order(row: Row) -> tuple[int, float]:
        value = row.values.get(key.name)
        place = points.index(tuple(row.point.items()))
        return place, float("inf") if value is None else sign * value.value

    return sorted(rows, key=order)


def document(
    workload: str, target: Target, settings: Mapping[str, Any], rows: Sequence[Row],
    columns: Sequence[Column], detail: str,
) -> dict[str, Any]:  # fmt: skip
    """The same settings give the same bytes: there is no date."""
    return {
        **output.head(f"predict {workload}"),
        "basis": "modelled",
        "rests_on": {"level": "model", "detail": detail},
        "machine": target.name,
        "bound": target.bound,
        "settings": dict(settings),
        "columns": [{"name": each.name, "unit": each.unit} for each in columns],
        "rows": [_row(row) for row in in_order(rows, columns)],
        "constants": target.constants(),
    }


def _row(row: Row) -> dict[str, Any]:
    return {
        **({"point": dict(row.point)} if row.point else {}),
        "placement": row.placement,
        "given": row.given,
        "values": {
            name: None if each is None else _figures(each) for name, each in row.values.items()
        },
        "binds": row.binds.name,
        **({"note": row.note} if row.note else {}),
    }


def _figures(each: Estimate) -> dict[str, float]:
    return {"value": each.value, "low": each.low, "high": each.high}


def show(
    target: Target, rows: Sequence[Row], columns: Sequence[Column], detail: str
) -> None:  # fmt: skip
    """The table, what binds in it, and on what it rests."""
    rows = in_order(rows, columns)
    binds = list(dict.fromkeys(row.binds.name for row in rows))
    axes = list(dict.fromkeys(name for row in rows for name in row.point))
    heads = [*axes, "placement", *_headings(columns), "+-", "by"]
    lines = []
    for row in rows:
        mark = "> " if row.given else "  "
        lines.append((
            *(row.point.get(name, "") for name in axes),
            mark + row.placement,
            *(each.text(row.values.get(each.name)) for each in columns),
            _width(row.values.get(columns[0].name)),
            f"[{binds.index(row.binds.name) + 1}]",
        ))  # fmt: skip
    output.print_table(heads, lines, left=len(axes) + 1)
    output.print_text("")
    for number, name in enumerate(binds):
        binding = next(row.binds for row in rows if row.binds.name == name)
        output.print_text(prose(f"[{number + 1}] {_limit(binding)}", "    "))
    for note in dict.fromkeys(row.note for row in rows if row.note):
        output.print_text(prose(note))
    output.print_text("\n" + prose(detail))


def _headings(columns: Sequence[Column]) -> list[str]:
    """Names with their units, which a column takes from the one before."""
    units = [each.unit for each in columns]
    return [
        each.name + ("" if i and units[i - 1] == each.unit else _HEADS[each.unit])
        for i, each in enumerate(columns)
    ]


def _width(estimate: Estimate | None) -> str:
    if estimate is None or not estimate.value:
        return "-"
    half = (estimate.high - estimate.low) / 2 / estimate.value
    return f"{half:.0%}"


def _limit(binding: Binding) -> str:
    fitted = f"; fitted to {', '.join(binding.fitted_to)}" if binding.fitted_to else ""
    source = f": {shorten(binding.source, 110, placeholder=' ...')}" if binding.source else ""
    return f"{binding.name} ({binding.basis}{source}{fitted})" if binding.basis else binding.name
