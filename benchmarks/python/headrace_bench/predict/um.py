# SPDX-License-Identifier: Apache-2.0
"""Unified Memory read by a GPU's kernel, with each advice to the driver (docs/design/gpu/um.md)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import headrace
from headrace._model import um
from headrace._model.um_cases import GIB, MIB, OPS, Case, steady
from headrace_bench.predict.answer import Column, Row
from headrace_bench.predict.command import Axis, Workload, command_of, count, size_of
from headrace_bench.predict.target import Binding, Target, exactly

COLUMNS = (Column("time", "s"), Column("run 1", "B/s"), Column("steady", "B/s"))
#: Uncertainty of fault and eviction costs: the quartile of errors against the rows they were fitted
#: to.
_DOUBT = 0.15
#: Memory of a GPU that the driver's context takes (assumed).
_CONTEXT = 0.5 * GIB
#: Cases in the words of the driver's advice.
CASES: Mapping[str, dict[str, Any]] = {
    "system memory": {"memory": "system"},
    "managed": {},
    "managed, accessed by": {"accessed_by": True},
    "managed, preferred on host": {"preferred_location_cpu": True},
    "managed, both": {"accessed_by": True, "preferred_location_cpu": True},
    "managed, prefetched": {"prefetch_block": 16 * MIB},
}


def predict(target: Target, settings: Mapping[str, Any]) -> list[Row]:
    machine = um.machine_of(target.document)
    if machine is None:
        known = ", ".join(um.NAMES)
        why = f"{target.name} has no GPU"
        if target.of_kind("gpu"):
            why = f"no costs of faults are published for {target.name}"
        raise headrace.UnsupportedError(f"{why}; take --machine {known}")
    machine = as_changed(machine, target)
    fitted = (f"runs of {machine.name} that were published (docs/design/gpu/um.md)",)
    base = Case(
        size=settings["size"], runs=max(2, settings["runs"]), kernel=machine.kernel,
        op=settings["op"], touch_on_host=settings["touch_on_host"] == "yes",
    )  # fmt: skip
    rows = []
    for words, options in CASES.items():
        case = replace(base, **options)
        try:
            rates = um.rates(machine, case)
        except headrace.UnsupportedError as error:
            rows.append(Row(words, {"time": None}, Binding("not predicted"), note=str(error)))
            continue
        late = steady(rates)
        assert late is not None
        doubt = 0.03 if late > 20 else _DOUBT
        seconds = settings["size"] / GIB * (1 / rates[0] + (settings["runs"] - 1) / late)
        time = replace(exactly(seconds), low=seconds * (1 - doubt), high=seconds * (1 + doubt))
        binds = Binding("link" if late > 5 else "fault batches and evictions", "fitted",
                        "C. Lutz 2019; dnhkng 2026", fitted)  # fmt: skip
        values = {"time": time, "run 1": exactly(rates[0] * GIB), "steady": exactly(late * GIB)}
        rows.append(Row(words, values, binds, given=words == settings["advice"]))
    return rows


def as_changed(machine: um.Machine, target: Target) -> um.Machine:
    """The costs with rates and room in proportion to the machine's ceilings and GPU memory, which
    --set may have changed. The costs were fitted to runs of the preset.
    """
    before = Target(headrace.Machine.load(machine.name).asdict())

    def changed(of: Callable[[Target], float]) -> float:
        return of(target) / of(before)

    now, then = (each.capacity(each.of_kind("gpu")[:1]) for each in (target, before))
    room = machine.device_bytes if now in (None, then) else now - _CONTEXT
    if room < um.BLOCK:
        raise headrace.InvalidError(
            f"GPU memory of {headrace.format_bytes(int(now or 0))} has no room for managed memory, "
            "since the driver takes 0.5 GiB; give more"
        )
    return replace(
        machine,
        link_in=machine.link_in * changed(lambda t: _through(t, "reads")),
        link_out=machine.link_out * changed(lambda t: _through(t, "writes")),
        device_rate=machine.device_rate * changed(lambda t: _through(t, "device")),
        device_bytes=int(room),
    )


def _through(target: Target, what: str) -> float:
    """Bytes per second of the narrowest ceiling of GPU memory, or of the GPU's engine."""
    engine = next(each for each in target.document["engines"] if each["kind"] == "gpu")
    found = []
    for ceiling in target.model["ceilings"]:
        most = max(rate for _, rate in ceiling["bandwidth"])
        if what == "device":
            nodes = [*ceiling.get("to", ()), *itertools.chain(*ceiling.get("each", ()))]
            if engine["home"] in nodes:
                found.append(most)
        for path in ceiling.get("paths", ()):
            if engine["name"] in path.get("engines", ()) and path.get("counts") == what:
                found.append(most)
    return float(min(found))


WORKLOAD = Workload(
    "um",
    "Predict Unified Memory that a GPU reads.",
    """A kernel reads an array of host memory several times; the first run is apart.

    \b
    headrace predict um --machine ac922
    headrace predict um --machine ac922 --sweep size=1GiB,32GiB""",
    (
        Axis("size", "SIZE", size_of, "32GiB", "Size of the array."),
        Axis("runs", "NUMBER", count, "5", "Number of runs of the kernel."),
        Axis("op", "WORD", OPS, "read", "Access of the kernel: read or write."),
        Axis("touch_on_host", "YES|NO", ("no", "yes"), "no",
             "Whether the host writes the array before each run."),
        Axis("advice", "WORDS", tuple(CASES), "managed", "Advice that the program gives now."),
    ),
    COLUMNS,
    predict,
    "ac922",
)
command = command_of(WORKLOAD)
