# SPDX-License-Identifier: Apache-2.0
"""What a GPU of this machine gives, as rows beside what was published of the same case."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import headrace
import headrace_bench
from headrace._errors import WrongAnswer
from headrace._unified_memory import case as um
from headrace._unified_memory import model as um_model
from headrace._unified_memory.case import GIB, MIB, Case
from headrace_bench.um_rows import described, modelled, same

Row = dict[str, Any]
#: So often as large as the card an array evicts what it needs next, and more changes no rate.
_MOST_TIMES = 4


def default_size(room: int) -> int:
    """The original's, or half of what the GPU has room for now where that is less."""
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
    rows = [
        {
            **head, "run": number, "published": None, "modelled": None,
            "measured": case.size / GIB / each.time, "error": None, "basis": basis, "reason": None,
            "correct": each.correct, "before": _where(each.before), "after": _where(each.after),
            "asked_node": asked, "flags": _flags(case, asked, number, each.before),
        }
        for number, each in enumerate(result.runs, 1)
    ]  # fmt: skip
    rates = [case.size / GIB / each.time for each in result.runs]
    own: Row = {
        **head, "options": asdict(case), "source": None, "reason": None,
        "first": _figure(rates[0] if rates else None), "steady": _figure(um.steady(rates)),
    }  # fmt: skip
    told = [each for each in um.PUBLISHED if same(each.case, case, sizes=False)]
    beside = [modelled(each, each.case) for each in told]
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
        "machines": [{"name": name, "words": result.device}, *described(names)],
        "rows": [*rows, *(row for made, _ in beside for row in made)],
        "cases": [own, *(summary for _, summary in beside)],
        "unit": um.UNIT,
    }


def _asked(case: Case, result: headrace_bench.UnifiedMemoryResult) -> int | None:
    """Where the array has to lie when a run begins: memory of the system where it was touched
    first, and of a node there; managed memory is where the driver has it.
    """
    if case.managed:
        return None
    return result.node if case.memory == "system" else case.node


def _flags(
    case: Case, asked: int | None, number: int, before: headrace.Residency | None
) -> list[str]:
    """misplaced: not where it was asked for. After a run some GPUs keep what they accessed, which
    is no mistake; pages on another node of the host are one, of memory that is bound to its node.
    """
    if asked is None or before is None:
        return []
    elsewhere = any(pages for node, pages in before.pages.items() if node != asked)
    if number == 1:
        return ["misplaced"] if elsewhere or before.absent else []
    return ["misplaced"] if elsewhere and case.memory != "system" else []


def _where(found: headrace.Residency | None) -> Row | None:
    """Bytes on nodes of the host; what is absent there is the GPU's, or nobody's yet."""
    if found is None:
        return None
    return {
        "host_bytes": {str(node): count * mmap.PAGESIZE for node, count in found.pages.items()},
        "absent_bytes": found.absent * mmap.PAGESIZE,
    }


def _figure(rate: float | None) -> Row:
    return {"published": None, "modelled": None, "measured": rate, "error": None, "met": None}


def check(document: Row) -> None:
    """Raises, when all is written, if anything was wrong."""
    wrong = [row["run"] for row in document["rows"] if row.get("correct") is False]
    if wrong:
        raise WrongAnswer(f"run {wrong[0]}: the kernel's sum is wrong; trust no number")
    if not document["written"]:
        raise WrongAnswer("the array does not hold what the kernel wrote; trust no number")


def evictions(case: Case, room: int) -> str | None:
    """What will happen to managed memory that the GPU has no room for now, in words; None if it
    has.
    """
    if not case.managed or case.size <= room:
        return None
    times = min(case.size / max(room, 1), _MOST_TIMES)
    told = []
    for model in um_model.MACHINES.values():
        try:
            beyond = replace(case, size=int(model.device_bytes * times))
            rate = um.steady(um_model.rates(model, replace(beyond, runs=3)))
        except headrace.UnsupportedError:
            continue
        told.append(f"{rate:.1f} GiB/s on {model.name}")
    return (
        f"{headrace.format_bytes(case.size)} of managed memory on a GPU with room for "
        f"{headrace.format_bytes(room)} now: pages may be evicted for others in each run; by "
        f"the model, {' and '.join(told) or 'nobody knows how fast'}; some GPUs have hung"
    )
