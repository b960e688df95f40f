# SPDX-License-Identifier: Apache-2.0
"""Figures of `headrace bench query`: fetching and computing over time, and every mode."""

from __future__ import annotations

import statistics
from typing import Any

from headrace._core import format_bytes
from headrace._format import efficiency, elapsed, interval_text, listed, percent, plural
from headrace._profile.documents import Fields, all_fields, find
from headrace._report import charts_query as charts
from headrace._report.figure import Figure, Table

Row = dict[str, Any]

MODE_WORDS = {
    "resident": "all columns already in fast memory: the bound",
    "direct": "each block read when it is needed",
    "mmap": "files mapped; the operating system reads ahead",
    "prefetch": "Headrace: blocks fetched ahead by the query's plan",
    "duckdb": "the peer, on the same rows from Parquet",
}


def timeline_figures(query: Row | None) -> list[Figure]:
    """Whole runs on one time axis, and a close-up with a lane per column."""
    title = "Fetching and computing, at the same time or in turn"
    runs = (query or {}).get("timeline") or {}
    shown = {mode: runs[mode] for mode in ("direct", "prefetch") if mode in runs}
    if query is None or not shown:
        return [Figure(title, missing="No query was run; `headrace bench query` does.")]
    whole = Figure(title, _timeline_caption(query, shown))
    whole.charts.append(("", charts.overview(shown)))
    end = charts.close_up_end(shown)
    title = f"The first {elapsed(end)} of it, block by block"
    closer = Figure(title, _close_up_caption(shown, end))
    for mode, run in shown.items():
        chart = charts.timeline(run, end * 1e3, last=mode == list(shown)[-1] and len(shown) > 1)
        closer.charts.append((f"{mode}: {MODE_WORDS[mode]}", chart))
    return [whole, closer]


def _close_up_caption(runs: Row, end: float) -> str:
    done = {
        mode: len({b["chunk"] for b in run["blocks"] if b["use_end"] <= end})
        for mode, run in runs.items()
    }
    counts = listed([f"{mode} has used blocks of {plural(n, 'chunk')}" for mode, n in done.items()])
    return (
        "One lane per column: above, when a block was in flight, with a mark where it arrived; "
        f"below, when the pipeline waited for it and used it. By the end of this picture {counts}."
    )


def _timeline_caption(query: Row, runs: Row) -> str:
    sentences = []
    for mode in ("direct", "prefetch"):
        run = runs.get(mode)
        if run is None:
            continue
        waited = sum(b["wait_end"] - b["wait_start"] for b in run["blocks"])
        share = waited / (run["seconds"] * query["threads"]) if run["seconds"] else 0
        busy = _busy_share(run)
        who = {"direct": "Reading each block when it was needed, the pipeline",
               "prefetch": "With its plan known to the cache it"}[mode]  # fmt: skip
        sentences.append(
            f"{who} took {elapsed(run['seconds'])} and spent {percent(share)} of it waiting"
            + (f"; blocks were in flight {percent(busy)} of the time." if busy else ".")
        )
    if "prefetch" in runs:
        ahead = _median_ahead(runs["prefetch"])
        if ahead is not None and ahead > 0:
            sentences.append(
                f"Half of the blocks were there {elapsed(ahead)} or more before they were needed."
            )
    return " ".join(sentences)


def _busy_share(run: Row) -> float | None:
    """The share of the run in which at least one fetch was in flight."""
    spans = sorted(
        (b["fetch_start"], b["fetch_end"])
        for b in run["blocks"]
        if b["fetch_start"] is not None and b["fetch_end"] is not None
    )
    busy, reached = 0.0, 0.0
    for start, end in spans:
        busy += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return min(1.0, busy / run["seconds"]) if spans and run["seconds"] else None


def _median_ahead(run: Row) -> float | None:
    ahead = [b["wait_start"] - b["fetch_end"] for b in run["blocks"] if b["fetch_end"] is not None]
    return statistics.median(ahead) if ahead else None


