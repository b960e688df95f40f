# SPDX-License-Identifier: Apache-2.0
"""Findings from all rows of an experiment, as sentences under its figure."""

from __future__ import annotations

from importlib.metadata import entry_points

from headrace import _core
from headrace._core import format_bytes, format_rate
from headrace._format import time_text, traffic_text


def sentences(profile: _core.Profile, experiment: str) -> str:
    """The sentences for an experiment, each with a space before it."""
    found = {"latency": _steps, "loaded": _bends, "copy": _lines}.get(experiment)
    said = found(profile) if found else []
    for point in entry_points(group="headrace.findings"):  # of headrace-bench
        try:
            found_by = point.load()
        except (ImportError, _core.UnsupportedError):
            continue  # headrace-bench of another build: the report is whole without it
        said += found_by(profile, experiment)
    return "".join(f" {sentence}" for sentence in said)


def _steps(profile: _core.Profile) -> list[str]:
    steps = _core.cache_steps(profile)
    if not steps:
        return []
    first = steps[0]
    own = [s for s in steps if (s.cpu_node, s.memory_node) == (first.cpu_node, first.memory_node)]
    words = ", ".join(
        f"{s.name} {time_text(s.latency_ns)} up to {format_bytes(s.to_size)}" for s in own
    )
    return [f"By working set: {words}."]


def _bends(profile: _core.Profile) -> list[str]:
    """The bandwidth at which latency begins to rise, for the first observer with traffic on its own
    memory."""
    bends = [bend for bend in _core.knees(profile) if _nodes(bend) == _nodes_of_traffic(bend)]
    own = [bend for bend in bends if _nodes(bend) == _nodes(bends[0])]
    if not own:
        return []
    words = "; ".join(
        f"{format_rate(bend.bandwidth)} at {time_text(bend.latency_ns)} "
        f"({traffic_text(bend.mix, bend.threads)}{_doubles(bend)})"
        for bend in own
    )
    where = f"CPUs {own[0].cpu_node}, memory {own[0].memory_node}"
    name = "Knee" if len(own) == 1 else "Knees"
    return [f"{name}, the most bandwidth per latency: {words} ({where})."]


def _doubles(bend: _core.Knee) -> str:
    twice = bend.bandwidth_at_2
    return "" if twice is None else f", latency doubles at {format_rate(twice)}"


def _nodes(bend: _core.Knee) -> tuple[int, int]:
    return bend.cpu_node, bend.memory_node


def _nodes_of_traffic(bend: _core.Knee) -> tuple[int, int]:
    return bend.traffic_cpu_node, bend.traffic_memory_node


def _lines(profile: _core.Profile) -> list[str]:
    """The cost of cold copies between the first pair of nodes, by size."""
    fits = [f for f in _core.copy_fits(profile) if f.engine == "cpu" and f.state == "cold"]
    if not fits:
        return []
    pair = fits[0].from_node, fits[0].to_node
    said = [
        f"From node {pair[0]} to {pair[1]} a cold copy by cpu × {fit.threads} takes "
        f"{time_text(fit.latency_ns)} + V / {format_rate(fit.bandwidth)}, within "
        f"{fit.largest_error:.0%} of what was measured."
        for fit in fits
        if (fit.from_node, fit.to_node) == pair
    ]
    changes = [
        c
        for c in _core.crossovers(profile)
        if (c.from_node, c.to_node, c.state, c.threads) == (*pair, "cold", 1)
    ]
    if len(changes) > 1:
        words = ", ".join(f"{c.engine} from {format_bytes(c.bytes)}" for c in changes)
        said.append(f"Fastest there with one thread: {words}.")
    return said
