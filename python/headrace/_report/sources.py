# SPDX-License-Identifier: Apache-2.0
"""Sources of a profile's published numbers."""

from __future__ import annotations

from headrace import _core
from headrace._format import plural
from headrace._report.figure import Figure


def sources_figures(profile: _core.Profile) -> list[Figure]:
    """A list of sources and how numbers were read from them; empty for measured profiles."""
    counts: dict[str, int] = {}
    for row in profile.rows:
        if row.source:
            counts[row.source] = counts.get(row.source, 0) + 1
    if not counts:
        return []
    fitted = sum("fitted" in row.flags for row in profile.rows)
    caption = "Published, not measured: nothing on this page was measured by Headrace, and how far "
    caption += "a number varies was not published."
    if fitted:
        caption += (
            f" {plural(fitted, 'row')} marked fitted are no quotations: they are drawn from a "
            "formula fitted to published points."
        )
    items = [f"{source}: {plural(count, 'row')}" for source, count in counts.items()]
    items += [f"{name}: {text}" for name, text in sorted(profile.conditions.items())]
    return [Figure("Where the figures come from", caption, items=items)]