def modes_figure(query: Row | None) -> Figure:
    title = "The query in every mode"
    rows = mode_rows(query)
    if query is None or not rows:
        return Figure(title, missing="No mode was measured; `headrace bench query` does.")
    floors = [
        {"floor": f"floor: {name}", "ms": seconds * 1e3}
        for name, seconds in _floors(query).items() if seconds
    ]  # fmt: skip
    chart = charts.modes(rows, floors)
    return Figure(
        title, _modes_caption(query, rows), [("", chart)], [_modes_table(query)],
        remarks=_answer_remarks(query),
    )  # fmt: skip


def _floors(query: Row) -> dict[str, float | None]:
    """Seconds of the transfer alone and of the computation alone."""
    return {"transfer": find(query, mode="floor")["median"],
            "compute": find(query, mode="resident")["median"]}  # fmt: skip


def _modes(query: Row) -> list[Fields]:
    rows = (row for row in all_fields(query) if row["experiment"] == "query")
    return [row for row in rows if row["mode"] != "floor"]


def mode_rows(query: Row | None) -> list[Fields]:
    return [row for row in _modes(query) if row["median"] is not None] if query else []


def overlap_text(query: Row | None) -> str:
    """The sentence on overlap efficiency; empty if it is unknown."""
    overlap = find(query, experiment="overlap")["median"] if query else None
    return "" if overlap is None else efficiency(overlap)


def _modes_caption(query: Row, rows: list[Fields]) -> str:
    times = {row["mode"]: row["median"] for row in rows}
    transfer, compute = _floors(query).values()
    sentences = []
    if transfer and compute:
        sentences.append(
            f"Moving the {format_bytes(query['bytes'])} alone takes {elapsed(transfer)} and "
            f"computing alone {elapsed(compute)} (dashed lines): one after the other they would "
            f"take {elapsed(transfer + compute)}; a complete overlap takes the larger of the two."
        )
    if "prefetch" in times and overlap_text(query):
        others = [
            f"{mode} {times[mode] / times['prefetch']:.2f} ×"
            for mode in ("direct", "mmap", "duckdb")
            if mode in times
        ]
        sentences.append(
            f"Prefetching took {elapsed(times['prefetch'])}: overlap efficiency "
            f"{overlap_text(query)}, the larger of the two divided by the time with prefetching"
            + (f", {elapsed(max(transfer, compute))} / {elapsed(times['prefetch'])}"
               if transfer and compute else "")
            + " (computed for each run; the median is given)."
            + (f" The others took, as multiples of that: {listed(others)}." if others else "")
        )
    sentences.append(
        f"Bars are medians of interleaved runs on {plural(query['threads'], 'thread')}; each run "
        "is a tick."
    )
    return " ".join(sentences)


def _modes_table(query: Row) -> Table:
    floor = max(seconds or 0 for seconds in _floors(query).values())
    rows = []
    for row in _modes(query):
        mode, middle, cold = row["mode"], row["median"], row["cached_before_bytes"]
        if middle is None:
            rows.append([mode, f"not measured: {row['reason']}"])
            continue
        cached = "0, cold" if cold == 0 else "unknown" if cold is None else format_bytes(cold)
        rows.append([
            mode, elapsed(middle), interval_text(row, elapsed), str(len(row["samples"])),
            f"{middle / floor:.2f}" if floor else "",
            "in memory" if mode == "resident" else cached, MODE_WORDS.get(mode, ""),
        ])  # fmt: skip
    head = ["mode", "median", "interval", "runs", "× floor", "in page cache before", "what it is"]
    return Table(head, rows, words=("what it is",), strong="prefetch")


def _answer_remarks(query: Row) -> list[tuple[str, str]]:
    checked = {
        True: ("good", "Every run gave the same answer as DuckDB, exactly."),
        False: ("bad", "The answers differ from DuckDB’s: trust no number here."),
        None: ("", "The answer was not checked against DuckDB."),
    }
    remarks = [checked[query.get("answer_ok")]]
    if cache := query.get("cache"):
        remarks.append(("", (
            f"In the middle run the cache had {plural(cache['hits'], 'hit')}, "
            f"{plural(cache['inflight_hits'], 'hit')} on blocks in flight and "
            f"{plural(cache['misses'], 'miss', 'misses')}; {cache['late']} prefetched blocks were "
            f"late and {format_bytes(cache['wasted_bytes'])} were fetched in vain."
        )))  # fmt: skip
    return remarks
