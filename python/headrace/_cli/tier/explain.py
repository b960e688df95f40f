# SPDX-License-Identifier: Apache-2.0
"""headrace tier explain, or --explain: sources of hotness on this host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import headrace
from headrace._cli import output
from headrace._cli.options import Json
from headrace._core import NUMA_BALANCING, HostFiles


def command(json: Json = False) -> None:
    """Show the hotness sources of this host and their costs.

    \b
    headrace tier explain          a second or two; changes nothing
    headrace tier explain --json   for scripts
    """
    sources = [_examine(traits) for traits in headrace.hotness_sources()]
    mechanisms = of_kernel(HostFiles())
    if json:
        machine = headrace.Machine.discover(storage=[])
        output.print_json(
            output.document(
                "tier",
                machine,
                sources=[source.as_json() for source in sources],
                kernel=[asdict(mechanism) for mechanism in mechanisms],
            )
        )
    else:
        output.print_text(_text(sources, mechanisms))


@dataclass(frozen=True)
class Source:
    """A source for memory of the own process: its cost here, or the reason why it does not work."""

    traits: headrace.HotnessTraits
    cost: headrace.HotnessCost | None
    reason: str | None

    def as_json(self) -> dict[str, Any]:
        traits = self.traits
        return {
            "source": traits.kind,
            "there": self.cost is not None,
            "reason": self.reason,
            "needs_root": traits.needs_root,
            "sees_reads": traits.sees_reads,
            "sees_writes": traits.sees_writes,
            "granularity": _granularity(traits),
            "memory": traits.memory,
            "effect": traits.cost,
            "cost": None if self.cost is None else self.cost.asdict(),
        }


def _examine(traits: headrace.HotnessTraits) -> Source:
    try:
        return Source(traits, headrace.measure_hotness_cost(traits.kind), None)
    except headrace.Error as error:
        return Source(traits, None, str(error))


def _granularity(traits: headrace.HotnessTraits) -> str:
    return "page" if traits.by_page else "chunk"


def _text(sources: list[Source], mechanisms: list[Mechanism]) -> str:
    return "\n".join(
        [
            "Memory of one's own process; ns per page of 4 KiB, measured now:",
            output.table_text(
                ["source", "there", "root", "sees", "tells apart",
                 "look", "access", "after a look"],
                map(_row, sources),
                left=5,
            ),
            "",
            *map(_note, sources),
            "",
            "Of the kernel, for any process; Headrace leaves them as they are until asked:",
            output.table_text(
                ["mechanism", "state", "root", "why"],
                [[m.mechanism, m.state, _yes(m.needs_root), m.why] for m in mechanisms],
                left=4,
            ),
        ]
    )  # fmt: skip


def _yes(answer: bool) -> str:
    return "yes" if answer else "no"


def _row(source: Source) -> list[str]:
    traits, cost = source.traits, source.cost
    sees = [
        word
        for word, seen in (("reads", traits.sees_reads), ("writes", traits.sees_writes))
        if seen
    ]
    times = (
        ["-", "-", "-"]
        if cost is None
        else [f"{t:.0f}" for t in (cost.look_ns_per_page, cost.access_ns, cost.first_access_ns)]
    )
    return [
        traits.kind, _yes(cost is not None), _yes(traits.needs_root), ", ".join(sees),
        _granularity(traits), *times,
    ]  # fmt: skip


def _note(source: Source) -> str:
    traits = source.traits
    what = source.reason or f"tracks {traits.memory}; {traits.cost}"
    return f"{traits.kind}: {what}"


@dataclass(frozen=True)
class Mechanism:
    """A mechanism of the kernel that watches memory. State: `there`, `off`, `absent`, `in use` by
    another program, or `unknown` to this user.
    """

    mechanism: str
    state: str
    needs_root: bool
    why: str


def of_kernel(files: HostFiles) -> list[Mechanism]:
    """Settings of the kernel; nothing is tried or changed."""
    return [Mechanism(name, *_asked(probe, files)) for name, probe in _PROBES.items()]


#: State, whether it takes root, and the reason.
_Answer = tuple[str, bool, str]


def _asked(probe: Callable[[HostFiles], _Answer], files: HostFiles) -> _Answer:
    try:
        return probe(files)
    except headrace.Error as error:
        return "unknown", True, str(error)


def _hint_faults(files: HostFiles) -> _Answer:
    mode = files.read(NUMA_BALANCING)
    if mode is None:
        return "absent", True, "the kernel has no CONFIG_NUMA_BALANCING"
    return "off" if mode == "0" else "there", True, f"kernel.numa_balancing is {mode}"


def _fault_addresses(files: HostFiles) -> _Answer:
    paranoid = files.read("proc/sys/kernel/perf_event_paranoid")
    if paranoid is None:
        return "absent", False, "the kernel has no perf events"
    # 3 and more, as in Debian: root only.
    needs_root = paranoid not in ("-1", "0", "1", "2")
    return "there", needs_root, f"kernel.perf_event_paranoid is {paranoid}"


def _damon(files: HostFiles) -> _Answer:
    kdamonds = files.kdamonds()
    if kdamonds is None:
        return "absent", True, "the kernel has no CONFIG_DAMON_SYSFS"
    if holders := files.damon_holders():
        return "in use", True, f"the kernel itself runs it: {holders[0].split('/')[2]}"
    if kdamonds:
        running = sum(each.state == "on" for each in kdamonds)
        return (
            "in use", True,
            f"kdamonds that somebody else has set up: {len(kdamonds)}, running: {running}; left "
            "alone",
        )  # fmt: skip
    return "there", True, "no kdamond is set up; headrace tier attach --source damon"


def _refaults(files: HostFiles) -> _Answer:
    swaps = (files.read("proc/swaps") or "").splitlines()[1:]
    if not swaps:
        return "absent", True, "no swap and no zram: nowhere to page out to"
    return "there", True, "swap on " + ", ".join(line.split()[0] for line in swaps)


def _precise_samples(files: HostFiles) -> _Answer:
    devices = "sys/bus/event_source/devices"
    if files.names(f"{devices}/ibs_op"):
        return "there", False, "ibs_op"
    for unit in ("cpu", "cpu_core"):
        if (files.read(f"{devices}/{unit}/caps/max_precise") or "0") != "0":
            return "there", False, f"precise events of {unit}"
    return "absent", False, "no precise events of the CPU: most virtual machines have none"


_PROBES: dict[str, Callable[[HostFiles], _Answer]] = {
    "hint faults (NUMA balancing)": _hint_faults,
    "addresses of page faults (perf)": _fault_addresses,
    "DAMON": _damon,
    "refaults (page out, see who returns)": _refaults,
    "sampled loads (PEBS, IBS)": _precise_samples,
}
