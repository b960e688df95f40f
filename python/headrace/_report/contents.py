# SPDX-License-Identifier: Apache-2.0
"""Contents of the page for a document: its parts, their introductions, the figures."""

from __future__ import annotations

from typing import Any

from headrace import _core
from headrace._format import elapsed
from headrace._profile.documents import all_fields, profile_of
from headrace._report.conditions import condition_lines, conditions_figures
from headrace._report.figure import Figure
from headrace._report.figures_demo import copies_figure, rates_figure
from headrace._report.figures_dsa import dsa_figures
from headrace._report.figures_kv import kv_figures
from headrace._report.figures_llm import kvcache_figures, layer_figures
from headrace._report.figures_machine import machine_figure
from headrace._report.figures_query import (
    mode_rows,
    modes_figure,
    overlap_text,
    timeline_figures,
)
from headrace._report.figures_stream import stream_figures
from headrace._report.figures_um import advice_figures, um_figures
from headrace._report.page import Content
from headrace._report.predict.figures import predict_figures
from headrace._report.profile import profile_figures, profile_parts
from headrace._report.sources import sources_figures

Row = dict[str, Any]

BASIS_WORDS = {
    "real hardware": "speeds were measured on this machine",
    "guest": "a guest with a chosen topology, where placement is real and speeds are not",
    "model": "modelled, not measured",
    "published": "published figures of another machine, not measured here",
}
#: Documents with figures of their own.
_OWN_FIGURES = {
    "advise_um": advice_figures,
    "bench dsa": dsa_figures,
    "bench kv": kv_figures,
    "bench kvcache": kvcache_figures,
    "bench layer": layer_figures,
    "bench stream": stream_figures,
    "bench um": um_figures,
    **{
        f"predict {name}": predict_figures
        for name in (
            "stream",
            "bandwidth",
            "copy",
            "histogram",
            "kv",
            "spark",
            "arena",
            "um",
            "kvcache",
            "query",
        )
    },
}
#: Fields that all documents have, also those with figures of their own.
_HEAD = ("version", "date", "rests_on", "warnings", "conditions")
#: Documents that are drawn by their parts.
_BY_PARTS = ("bench copy", "bench query", "demo")


def content_of(document: Row) -> Content:
    """InvalidError for a document without anything to show."""
    parts = _parts(document)
    return Content(
        title=_title(parts),
        lead=_lead(parts),
        basis=_basis(parts),
        facts=_facts(parts),
        figures=_figures(document, parts),
        warnings=parts["warnings"],
        footer=_footer(parts),
    )


def _figures(document: Row, parts: Row) -> list[Figure]:
    if (own := _OWN_FIGURES.get(str(document.get("kind")))) is not None:
        return own(document)
    if parts["profile"] is not None:
        profile = parts["profile"]
        return profile_figures(profile) + conditions_figures(profile) + sources_figures(profile)
    machine = Figure("The machine", missing="No machine in the document; `headrace topo` shows it.")
    if parts["machine"]:
        machine = machine_figure(_core.Machine.fromdict(parts["machine"]), {})
    return [
        *timeline_figures(parts["query"]),
        modes_figure(parts["query"]),
        machine,
        rates_figure(parts["rates"]),
        copies_figure(parts["copy"]),
    ]


def _parts(document: Row) -> Row:
    """The document with its parts under fixed names, None or empty where missing."""
    kind = document.get("kind")
    own = str(kind) in _OWN_FIGURES
    if str(kind).startswith("bench ") and not own and kind not in _BY_PARTS:
        head = {name: document[name] for name in _HEAD if name in document}
        document = profile_parts(profile_of(document).asdict()) | head
    elif kind is not None and not own and kind not in _BY_PARTS:
        raise _core.InvalidError(
            f"report draws nothing of '{kind}'; it draws profiles, machines, "
            + ", ".join([*_BY_PARTS, *sorted(_OWN_FIGURES)])
        )
    query = document.get("query")
    if isinstance(query, str):  # the document of `headrace bench query` itself
        query = document
    if own:  # has words of its own for its parts
        document = {name: document.get(name) for name in _HEAD} | {
            "machine": machine if isinstance(machine := document.get("machine"), dict) else None
        }
    copy = document if kind == "bench copy" else document.get("copy")
    if "nodes" in document:  # a machine, perhaps with rows
        document = profile_parts(document)
    parts = {
        "profile": document.get("profile"),
        "machine": document.get("machine") or (query or {}).get("machine"),
        "rates": document.get("rates") or [],
        "copy": all_fields(copy) if isinstance(copy, dict) else [],
        "query": query,
        "warnings": list(dict.fromkeys([*(document.get("warnings") or []),
                                        *(query or {}).get("warnings", [])])),
    }  # fmt: skip
    if not any((parts["machine"], parts["rates"], parts["copy"], query, own)):
        raise _core.InvalidError(
            "nothing to report: the document holds no machine, rates, copy or query part"
        )
    parts["conditions"] = _conditions(document)
    for name in ("version", "date", "rests_on"):
        parts[name] = document.get(name) or (query or {}).get(name)
    return parts


