# SPDX-License-Identifier: Apache-2.0
"""Rates of a GPU of this machine, as rows beside the published ones of the same case."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import headrace
import headrace_bench
from headrace._errors import WrongAnswer
from headrace._model.um import machine_named
from headrace._model.um_cases import GIB, MIB, PUBLISHED, UNIT, Case, Published, figure, steady
from headrace._profile.nested import details_of
from headrace_bench.runner import check, row_of

Row = dict[str, Any]


def default_size(room: int) -> int:
    """The original's size, or half of the GPU's free memory if that is less."""
    return min(32 * GIB, max(1, room // 2 // MIB) * MIB)


def run(
    machine: headrace.Machine, case: Case, device: int, oversubscribe: bool,
    stop: Callable[[], bool], progress: Callable[[int, int], object],
) -> Row:  # fmt: skip
    """The fields of a document."""
    result = headrace_bench.run_unified_memory(
        machine, case.size, managed=case.managed, node=case.node,
        accessed_by=case.accessed_by, read_mostly=case.read_mostly,
        preferred_location_cpu=case.preferred_location_cpu, touch_on_host=case.touch_on_host,
        write=case.op == "write", runs=case.runs, device=device,
        prefetch_block=case.prefetch_block, streams=case.streams, wide=case.kernel == "wide",
        oversubscribe=oversubscribe, stop=stop, progress=progress,
    )  # fmt: skip
    return {"device_number": device, **fields(machine.name, case, result)}


def fields(name: str, case: Case, result: headrace_bench.UnifiedMemoryResult) -> Row:
    basis = "emulated" if result.emulated else "measured"
    asked = _asked(case, result)
    head = {
        "machine": name, "case": case.name, "size": case.size, "kernel": case.kernel,
        "bytes_in_flight": result.in_flight,
    }  # fmt: skip
    rates = [case.size / GIB / each.time for each in result.runs]
    point: dict[str, int | str] = {
        "machine": name, "case": case.name, "size": case.size, "kernel": case.kernel,
    }  # fmt: skip
    rows = [
        row_of(
            "um", {**point, "run": number}, UNIT, [case.size / GIB / each.time], basis=basis,
            details=details_of({
                "wrong": float(not each.correct), "before": _where(each.before),
                "after": _where(each.after), "asked_node": asked,
            }),
            flags=_flags(case, asked, number, each.before),
        )
        for number, each in enumerate(result.runs, 1)
    ]  # fmt: skip
    # Run 1 maps or moves the array; the runs after it are alike.
    if len(rates) > 1:
        rows.append(row_of("um", {**point, "run": "after 1"}, UNIT, rates[1:], basis=basis))
    own: Row = {
        **head, "options": asdict(case), "source": None, "reason": None,
        "first": {"published": None, "measured": rates[0] if rates else None},
        "steady": {"published": None, "measured": steady(rates)},
    }  # fmt: skip
    told = [each for each in PUBLISHED if each.matches(case, sizes=False)]
    beside = [_published(each) for each in told]
    names = dict.fromkeys(each.machine for each in told)
    return {
        "device": result.device,
        "emulated": result.emulated,
        "basis": basis,
        "paradigm": result.paradigm,
        "device_free_bytes": result.device_free,
        "node": result.node,
        "blocks": result.blocks,
        "threads_per_block": result.threads_per_block,
        "advice_confirmed": result.advice_confirmed,
        "written": result.written,
        "machines": [
            {"name": name, "words": result.device},
            *({"name": each, "words": machine_named(each).words} for each in names),
        ],
        "rows": [row.asdict() for row in rows],
        "published": [row for made, _ in beside for row in made],
        "cases": [own, *(summary for _, summary in beside)],
        "unit": UNIT,
    }


def _published(told: Published) -> tuple[list[Row], Row]:
    """The runs of a published case, and its figures."""
    case = told.case
    head = {"machine": told.machine, "case": case.name, "size": case.size, "kernel": case.kernel}
    rows = [
        {**head, "run": number, "published": rate, "measured": None, "basis": "published",
         "reason": None}
        for number, rate in enumerate(told.runs, 1)
    ]  # fmt: skip
    return rows, {
        **head, "options": asdict(case), "source": told.source, "reason": None,
        "first": {"published": figure(told.first), "measured": None},
        "steady": {"published": figure(told.steady), "measured": None},
    }  # fmt: skip


def _asked(case: Case, result: headrace_bench.UnifiedMemoryResult) -> int | None:
    """The place where the array must be when a run begins: system memory where it was touched
    first, a node's memory on that node. Managed memory is where the driver has put it.
    """
    if case.managed:
        return None
    return result.node if case.memory == "system" else case.node


def _flags(
    case: Case, asked: int | None, number: int, before: headrace.Residency | None
) -> list[str]:
    """The flag "misplaced": the array is not in its place. After a run some GPUs keep pages that
    they accessed, which is no mistake. Memory that is bound to a node must not be on another node
    of the host.
    """
    if asked is None or before is None:
        return []
    elsewhere = any(pages for node, pages in before.pages.items() if node != asked)
    if number == 1:
        return ["misplaced"] if elsewhere or before.absent else []
    return ["misplaced"] if elsewhere and case.memory != "system" else []


def _where(found: headrace.Residency | None) -> Row | None:
    """Bytes on nodes of the host. Absent pages are the GPU's, or not allocated yet."""
    if found is None:
        return None
    return {
        "host_bytes": {str(node): count * mmap.PAGESIZE for node, count in found.pages.items()},
        "absent_bytes": found.absent * mmap.PAGESIZE,
    }


def check_written(document: Row) -> None:
    """Raises if anything was wrong, after all is written."""
    check(document, "the kernel's sum is")
    if not document["written"]:
        raise WrongAnswer("the array does not hold what the kernel wrote; trust no number")


def evictions(case: Case, room: int) -> str | None:
    """A warning if the GPU has too little free memory for the managed memory; else None."""
    if not case.managed or case.size <= room:
        return None
    return (
        f"{headrace.format_bytes(case.size)} of managed memory on a GPU with room for "
        f"{headrace.format_bytes(room)} now: pages may be evicted for others in each run, which "
        "headrace predict um computes; some GPUs have hung"
    )
