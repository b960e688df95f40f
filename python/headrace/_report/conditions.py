# SPDX-License-Identifier: Apache-2.0
"""Conditions that influence the numbers besides the machine: lines at the top of a page, and a
list."""

from __future__ import annotations

import re
from collections.abc import Mapping

from headrace import _core
from headrace._format import busy_host, plural
from headrace._report.figure import Figure
from headrace._report.rows import bars_are


def condition_lines(conditions: Mapping[str, str]) -> list[str]:
    """Lines on how and on what kind of host it was measured, as far as the document has them."""
    warning, _ = busy_host(conditions.get("looks_disturbed", "0 of 0"))
    lines = [warning and f"{warning}.", _how(conditions), _host(conditions), _limits(conditions)]
    return [line for line in lines if line]


def conditions_figures(profile: _core.Profile) -> list[Figure]:
    """All conditions, and the evidence behind the numbers; empty for published numbers."""
    measured = [row for row in profile.rows if row.samples]
    if profile.published or not measured or not profile.conditions:
        return []
    noisy = sum("noisy" in row.flags for row in measured)
    caption = f"{plural(len(measured), 'row')}, each the median of {samples_text(measured)}"
    caption += f"; {noisy} noisy." if noisy else "; none is noisy."
    items = [f"{name}: {text}" for name, text in profile.conditions.items()]
    return [Figure("How it was measured", caption, items=items)]


def rests_on_rows(rows: list[_core.Row], spread_drawn: bool = False) -> str:
    """A figure's sentence on its evidence: the number of rows and mappings, noisy rows, and the
    meaning of bars if any are drawn."""
    measured = [row for row in rows if row.samples]
    if not measured or measured[0].source:
        return ""
    words = f" Best and worst are of {plural(len(measured), 'row')}" if len(measured) > 1 else ""
    words = f"{words}, each" if words else " It is"
    noisy = sum("noisy" in row.flags for row in measured)
    told = ""
    if noisy:
        told = (
            f" {noisy} of them {'is' if noisy == 1 else 'are'} noisy, measured while something "
            "else ran: drawn hollow, pale or with a ~."
        )
    small = sum("not_huge" in row.flags for row in measured)
    if small:
        told += (
            f" {small} of them {'was' if small == 1 else 'were'} to be in huge pages, and not all "
            "memory was: the tips say how much."
        )
    if unsteady := sum("unsteady" in row.flags for row in measured):
        told += (
            f" {unsteady} of them {'is' if unsteady == 1 else 'are'} unsteady: the bandwidth still "
            "moved by more than 5 % while the latency was taken."
        )
    if cached := sum("partly_cached" in row.flags for row in measured):
        told += (
            f" {cached} of them {'is' if cached == 1 else 'are'} partly of a cache that is larger "
            "than the machine shows."
        )
    varied = [row.interval for row in measured if len(row.samples) > 1]
    varies = bars_are(varied) if spread_drawn else ""
    return f"{words} the median of {samples_text(measured)}.{varies}{told}"


def samples_text(rows: list[_core.Row]) -> str:
    """ "6 mappings", "3 to 18 mappings"."""
    counts = [len(row.samples) for row in rows]
    least, most = min(counts), max(counts)
    return plural(most, "mapping") if least == most else f"{least} to {plural(most, 'mapping')}"


def _how(conditions: Mapping[str, str]) -> str:
    parts: list[str] = []
    if budget := conditions.get("budget_s"):
        parts.append("no budget" if budget == "full" else f"budget {budget} s")
    if rounds := conditions.get("rounds"):
        parts.append("1 round" if rounds == "1" else f"{rounds} rounds")
    if checks := conditions.get("looks_disturbed"):
        parts.append(busy_host(checks)[1])
    if stopped := conditions.get("stopped"):
        parts.append(f"stopped {stopped}")
    return "Measured with " + ", ".join(parts) + "." if parts else ""


def _host(conditions: Mapping[str, str]) -> str:
    parts: list[str] = []
    if governor := conditions.get("governor"):
        parts.append(f"governor {governor}")
    if pages := conditions.get("transparent_hugepage"):
        chosen = re.search(r"\[(\w+)\]", pages)
        parts.append(f"transparent huge pages {chosen[1] if chosen else pages}")
    if balancing := conditions.get("numa_balancing"):
        words = {"0": "off", "unknown": "unknown"}.get(balancing, f"on ({balancing})")
        parts.append(f"NUMA balancing {words}")
    if hypervisor := conditions.get("hypervisor"):
        parts.append("under a hypervisor" if hypervisor == "yes" else "no hypervisor")
    if load := conditions.get("load_average"):
        parts.append(f"load {load.split()[0]} at the beginning" if load.split() else "")
    if mode := conditions.get("cache_mode"):
        parts.append(mode.partition(";")[0])
    return "Host: " + ", ".join(part for part in parts if part) + "." if parts else ""


def _limits(conditions: Mapping[str, str]) -> str:
    words = {"cpu_limit": "", "memory_limit": "memory, ", "memory_nodes": "memory of nodes "}
    parts = [word + conditions[name] for name, word in words.items() if name in conditions]
    return "Limited by control groups: " + ", ".join(parts) + "." if parts else ""
