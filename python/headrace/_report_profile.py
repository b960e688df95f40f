"""The figures of a profile: pictures, a sentence and a table per experiment."""

from __future__ import annotations

import json
from collections.abc import Callable
from html import escape
from typing import Any

from headrace import (
    _core, _figures_devices, _figures_memory, _figures_move, _figures_shared, _figures_storage,
)  # fmt: skip
from headrace._figures_machine import machine_figure
from headrace._report_figure import Figure
from headrace._report_findings import sentences
from headrace._report_rows import Rows, pair_of, table
from headrace._report_words import plural
from headrace._rows import complete, is_complete


def profile_parts(document: dict[str, Any]) -> dict[str, Any]:
    """What the page needs of a machine's document, with rows or without."""
    profile = _core.Profile.from_json(json.dumps(document))
    rests = None
    if profile.published:
        rests = {"level": "published", "detail": "figures of others, published, not measured here"}
    elif date := profile.conditions.get("date"):
        rests = {"level": "real hardware", "detail": f"measured on {profile.machine.name}, {date}"}
    return {
        "machine": document,
        "profile": profile,
        "version": profile.conditions.get("headrace"),
        "rests_on": rests,
    }


def profile_figures(profile: _core.Profile, unmeasured: Figure) -> list[Figure]:
    """The machine, `unmeasured` where its links were not; one per experiment in the order of the
    profile; and what was not measured."""
    experiments = {name: _rows(profile, name) for name in _names(profile)}
    found = [machine_figure(profile.machine, experiments) or unmeasured]
    for name, rows in experiments.items():
        if rows.rows:
            figure = _EXPERIMENTS.get(name, _plain)(rows)
            figure.caption += sentences(profile, name)
            figure.table += table(rows.rows)
            found.append(figure)
    missing = [row for row in profile.rows if row.median is None or not is_complete(row)]
    if missing:
        found.append(Figure("What was not measured", "", table=_reasons(missing)))
    return found


def _names(profile: _core.Profile) -> list[str]:
    return list(dict.fromkeys(row.experiment for row in profile.rows))


def _rows(profile: _core.Profile, experiment: str) -> Rows:
    rows = complete(row for row in profile.rows if row.experiment == experiment)
    tried = dict.fromkeys(pair_of(row) for row in rows if "memory_node" in row.parameters)
    return Rows(
        [row for row in rows if row.median is not None],
        {node.id: node.kind for node in profile.machine.nodes},
        tuple(tried),
    )


def _plain(rows: Rows) -> Figure:
    return Figure(rows.rows[0].experiment, f"{plural(len(rows.rows), 'point')}.")


_EXPERIMENTS: dict[str, Callable[[Rows], Figure]] = {
    "latency": _figures_memory.latency,
    "bandwidth": _figures_memory.bandwidth,
    "loaded": _figures_memory.loaded,
    "stream": _figures_memory.stream,
    "copy": _figures_move.copy,
    "migrate": _figures_move.migrate,
    "interference": _figures_shared.interference,
    "storage": _figures_storage.storage,
    "dsa": _figures_devices.dsa,
}


def _reasons(rows: list[_core.Row]) -> str:
    counts: dict[tuple[str, str], int] = {}
    for row in rows:
        reason = row.reason or "has a number, but not all that says what of"
        counts[row.experiment, reason] = counts.get((row.experiment, reason), 0) + 1
    items = "".join(
        f"<li>{escape(name)}, {plural(count, 'row')}: {escape(reason)}</li>"
        for (name, reason), count in counts.items()
    )
    return f"<ul>{items}</ul>"
