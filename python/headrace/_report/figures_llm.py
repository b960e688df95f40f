# SPDX-License-Identifier: Apache-2.0
"""Figures of `headrace bench kvcache` and of `headrace bench layer`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace._core import format_bytes, format_rate
from headrace._format import plural
from headrace._profile.documents import Fields
from headrace._profile.nested import rows_of
from headrace._report import charts
from headrace._report.figure import Figure, Table
from headrace._report.rows import bars_are

Row = dict[str, Any]


def kvcache_figures(document: Row) -> list[Figure]:
    policies = [_overlap(row) for row in rows_of(document, "kvcache")]
    figures = [_stalls(document, policies), _hidden(document, policies)]
    loads, beside = (rows_of(document, name)
                     for name in ("kvcache_load", "kvcache_interference"))  # fmt: skip
    if loads or beside:
        figures.append(_loads(loads, beside))
    return figures


def _overlap(row: Fields) -> Fields:
    made = Fields(row, stall_p50_ms=row["median"])
    for part in ("", "_where_it_can"):
        if (waited := row[f"waited_of_alone{part}"]) is not None:
            made[f"hidden_of_alone{part}"] = 1 - waited
    return made


def _line(row: Row) -> str:
    return str(row.get("store") or row["basis"])


def _stalls(document: Row, policies: Sequence[Fields]) -> Figure:
    title = "What a layer waits for cached blocks"
    rows = [row for row in policies if row["stall_p50_ms"] is not None]
    if not rows:
        return Figure(title, missing="No request had cached blocks after the first that had.")
    figure = Figure(title, _scale(document) + _noise(policies), tables=[_policies(policies)])
    for name, heading in (("stall_p50_ms", "p50 of the requests"), ("stall_p99_ms", "p99")):
        points = [
            {"bar": row["policy"], "line": _line(row), "x": 1e6 * row[name],
             "text": f"{row[name]:.3g} ms"}
            for row in rows if row[name]
        ]  # fmt: skip
        if points:
            chart = charts.times(points, title="time, logarithmic")
            figure.charts.append((heading, chart))
    return figure


def _scale(document: Row) -> str:
    words = (
        f"{document['model']}, blocks of {document['block_tokens']} tokens "
        f"({format_bytes(document['block_bytes'])}). recompute waits for them to be computed again."
    )
    if (scale := document.get("scale")) is not None:
        words += (
            f" Scaled down: {scale['requests']} of {scale['of_requests']} requests, "
            f"{scale['work']:.2%} of a layer's work."
        )
    return words


def _noise(rows: Sequence[Row]) -> str:
    noisy = sum("noisy" in row.get("flags", []) for row in rows)
    if not noisy:
        return ""
    return f" {noisy} of {plural(len(rows), 'row')} are noisy: what differs there may be chance."


def _policies(rows: Sequence[Row]) -> Table:
    head = ["policy", "store", "requests", "hits", "p50, ms", "p99, ms", "overlapped", "of peak",
            ""]  # fmt: skip
    lines = [
        [row["policy"], _line(row), f"{row['with_cached']:.0f}",
         ", ".join(f"{name} {share:.1%}" for name, share in row["hit_rate"].items()),
         *(_text(row[name], "{:.3g}") for name in ("stall_p50_ms", "stall_p99_ms")),
         *(_text(row[name], "{:.0%}") for name in ("hidden_share", "roofline_share")),
         " ".join(row.get("flags", []))]
        for row in rows
    ]  # fmt: skip
    return Table(head, lines, words=("policy", "store", "hits", ""))


def _hidden(document: Row, policies: Sequence[Fields]) -> Figure:
    title = "Share of load time overlapped with computation"
    bars = [
        _bar(f"{row['policy']}\n{words}", _line(row), 100 * row[name], "{:.0f} %")
        for name, words in (
            ("hidden_of_alone", "all requests"),
            ("hidden_of_alone_where_it_can", "overlappable requests"),
        )
        for row in policies if row[name] is not None
    ]  # fmt: skip
    if not bars:
        why = "No policy loads first, so what loads take alone is not known."
        loaded = any(row["hidden_share"] is not None for row in policies)
        return Figure(title, missing=why if loaded else "Nothing was loaded.")
    hides = [f"from {name} behind {tokens:.0f} new ones"
             for name, tokens in document["hides"].items()]  # fmt: skip
    caption = f"8192 cached tokens hide {', '.join(hides)} or more." if hides else ""
    return Figure(title, caption, [("", charts.bars(bars, title="%"))])


def _loads(loads: Sequence[Fields], beside: Sequence[Fields]) -> Figure:
    caption = "Medians." + bars_are(row["interval"] for row in loads)
    figure = Figure("Loads from disk, and who slows whom", caption)
    bars = [
        {"bar": row["store"], "line": row["tier"], "text": format_rate(row["median"]),
         "y": row["median"] / 1e9, "low": row["low"] / 1e9, "high": row["high"] / 1e9}
        for row in loads if row["median"]
    ]  # fmt: skip
    if bars:
        figure.charts.append(("loads of blocks", charts.bars(bars, title="GB/s")))
    bars = [
        _bar(f"{row['of']} beside {row['beside']}", "", 100 * row["median"], "{:.0f} %")
        for row in beside if row["median"]
    ]  # fmt: skip
    if bars:
        figure.charts.append(("of the speed alone", charts.bars(bars, title="%")))
    if not figure.charts:
        figure.missing = "Interrupted before anything of it was measured."
    return figure


def layer_figures(document: Row) -> list[Figure]:
    figures = [_layer(document)]
    if document["engines"]:
        figures.append(_engines(document["engines"]))
    return figures


def _layer(document: Row) -> Figure:
    title = "Milliseconds of a layer while it decodes"
    rows = [row for row in rows_of(document, "layer") if row["median"] is not None]
    if not rows:
        return Figure(title, missing="Interrupted before a layer was measured.")
    needs = document["claim_needs_bytes_per_second"]
    caption = (
        f"{document['model']}, batch {document['batch']}, context {document['context']}: "
        f"{format_bytes(document['weight_bytes'])} of weights ({document['dtype']}) and "
        f"{format_bytes(document['kv_bytes'])} of keys and values are read for each layer. Less "
        f"than 1 ms, as is often said, takes more than {format_rate(needs)}."
        + bars_are(row["interval"] for row in rows if row["basis"] != "modelled")
    )
    return Figure(title, caption, [("", charts.bars([_layer_bar(row) for row in rows],
                                                    title="ms"))])  # fmt: skip


def _layer_bar(row: Fields) -> Row:
    rate = format_rate(row["bytes_per_second"])
    where = f"{row['on']}\n{rate}" if row["basis"] == "measured" else rate
    found = _bar(where, row["basis"], row["median"], "{:.3g} ms")
    return found | {"low": row["low"], "high": row["high"]}


def _engines(rows: Sequence[Row]) -> Figure:
    title = "What engines can move into this memory meanwhile"
    bars = [_bar(row["engine"], "", row["bytes"] / 1e6, "{:.3g} MB")
            for row in rows if row.get("bytes") is not None]  # fmt: skip
    reasons = [f"{row['engine']}: {row['reason'] or row['source']}"
               for row in rows if row["reason"] or row.get("source", "this run") != "this run"]
    if not bars:
        return Figure(title, missing="; ".join(reasons) or "No engine has a rate.")
    caption = (
        f"While a layer may take {rows[0]['target_ms']:.2f} ms; cores move when it is done, others "
        "all the time."
    )
    return Figure(title, caption, [("", charts.bars(bars, title="MB per layer"))], items=reasons)


def _bar(bar: str, line: str, y: float, text: str) -> Row:
    return {"bar": bar, "line": line, "y": y, "low": y, "high": y, "text": text.format(y)}


def _text(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
