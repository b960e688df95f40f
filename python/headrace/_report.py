"""The report: what was measured, as one page that opens anywhere and says what it rests on.

`build` takes one document, as the commands' ``--json`` write them: either that of
``headrace bench query`` alone, or one that holds several::

    {"machine": Machine.to_json(), "rates": [RateRow.asdict(), ...],
     "copy": {"rows": [CopyRow.asdict(), ...]}, "query": <headrace bench query>,
     "version": ..., "date": ..., "rests_on": {...}, "warnings": [...]}

Every part may be missing; its section then says which command measures it. Each figure has a
sentence under it that is made from the numbers it shows.
"""

from __future__ import annotations

import functools
import re
from html import escape
from pathlib import Path
from typing import Any

from headrace import _core
from headrace._report_figure import Figure as _Figure
from headrace._report_file import code_for_script, json_for_script, write_whole
from headrace._report_profile import profile_parts
from headrace._report_sources import sources_figures
from headrace._report_words import (
    efficiency, listed, megabytes, ms, percent, plural, rate_text, size_text, wrap,
)  # fmt: skip

Row = dict[str, Any]

#: Width of the figures in the PNG, and how many of its pixels stand for one: sharp on paper.
PNG_WIDTH, PNG_SCALE = 900, 2
PNG_MARGIN = 36
MODE_WORDS = {
    "resident": "all columns already in fast memory: the bound",
    "direct": "each block read when it is needed",
    "mmap": "files mapped; the operating system reads ahead",
    "prefetch": "Headrace: blocks fetched ahead by the query's plan",
    "duckdb": "the peer, on the same rows from Parquet",
}
BASIS_WORDS = {
    "real hardware": "speeds were measured on this machine",
    "guest": "a guest with a chosen topology, where placement is real and speeds are not",
    "model": "predicted by the simulator, not measured",
    "published": "published figures of another machine, not measured here",
}


def build(document: Row, html: Path, png: Path | None = None) -> None:
    """Writes the page to `html`, and its figures to `png` if given.

    Raises AbsentError without Altair, InvalidError for a document without anything to show, IoError
    or DeniedError when a file cannot be written.
    """
    _require_altair()
    parts = _parts(document)
    figures = [
        *_timeline_figures(parts),
        _modes_figure(parts),
        _machine_figure(parts),
        _rates_figure(parts),
        *_copy_figures(parts),
    ]
    if parts["profile"] is not None:
        from headrace._report_profile import profile_figures

        figures = profile_figures(parts["profile"], _machine_figure(parts))
        figures += sources_figures(parts["profile"])
    if document.get("kind") == "bench dsa":
        from headrace._figures_dsa import dsa_figures

        figures = dsa_figures(document)
    page = _page(parts, figures).encode()
    picture = _png(parts, figures) if png is not None else b""
    write_whole(html, page)
    if png is not None:
        write_whole(png, picture)


def _require_altair() -> None:
    try:
        import altair  # noqa: F401
        import vl_convert  # noqa: F401
    except ImportError as error:
        raise _core.AbsentError(
            f"no {error.name}; run: pip install 'headrace[report]'"
        ) from None


def _parts(document: Row) -> Row:
    """The document with its parts under fixed names, None or empty where missing."""
    query = document.get("query")
    if isinstance(query, str):  # the document of `headrace bench query` itself
        query = document
    copy = document.get("copy") or []
    if "nodes" in document:  # a machine, perhaps with rows
        document = profile_parts(document)
    parts = {
        "profile": document.get("profile"),
        "machine": document.get("machine") or (query or {}).get("machine"),
        "rates": document.get("rates") or [],
        "copy": copy["rows"] if isinstance(copy, dict) else copy,
        "query": query,
        "warnings": list(dict.fromkeys([*document.get("warnings", []),
                                        *(query or {}).get("warnings", [])])),
    }  # fmt: skip
    if not any((parts["machine"], parts["rates"], parts["copy"], query)):
        raise _core.InvalidError(
            "nothing to report: the document holds no machine, rates, copy or query part"
        )
    for name in ("version", "date", "rests_on"):
        parts[name] = document.get(name) or (query or {}).get(name)
    return parts


# ---- The query --------------------------------------------------------------------------------


