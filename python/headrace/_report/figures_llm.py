# SPDX-License-Identifier: Apache-2.0
"""Figures of `headrace bench kvcache` and of `headrace bench layer`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace._format import plural, rate_text, size_text
from headrace._report import charts
from headrace._report.figure import Figure, Table

Row = dict[str, Any]


def kvcache_figures(document: Row) -> list[Figure]:
    figures = [_stalls(document), _hidden(document)]
    if document["loads"] or document["interference"]:
        figures.append(_loads(document))
    return figures


def _line(row: Row) -> str:
    return str(row.get("store") or row["basis"])


def _stalls(document: Row) -> Figure:
    title = "What a layer waits for cached blocks"
    rows = [row for row in document["rows"] if row["stall_p50_ms"] is not None]
    if not rows:
        return Figure(title, missing="No request had cached blocks after the first that had.")
    figure = Figure(title, _scale(document), tables=[_policies(document["rows"])])
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
        f"({size_text(document['block_bytes'])}). recompute waits for them to be computed again."
    )
    if (scale := document["scale"]) is not None:
        words += (
            f" Scaled down: {scale['requests']} of {scale['of_requests']} requests, "
            f"{scale['work']:.2%} of a layer's work."
        )
    return words + _noise(document["rows"])


def _noise(rows: Sequence[Row]) -> str:
    noisy = sum("noisy" in row.get("flags", []) for row in rows)
    if not noisy:
        return ""
    return f" {noisy} of {plural(len(rows), 'row')} are noisy: what differs there may be chance."


def _policies(rows: Sequence[Row]) -> Table:
    head = ["policy", "store", "requests", "hits", "p50, ms", "p99, ms", "overlapped", "of peak",
            ""]  # fmt: skip
    lines = [
        [row["policy"], _line(row), str(row["with_cached"]),
         ", ".join(f"{name} {share:.1%}" for name, share in row["hit_rate"].items()),
         *(_text(row[name], "{:.3g}") for name in ("stall_p50_ms", "stall_p99_ms")),
         *(_text(row[name], "{:.0%}") for name in ("hidden_share", "roofline_share")),
         " ".join(row.get("flags", []))]
        for row in rows
    ]  # fmt: skip
    return Table(head, lines, words=("policy", "store", "hits", ""))


def _hidden(document: Row) -> Figure:
    title = "Share of load time overlapped with computation"
    bars = [
        _bar(f"{row['policy']}\n{words}", _line(row), 100 * row[name], "{:.0f} %")
        for name, words in (
            ("hidden_of_alone", "all requests"),
            ("hidden_of_alone_where_it_can", "overlappable requests"),
        )
        for row in document["rows"] if row.get(name) is not None
    ]  # fmt: skip
    if not bars:
        why = "No policy loads first, so what loads take alone is not known."
        loaded = any(row["hidden_share"] is not None for row in document["rows"])
        return Figure(title, missing=why if loaded else "Nothing was loaded.")
    hides = [f"from {name} behind {tokens:.0f} new ones"
             for name, tokens in document["hides"].items()]  # fmt: skip
    caption = f"8192 cached tokens hide {', '.join(hides)} or more." if hides else ""
    return Figure(title, caption, [("", charts.bars(bars, title="%"))])


def _loads(document: Row) -> Figure:
    figure = Figure("Loads from disk, and who slows whom", "Medians, stores in turn.")
    bars = [
        _bar(row["store"], row["tier"], row["bytes_per_second"] / 1e9, "{:.3g} GB/s",
             [each / 1e9 for each in row["samples"]])
        for row in document["loads"] if row["bytes_per_second"]
    ]  # fmt: skip
    if bars:
        figure.charts.append(
            ("loads of blocks, least to most", charts.bars(bars, title="GB/s"))
        )
    bars = [
        _bar(f"{row['of']} beside {row['beside']}", "", 100 * row["ratio"], "{:.0f} %")
        for row in document["interference"] if row["ratio"]
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
    rows = [row for row in document["rows"] if row["ms_per_layer"] is not None]
    if not rows:
        return Figure(title, missing="Interrupted before a layer was measured.")
    needs = document["claim_needs_bytes_per_second"]
    caption = (
        f"{document['model']}, batch {document['batch']}, context {document['context']}: "
        f"{size_text(document['weight_bytes'])} of weights ({document['dtype']}) and "
        f"{size_text(document['kv_bytes'])} of keys and values are read for each layer. Less than "
        f"1 ms, as is often said, takes more than {rate_text(needs)}."
    )
    return Figure(title, caption, [("", charts.bars([_layer_bar(row) for row in rows],
                                                    title="ms"))])  # fmt: skip


def _layer_bar(row: Row) -> Row:
    rate = rate_text(row["bytes_per_second"])
    where = f"{row['on']}\n{rate}" if row["basis"] == "measured" else rate
    found = _bar(where, row["basis"], row["ms_per_layer"], "{:.3g} ms")
    spread = row.get("ms_mad") or 0.0
    return found | {"low": found["y"] - spread, "high": found["y"] + spread}


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


def _bar(
    bar: str, line: str, y: float, text: str, spread: Sequence[float] = ()
) -> Row:  # fmt: skip
    low, high = (function(spread or [y]) for function in (min, max))
    return {"bar": bar, "line": line, "y": y, "low": low, "high": high, "text": text.format(y)}


def _text(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
