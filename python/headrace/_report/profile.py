# SPDX-License-Identifier: Apache-2.0
"""The figures of a profile: pictures, a sentence and a table per experiment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace import _core
from headrace._format import plural
from headrace._profile.rows import is_complete
from headrace._provenance import EMULATED_GPUS, rests_on
from headrace._report import (
    figures_cores,
    figures_devices,
    figures_gpu,
    figures_memory,
    figures_move,
    figures_shared,
    figures_storage,
)
from headrace._report.charts import has_spread
from headrace._report.conditions import rests_on_rows
from headrace._report.figure import Figure
from headrace._report.figures_machine import machine_figure
from headrace._report.findings import sentences
from headrace._report.movement.bounds import Bounds
from headrace._report.movement.engines import costs, side_by_side
from headrace._report.rows import Rows, pair_of, table

#: Limit of plausible values in ns or bytes per second: 30 years, an exabyte.
LARGEST = 1e18


def profile_parts(document: dict[str, Any]) -> dict[str, Any]:
    """The parts of a machine's document for the page, with or without rows."""
    profile = _core.Profile.fromdict(document)
    rests: dict[str, Any] | None = None
    if profile.published:
        rests = {"level": "published", "detail": None}
    elif {row.basis for row in profile.rows if row.samples} == {"emulated"}:
        rests = EMULATED_GPUS
    elif date := profile.conditions.get("date"):
        rests = rests_on(profile.machine, f"measured on {profile.machine.name}, {date}")
    return {
        "machine": document,
        "profile": profile,
        "version": profile.conditions.get("headrace"),
        "rests_on": rests,
    }


def profile_figures(profile: _core.Profile) -> list[Figure]:
    """Figures of the machine, of each experiment in the profile's order, and of missing
    measurements."""
    experiments = {name: _rows(profile, name) for name in _names(profile)}
    found = [machine_figure(profile.machine, experiments)]
    known = Bounds(experiments.get("bandwidth") or _rows(profile, "bandwidth"))
    for name, rows in experiments.items():
        if rows.rows:
            move = _MOVEMENTS.get(name)
            figure = move(rows, known) if move else _EXPERIMENTS.get(name, _plain)(rows)
            figure.caption += sentences(profile, name)
            if any(row.source for row in rows.rows):
                figure.caption = f"Published, not measured here. {figure.caption}"
            drawn = any(has_spread(chart) for _, chart in figure.charts)
            figure.caption += rests_on_rows(rows.rows, drawn)
            figure.tables.append(table(rows.rows))
            found.append(figure)
    beside = (side_by_side(experiments, known), costs(experiments))
    found += [figure for figure in beside if figure is not None]
    missing = [row for row in profile.rows if not _is_drawn(row)]
    if missing:
        found.append(Figure("What was not measured", items=_reasons(missing)))
    return found


def _names(profile: _core.Profile) -> list[str]:
    return list(dict.fromkeys(row.experiment for row in profile.rows))


def _rows(profile: _core.Profile, experiment: str) -> Rows:
    rows = [r for r in profile.rows if r.experiment == experiment and is_complete(r)]
    tried = dict.fromkeys(pair_of(row) for row in rows if "memory_node" in row.parameters)
    return Rows(
        [row for row in rows if _is_drawn(row)],
        {node.id: node.kind for node in profile.machine.nodes},
        tuple(tried),
    )


def _is_drawn(row: _core.Row) -> bool:
    """Whether the row has a plausible number, and the fields that its experiment's figure needs."""
    numbers = (row.median, row.low or 0.0, row.high or 0.0, *row.samples, *row.details.values())
    return is_complete(row) and all(n is not None and abs(n) <= LARGEST for n in numbers)


def _plain(rows: Rows) -> Figure:
    return Figure(rows.rows[0].experiment, f"{plural(len(rows.rows), 'point')}.")


_EXPERIMENTS: dict[str, Callable[[Rows], Figure]] = {
    "latency": figures_memory.latency,
    "bandwidth": figures_memory.bandwidth,
    "loaded": figures_memory.loaded,
    "stream": figures_memory.stream,
    "interference": figures_shared.interference,
    "parallelism": figures_cores.parallelism,
    "core_to_core": figures_cores.core_to_core,
    "split": figures_cores.split,
}

#: Figures of movements, which are compared with the bounds of the memories.
_MOVEMENTS: dict[str, Callable[[Rows, Bounds], Figure]] = {
    "copy": figures_move.copy,
    "migrate": figures_move.migrate,
    "storage": figures_storage.storage,
    "dsa": figures_devices.dsa,
    "gpu": figures_gpu.gpu,
}


def _reasons(rows: list[_core.Row]) -> list[str]:
    counts: dict[tuple[str, str], int] = {}
    for row in rows:
        reason = row.reason or "has a number, but not all that says what of"
        if is_complete(row) and row.median is not None:
            reason = "has a number that no machine reaches"
        counts[row.experiment, reason] = counts.get((row.experiment, reason), 0) + 1
    return [
        f"{name}, {plural(count, 'row')}: {reason}" for (name, reason), count in counts.items()
    ]