def _timeline_figures(parts: Row) -> list[_Figure]:
    """The whole runs on one time axis, and a close-up with a lane per column."""
    from headrace import _charts

    title = "Fetching and computing, at the same time or in turn"
    runs = (parts["query"] or {}).get("timeline") or {}
    shown = {mode: runs[mode] for mode in ("direct", "prefetch") if mode in runs}
    if not shown:
        return [_Figure(title, "", missing="No query was run; `headrace bench query` does.")]
    whole = _Figure(title, _timeline_caption(parts["query"], shown))
    whole.charts.append(("", _charts.overview(shown)))
    end = _charts.close_up_end(shown)
    closer = _Figure(f"The first {ms(end)} of it, block by block", _close_up_caption(shown, end))
    for mode, run in shown.items():
        chart = _charts.timeline(run, end * 1e3, last=mode == list(shown)[-1] and len(shown) > 1)
        closer.charts.append((f"{mode}: {MODE_WORDS[mode]}", chart))
    return [whole, closer]


def _close_up_caption(runs: Row, end: float) -> str:
    done = {
        mode: len({b["chunk"] for b in run["blocks"] if b["use_end"] <= end})
        for mode, run in runs.items()
    }
    counts = listed([f"{mode} has used blocks of {plural(n, 'chunk')}" for mode, n in done.items()])
    return (
        "One lane per column: above, when a block was on its way, with a mark where it arrived; "
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
            f"{who} took {ms(run['seconds'])} and spent {percent(share)} of it waiting"
            + (f"; blocks were on their way {percent(busy)} of the time." if busy else ".")
        )
    if "prefetch" in runs:
        ahead = _median_ahead(runs["prefetch"])
        if ahead is not None and ahead > 0:
            sentences.append(
                f"Half of the blocks were there {ms(ahead)} or more before they were asked for."
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
    import statistics

    ahead = [b["wait_start"] - b["fetch_end"] for b in run["blocks"] if b["fetch_end"] is not None]
    return statistics.median(ahead) if ahead else None


def _modes_figure(parts: Row) -> _Figure:
    from headrace import _charts

    title = "The query in every mode"
    query = parts["query"]
    rows = _mode_rows(query)
    if not rows:
        return _Figure(title, "", missing="No mode was measured; `headrace bench query` does.")
    floors = [
        {"floor": f"floor: {name}", "ms": query["floor"][f"{name}_seconds"] * 1e3}
        for name in ("transfer", "compute")
        if query["floor"].get(f"{name}_seconds")
    ]
    chart = _charts.modes(rows, floors)
    return _Figure(title, _modes_caption(query, rows), [("", chart)], table=_modes_table(query))


def _mode_rows(query: Row | None) -> list[Row]:
    modes = (query or {}).get("modes", {})
    return [{"mode": n, **m} for n, m in modes.items() if m.get("seconds_median") is not None]


def _modes_caption(query: Row, rows: list[Row]) -> str:
    times = {row["mode"]: row["seconds_median"] for row in rows}
    transfer = query["floor"].get("transfer_seconds")
    compute = query["floor"].get("compute_seconds")
    sentences = []
    if transfer and compute:
        sentences.append(
            f"Moving the {megabytes(query['bytes'])} alone takes {ms(transfer)} and computing "
            f"alone {ms(compute)} (dashed lines): one after the other they would take "
            f"{ms(transfer + compute)}, and no overlap can take less than the larger."
        )
    if "prefetch" in times and query.get("overlap_efficiency"):
        others = [
            f"{mode} {times[mode] / times['prefetch']:.2f} ×"
            for mode in ("direct", "mmap", "duckdb")
            if mode in times
        ]
        sentences.append(
            f"Prefetching took {ms(times['prefetch'])}, which is {efficiency(query)} of the "
            "speed that the larger of the two allows."
            + (f" Of its time the others took: {listed(others)}." if others else "")
        )
    sentences.append(
        f"Bars are medians of interleaved runs on {plural(query['threads'], 'thread')}; each run "
        "is a tick."
    )
    return " ".join(sentences)


def _modes_table(query: Row) -> str:
    floor = max(
        (query["floor"].get(f"{n}_seconds") or 0 for n in ("transfer", "compute")), default=0
    )
    rows = []
    for mode, entry in query["modes"].items():
        words = MODE_WORDS.get(mode, "")
        middle = entry.get("seconds_median")
        if middle is None:
            reason = entry.get("reason", "not run")
            rows.append(
                f'<tr><td>{escape(mode)}</td><td class="words" colspan="5">not measured: '
                f"{escape(reason)}</td></tr>"
            )
            continue
        cold = entry.get("cached_before_bytes")
        cached = "0, cold" if cold == 0 else "unknown" if cold is None else megabytes(cold)
        if mode == "resident":
            cached = "in memory"
        cells = [
            ms(middle),
            f"± {ms(entry['seconds_mad'])}",
            str(entry["runs"]),
            f"{middle / floor:.2f}" if floor else "",
            cached,
        ]
        numbers = "".join(f"<td>{cell}</td>" for cell in cells)
        ours = ' class="ours"' if mode == "prefetch" else ""
        rows.append(
            f"<tr{ours}><td>{escape(mode)}</td>{numbers}"
            f'<td class="words what">{escape(words)}</td></tr>'
        )
    head = "".join(
        f"<th>{name}</th>"
        for name in ("mode", "median", "MAD", "runs", "× floor", "in page cache before")
    )
    return (
        f'<div class="scroll"><table><thead><tr>{head}<th class="words what">what it is</th></tr>'
        f"</thead><tbody>{''.join(rows)}</tbody></table></div>" + _answer_line(query)
    )


def _answer_line(query: Row) -> str:
    ok = query.get("answer_ok")
    verdict = {
        True: '<span class="good">Every run gave the same answer as DuckDB, exactly.</span>',
        False: '<span class="bad">The answers differ from DuckDB’s: trust no number here.</span>',
        None: "The answer was not checked against DuckDB.",
    }[ok]
    cache = query.get("cache")
    counts = ""
    if cache:
        counts = (
            f" In the middle run the cache had {plural(cache['hits'], 'hit')}, "
            f"{plural(cache['inflight_hits'], 'hit')} on blocks in flight and "
            f"{plural(cache['misses'], 'miss', 'misses')}; {cache['late']} prefetched blocks were "
            f"late and {megabytes(cache['wasted_bytes'])} were fetched in vain."
        )
    return f'<p class="soft">{verdict}{counts}</p>'


# ---- The machine ------------------------------------------------------------------------------


def _machine_figure(parts: Row) -> _Figure:
    from headrace import _charts_machine

    title = "The machine"
    machine = parts["machine"]
    if not machine or not machine.get("nodes"):
        return _Figure(title, "", missing="No machine in the document; `headrace topo` shows it.")
    kinds = [node["kind"] for node in machine["nodes"]]
    counted = [
        plural(kinds.count(kind), f"{_charts_machine.KIND_NAMES[kind]} node")
        for kind in _charts_machine.KIND_NAMES
        if kind in kinds
    ]
    caption = f"{machine['name']} has {listed(counted)}."
    measured = machine.get("copy_rates", [])
    if any(rate["from"] != rate["to"] for rate in measured):
        caption += " Beside the links: the best copy rate measured in each direction."
    else:
        caption += " Its links have not been measured."
    return _Figure(title, caption, svg=_charts_machine.machine_svg(machine))


def _rates_figure(parts: Row) -> _Figure:
    from headrace import _charts

    title = "How fast memory and disk are"
    rows = [row for row in parts["rates"] if row.get("bytes_per_second")]
    failed = [row for row in parts["rates"] if not row.get("bytes_per_second")]
    if not rows:
        reasons = "; ".join(f"{row['what']}: {row['reason']}" for row in failed)
        return _Figure(
            title, "", missing=f"Not measured{': ' + reasons if reasons else ''}; "
            "`headrace demo` looks at them briefly.",
        )  # fmt: skip
    disk = [row for row in rows if "disk" in row["what"]]
    memory = [row for row in rows if row not in disk]
    caption = ""
    if disk and memory:
        fast = max(memory, key=lambda row: row["bytes_per_second"])
        slow = max(disk, key=lambda row: row["bytes_per_second"])
        ratio = fast["bytes_per_second"] / slow["bytes_per_second"]
        caption = (
            f"The fastest memory row ({fast['what']}) is {ratio:.0f} × the fastest disk row: what "
            "comes from the disk has to be asked for early. "
        )
    caption += f"Medians; the spread (MAD) is at most {_worst_spread(rows)}."
    for row in failed:
        caption += f" {row['what']} has no number: {row['reason']}."
    return _Figure(title, caption, [("", _charts.bandwidths(rows))])


def _worst_spread(rows: list[Row]) -> str:
    return percent(max((row.get("spread") or 0 for row in rows), default=0))


def _copy_figures(parts: Row) -> list[_Figure]:
    from headrace import _charts

    title = "Copying with one core"
    rows = [
        row for row in parts["copy"]
        if row.get("ratio_to_memcpy") is not None and row.get("threads", 1) == 1
        and row["engine"] != "memcpy"
    ]  # fmt: skip
    if not rows:
        return [_Figure(title, "", missing="Not measured; `headrace bench copy` does.")]
    figure = _Figure(title, "")
    sentences = []
    meanings = {"cold": "neither side is cached", "hot": "the same buffers again and again"}
    for state, words in meanings.items():
        selected = [row for row in rows if row["state"] == state]
        if not selected:
            continue
        figure.charts.append(
            (f"{state}: {words}", _charts.copy_ratios(selected, title="bytes of one copy"))
        )
        sentences.append(_copy_sentence(state, selected))
    figure.caption = " ".join(s for s in sentences if s)
    figure.caption += " 1 is glibc's memcpy in the same round."
    return [figure]


def _copy_sentence(state: str, rows: list[Row]) -> str:
    ours = [row for row in rows if row["engine"] == "cpu"]
    if not ours:
        return ""
    if state == "cold":
        large = [row for row in ours if row["bytes"] >= 256 << 10] or ours
        best = max(large, key=lambda row: row["ratio_to_memcpy"])
        least = min(large, key=lambda row: row["ratio_to_memcpy"])
        return (
            f"Cold, from {size_text(min(row['bytes'] for row in large))} up Headrace's copy is "
            f"{least['ratio_to_memcpy']:.2f} to {best['ratio_to_memcpy']:.2f} × memcpy (at best "
            f"{rate_text(best['bytes_per_second'])})."
        )
    least = min(ours, key=lambda row: row["ratio_to_memcpy"])
    return (
        f"Hot, where memcpy is hard to beat, it is at least {least['ratio_to_memcpy']:.2f} × "
        f"(at {size_text(least['bytes'])})."
    )


# ---- The page ---------------------------------------------------------------------------------


def _title(parts: Row) -> str:
    machine = (parts["machine"] or {}).get("name")
    return f"Headrace on {machine}" if machine else "Headrace report"


def _lead(parts: Row) -> str:
    """What the reader should take home, in two sentences."""
    query = parts["query"]
    times = {row["mode"]: row["seconds_median"] for row in _mode_rows(query)}
    if not query or "prefetch" not in times:
        return ""
    text = (
        f"{query['query']} over {query['rows'] / 1e6:.3g} million rows, its columns starting on "
        f"{query['slow']['name']} ({query['slow']['kind']}) and wanted in {query['fast']['kind']}: "
        f"{ms(times['prefetch'])} with prefetching"
    )
    if "direct" in times:
        text += f", {ms(times['direct'])} reading each block when it is needed"
    return text + "."


def _facts(parts: Row) -> list[tuple[str, str]]:
    query = parts["query"]
    times = {row["mode"]: row["seconds_median"] for row in _mode_rows(query)}
    facts = []
    if "prefetch" in times:
        facts.append((ms(times["prefetch"]), f"{query['query']} with prefetching"))
        if "direct" in times:
            facts.append((f"{times['direct'] / times['prefetch']:.2f} ×", "as fast as direct"))
        if query.get("overlap_efficiency"):
            share, bracket, note = efficiency(query).partition(" (")
            facts.append((share, f"overlap efficiency{bracket}{note}"))
        if query.get("answer_ok") is not None:
            facts.append(("exact" if query["answer_ok"] else "WRONG", "answer, checked by DuckDB"))
    return facts


def _basis(parts: Row) -> list[str]:
    rests = parts["rests_on"] or {}
    level = rests.get("level", "unknown")
    words = rests.get("detail") or BASIS_WORDS.get(level, "it is not said what was measured")
    lines = [f"Rests on {level}: {words}."]
    machine = parts["machine"] or {}
    provenance = machine.get("provenance") or {}
    where = [machine.get("name"), provenance.get("cpu_model") or provenance.get("cpu"),
             provenance.get("kernel")]  # fmt: skip
    lines.append(
        " · ".join(
            str(item)
            for item in (*where, parts["date"], f"Headrace {parts['version']}")
            if item and item != "Headrace None"
        )
    )
    return lines


def _page(parts: Row, figures: list[_Figure]) -> str:
    from headrace._report_page import PAGE

    title = _title(parts)
    body = [f"<h1>{escape(title)}</h1>"]
    if lead := _lead(parts):
        body.append(f'<p class="lead">{escape(lead)}</p>')
    basis = "".join(f"<p>{escape(line)}</p>" for line in _basis(parts))
    body.append(f'<div class="basis">{basis}</div>')
    if facts := _facts(parts):
        cells = "".join(f"<div><b>{escape(v)}</b><span>{escape(n)}</span></div>" for v, n in facts)
        body.append(f'<div class="facts">{cells}</div>')
    specifications: Row = {}
    for figure in figures:
        body.append(_figure_html(figure, specifications))
    if parts["warnings"]:
        items = "".join(f"<li>{escape(warning)}</li>" for warning in parts["warnings"])
        body.append(f"<h2>Warnings</h2><ul>{items}</ul>")
    body.append(_footer(parts))
    page = PAGE
    for name, value in (
        ("TITLE", escape(title)),
        ("BODY", "\n".join(body)),
        ("FIGURES", json_for_script(specifications)),
        ("LIBRARIES", _libraries()),
    ):
        page = page.replace(f"@@{name}@@", value)
    return page


def _figure_html(figure: _Figure, specifications: Row) -> str:
    from headrace._charts import themed

    parts = [f"<h2>{escape(figure.title)}</h2>"]
    if figure.missing:
        return parts[0] + f'<p class="missing">{escape(figure.missing)}</p>'
    inside = ""
    if figure.svg is not None:
        inside += f'<div class="machine">{figure.svg[0]}</div>'
    for heading, chart in figure.charts:
        name = f"figure{len(specifications) + 1}"
        specifications[name] = themed(chart).to_dict()
        inside += f"<h3>{escape(heading)}</h3>" if heading else ""
        inside += f'<div class="chart" id="{name}"></div>'
    parts.append(f"<figure>{inside}<figcaption>{escape(figure.caption)}</figcaption></figure>")
    return "".join(parts) + figure.table


def _footer(parts: Row) -> str:
    query = parts["query"] or {}
    software = ", ".join(f"{name} {version}" for name, version in query.get("software", {}).items())
    provenance = ((parts["machine"] or {}).get("provenance")) or {}
    host = "; ".join(f"{name}: {value}" for name, value in provenance.items())
    text = ". ".join(item for item in (host, software) if item)
    return f"<footer>Headrace {escape(str(parts['version'] or ''))}. {escape(text)}</footer>"


@functools.cache
def _libraries() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script; bundling them takes seconds."""
    import vl_convert

    # The stub of vl_convert forgets that the argument has a default.
    return code_for_script(vl_convert.javascript_bundle())  # type: ignore[call-arg]


def _png(parts: Row, figures: list[_Figure]) -> bytes:
    """All figures on one sheet, on white."""
    import vl_convert

    content, y = [], float(PNG_MARGIN)

    def line(text: str, size: int, bold: bool = False, gap: float = 0.0) -> None:
        nonlocal y
        y += gap
        for part in wrap(text, int(PNG_WIDTH / (size * 0.52))):
            y += size * 1.45
            weight = ' font-weight="600"' if bold else ""
            content.append(
                f'<text x="{PNG_MARGIN}" y="{y:.0f}" font-size="{size}"{weight}>'
                f"{escape(part)}</text>"
            )

    line(_title(parts), 26, bold=True)
    if lead := _lead(parts):
        line(lead, 16, gap=4)
    for text in _basis(parts):
        line(text, 13)
    for index, figure in enumerate(figures):
        line(figure.title, 19, bold=True, gap=30)
        if figure.missing:
            line(figure.missing, 13)
        for picture, heading in _pictures(figure, index):
            if heading:
                line(heading, 14, bold=True, gap=8)
            svg, width, height = picture
            x = PNG_MARGIN + max(0.0, (PNG_WIDTH - width) / 2)
            content.append(f'<g transform="translate({x:.0f},{y + 12:.0f})">{svg}</g>')
            y += height + 12
        line(figure.caption, 13, gap=6)
    width, height = PNG_WIDTH + 2 * PNG_MARGIN, y + PNG_MARGIN
    sheet = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height:.0f}" '
        f'color="#1b2129" fill="#1b2129" font-family="sans-serif">'
        f'<rect width="100%" height="100%" fill="#ffffff"/>{"".join(content)}</svg>'
    )
    return vl_convert.svg_to_png(sheet, scale=PNG_SCALE)


def _pictures(figure: _Figure, index: int) -> list[tuple[tuple[str, float, float], str]]:
    """The figure's pictures as SVG elements with their sizes and headings."""
    import vl_convert

    from headrace._charts import themed

    pictures = [(figure.svg, "")] if figure.svg is not None else []
    for number, (heading, chart) in enumerate(figure.charts):
        specification = themed(chart).to_dict()
        specification["width"] = PNG_WIDTH
        specification["autosize"] = {"type": "fit-x", "contains": "padding"}
        svg = vl_convert.vegalite_to_svg(specification)
        # Names of clip paths are numbered from 0 in every drawing; on one sheet they would clash.
        svg = re.sub(r'(id="|url\(#)(clip|gradient)', rf"\1f{index}_{number}_\2", svg)
        size = re.search(r'<svg[^>]*?width="([\d.]+)"[^>]*?height="([\d.]+)"', svg)
        width, height = (float(size[1]), float(size[2])) if size else (PNG_WIDTH, 200.0)
        pictures.append(((svg, width, height), heading))
    return pictures
