"""What the rows of an experiment say together, as sentences under its figure."""

from __future__ import annotations

from headrace import _core
from headrace._report_rows import time_text
from headrace._report_words import rate_text, size_text

#: More would not be read.
_MOST = 4


def sentences(profile: _core.Profile, experiment: str) -> str:
    """Each with a space before it; empty where there is nothing to say."""
    found = {"latency": _steps, "loaded": _bends, "copy": _lines}.get(experiment)
    return "".join(f" {sentence}" for sentence in found(profile)) if found else ""


def _steps(profile: _core.Profile) -> list[str]:
    steps = _core.cache_steps(profile)
    if not steps:
        return []
    first = steps[0]
    own = [s for s in steps if (s.cpu_node, s.memory_node) == (first.cpu_node, first.memory_node)]
    words = ", ".join(
        f"{s.name} {time_text(s.latency_ns)} up to {size_text(s.to_size)}" for s in own
    )
    return [f"By working set: {words}."]


def _bends(profile: _core.Profile) -> list[str]:
    bends = _core.knees(profile)[:_MOST]
    if not bends:
        return []
    words = ", ".join(
        f"{rate_text(bend.bandwidth)} ({time_text(bend.latency_ns)}, {bend.mix})" for bend in bends
    )
    return [f"Curves bend, most bandwidth per latency, at {words}."]


def _lines(profile: _core.Profile) -> list[str]:
    fits = [f for f in _core.copy_fits(profile) if f.engine == "cpu" and f.state == "cold"]
    said = [
        f"A cold copy by cpu × {fit.threads} takes {time_text(fit.latency_ns)} + V / "
        f"{rate_text(fit.bandwidth)}, within {fit.largest_error:.0%} of what was measured."
        for fit in fits[:2]
    ]
    changes = [c for c in _core.crossovers(profile) if c.state == "cold" and c.threads == 1][:_MOST]
    if len(changes) > 1:
        words = ", ".join(f"{c.engine} from {size_text(c.bytes)}" for c in changes)
        said.append(f"Fastest with one thread: {words}.")
    return said