def _conditions(document: Row) -> dict[str, str]:
    """The conditions of the measurement; empty if the document has none."""
    profile = document.get("profile")
    if profile is not None:
        return {} if profile.published else dict(profile.conditions)
    found = document.get("conditions")
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}


def _title(parts: Row) -> str:
    machine = (parts["machine"] or {}).get("name")
    return f"Headrace on {machine}" if machine else "Headrace report"


def _lead(parts: Row) -> str:
    """The main result, in two sentences."""
    query = parts["query"]
    times = {row["mode"]: row["median"] for row in mode_rows(query)}
    if not query or "prefetch" not in times:
        return ""
    text = (
        f"{query['query']} over {query['table_rows'] / 1e6:.3g} million rows, its columns "
        f"starting on {query['slow']['name']} ({query['slow']['kind']}) and wanted in "
        f"{query['fast']['kind']}: {elapsed(times['prefetch'])} with prefetching"
    )
    if "mmap" in times:
        text += f", {elapsed(times['mmap'])} with the files mapped (mmap)"
    if "direct" in times:
        text += f", {elapsed(times['direct'])} reading each block when it is needed"
    return text + "."


def _facts(parts: Row) -> list[tuple[str, str]]:
    query = parts["query"]
    times = {row["mode"]: row["median"] for row in mode_rows(query)}
    facts = []
    if "prefetch" in times:
        facts.append((elapsed(times["prefetch"]), f"{query['query']} with prefetching"))
        others = [mode for mode in ("direct", "mmap") if mode in times]
        if others:  # the faster of the ways that programs take today
            best = min(others, key=lambda mode: times[mode])
            facts.append((f"{times[best] / times['prefetch']:.2f} ×", f"as fast as {best}"))
        if told := overlap_text(query):
            share, bracket, note = told.partition(" (")
            facts.append((share, f"overlap efficiency{bracket}{note}"))
        if query.get("answer_ok") is not None:
            facts.append(("exact" if query["answer_ok"] else "WRONG", "answer, checked by DuckDB"))
    return facts


def _basis(parts: Row) -> list[str]:
    rests = parts["rests_on"] or {}
    level = rests.get("level", "unknown")
    words = rests.get("detail") or BASIS_WORDS.get(level, "it is not said what was measured")
    if level == "published":
        lines = ["; ".join(filter(None, ["Source: published data", rests.get("detail")])) + "."]
    else:
        lines = [f"Rests on {level}: {words}."]
    machine = parts["machine"] or {}
    provenance = machine.get("provenance") or {}
    where = [machine.get("name"), provenance.get("cpu"), provenance.get("kernel")]
    lines.append(
        " · ".join(
            str(item)
            for item in (*where, parts["date"], f"Headrace {parts['version']}")
            if item and item != "Headrace None"
        )
    )
    return lines + condition_lines(parts["conditions"])


def _footer(parts: Row) -> str:
    query = parts["query"] or {}
    software = ", ".join(f"{name} {version}" for name, version in query.get("software", {}).items())
    provenance = ((parts["machine"] or {}).get("provenance")) or {}
    host = "; ".join(f"{name}: {value}" for name, value in provenance.items())
    made = f"Headrace {parts['version']}" if parts["version"] else "Headrace"
    return ". ".join(item for item in (made, host, software) if item)
