# SPDX-License-Identifier: Apache-2.0
"""Recipes for an array that a GPU reads, compared on the model of um.py."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import headrace
from headrace._model import um
from headrace._model.um_cases import GIB, MIB, UNIT, Case, steady

#: Recipes with at least this share of the best rate are equal; the simplest of them is advised.
_EQUAL = 0.98


@dataclass(frozen=True)
class Recipe:
    name: str
    case: Case
    calls: str


#: The simplest first.
RECIPES = (
    Recipe("system", Case(memory="system"), "malloc, or numa_alloc_onnode; nothing advised"),
    Recipe("managed", Case(), "cuMemAllocManaged; nothing advised"),
    Recipe(
        "accessed-by", Case(accessed_by=True),
        "cuMemAllocManaged; cuMemAdvise_v2(SET_ACCESSED_BY, the GPU)",
    ),
    Recipe(
        "preferred-location-cpu", Case(preferred_location_cpu=True),
        "cuMemAllocManaged; cuMemAdvise_v2(SET_PREFERRED_LOCATION, host)",
    ),
    Recipe(
        "both", Case(accessed_by=True, preferred_location_cpu=True),
        "cuMemAllocManaged; cuMemAdvise_v2(SET_PREFERRED_LOCATION, host) and (SET_ACCESSED_BY, "
        "the GPU)",
    ),
    Recipe(
        "prefetch", Case(prefetch_block=16 * MIB),
        "cuMemAllocManaged; cuMemPrefetchAsync_v2 of 16 MiB at a time on two streams, ahead of "
        "the kernel",
    ),
)  # fmt: skip


def command_line(case: Case, *, oversubscribe: bool = False) -> str:
    """The command that runs a case on a GPU."""
    words = [f"headrace bench um --size {_exactly(case.size)}"]
    if not case.managed:
        words.append(f"--memory {case.memory}")
    for name in ("accessed_by", "read_mostly", "preferred_location_cpu", "touch_on_host"):
        if getattr(case, name):
            words.append("--" + name.replace("_", "-"))
    plain = Case()
    if case.op != plain.op:
        words.append(f"--op {case.op}")
    if case.runs != plain.runs:
        words.append(f"--runs {case.runs}")
    if case.prefetch_block is not None:
        words.append(f"--prefetch-block {_exactly(case.prefetch_block)} --streams {case.streams}")
    if case.kernel != plain.kernel:
        words.append(f"--kernel {case.kernel}")
    if oversubscribe and case.managed:
        words.append("--oversubscribe")
    return " ".join(words)


def _exactly(size: int) -> str:
    """The size as options take it, not rounded."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size % (1 << power) == 0:
            return f"{size >> power}{unit}"
    return str(size)


def advise(machine: um.Machine, asked: Case) -> dict[str, Any]:
    """The fields of a document. `asked`: size, runs, op and touch_on_host; all other parameters are
    advised."""
    rows = [_row(machine, recipe, asked) for recipe in RECIPES]
    possible = [row for row in rows if row["rate"] is not None]
    fastest = max(row["rate"] for row in possible)
    best = next(row for row in possible if row["rate"] >= _EQUAL * fastest)
    for row in rows:
        row["slower"] = None if row["rate"] is None else best["rate"] / row["rate"]
    beyond = asked.size > machine.device_bytes
    return {
        "machine": machine.name,
        "machine_words": machine.words,
        "paradigm": "ats" if machine.ats else "hmm" if machine.hmm else "managed",
        "device_bytes": machine.device_bytes,
        "size": asked.size,
        "runs": asked.runs,
        "op": asked.op,
        "touch_on_host": asked.touch_on_host,
        "kernel": machine.kernel,
        "beyond_the_card": beyond,
        "advised": best["recipe"],
        "rows": rows,
        "basis": "modelled",
        "unit": UNIT,
    }


def _row(machine: um.Machine, recipe: Recipe, asked: Case) -> dict[str, Any]:
    case = replace(
        recipe.case, size=asked.size, runs=asked.runs, op=asked.op, kernel=machine.kernel,
        touch_on_host=asked.touch_on_host,
    )  # fmt: skip
    row: dict[str, Any] = {
        "recipe": recipe.name, "calls": recipe.calls,
        "check": command_line(case, oversubscribe=asked.size > machine.device_bytes),
    }  # fmt: skip
    try:
        found = um.runs(machine, case)
    except headrace.UnsupportedError as error:
        return {
            **row, "rate": None, "run_1": None, "after_1": None, "because": str(error)
        }  # fmt: skip
    rates = [case.size / GIB / each.seconds for each in found]
    return {
        **row,
        "rate": len(rates) / sum(1 / rate for rate in rates),
        "run_1": rates[0],
        "after_1": steady(rates),
        "because": _because(case, found),
    }


def _because(case: Case, found: list[um.Outcome]) -> str:
    """The reason for the rate, from the state of the pages."""
    first, last = found[0], found[-1]
    if last.evicted:
        size = headrace.format_bytes(last.evicted * um.BLOCK)
        how = "faulted in" if last.batches else "brought"
        return f"does not fit: in each run {size} are evicted and as much {how}"
    if not case.managed:
        return "stays in host memory, which the GPU reads through the host's page tables"
    if case.preferred_location_cpu:
        if first.batches:
            return f"stays in host memory; {first.batches:.0f} fault batches map it in run 1"
        return "stays in host memory, mapped before run 1: read over the link"
    if case.prefetch_block is not None:
        return "is copied to the card ahead of the kernel" + _again(case)
    if first.batches:
        return f"is brought by {first.batches:.0f} fault batches in run 1" + _again(case)
    if last.near or (len(found) > 1 and found[1].batches):
        return "is read over the link in run 1; then access counters bring it"
    return "is mapped before run 1 and read over the link"


def _again(case: Case) -> str:
    return ", and after each touch of the host again" if case.touch_on_host else "; then it is near"
