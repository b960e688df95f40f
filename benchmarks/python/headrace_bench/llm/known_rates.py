# SPDX-License-Identifier: Apache-2.0
"""Copy rates of engines into a memory, from an earlier profile: for runs that measure none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import headrace

#: Engines of these kinds have no copy rates, but rows of an experiment of that name.
_BY_ROWS = ("dsa", "migrate")


@dataclass(frozen=True)
class Known:
    rate: float  #: bytes/s
    from_node: int
    basis: str  #: measured, emulated, published
    source: str  #: who says so


def best(
    machine: headrace.Machine, engine: headrace.Engine, node: int,
    profile: headrace.Profile | None = None,
) -> Known | None:  # fmt: skip
    """The fastest known way into a node, from the machine's description or a profile of it."""
    found = list(_copy_rates(machine, engine, node))
    if profile is not None:
        there = profile.machine
        for same in there.engines:
            if (same.kind, same.name, same.home) == (engine.kind, engine.name, engine.home):
                found += _copy_rates(there, same, node)
        if engine.kind in _BY_ROWS:
            found += _rows(profile, engine.kind, node)
    return max(found, key=lambda each: each.rate, default=None)


def _copy_rates(
    machine: headrace.Machine, engine: headrace.Engine, node: int
) -> Iterator[Known]:
    for each in machine.copy_rates:
        if each.engine == engine.id and each.to_node == node != each.from_node:
            basis = "measured" if each.source.startswith("headrace measure") else "published"
            if ", emulated" in each.source:
                basis = "emulated"
            yield Known(each.bandwidth, each.from_node, basis, each.source)


def _rows(profile: headrace.Profile, kind: str, node: int) -> Iterator[Known]:
    when = f"headrace measure {kind}, {profile.conditions.get('date', 'some day')}"
    for row in profile.rows:
        source = row.parameters.get("from")
        wanted = row.experiment == kind and row.unit == "B/s" and row.parameters.get("to") == node
        if wanted and row.median and isinstance(source, int) and source != node:
            yield Known(row.median, source, row.basis, row.source or when)
