# SPDX-License-Identifier: Apache-2.0
"""Checks settings of a host that affect measurements: value, judgement, remedy.

A setting that the host does not show is unknown, not fine. Examples: in a guest the hypervisor
decides on clocks and DIMMs; some files only root may read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import headrace
from headrace._doctor import dmi
from headrace._doctor.host import Finding, Host, Question, ask, ids
from headrace._doctor.setup_steps import setup_steps
from headrace._format import plural

#: fine: measurements show what the machine can do. choice: affects numbers, and is a matter of
#: choice; machines to compare should have the same. spoils: numbers are lower or less steady than
#: possible, or mean something else. unknown: the host does not show it.
SETTING_STATES = ("fine", "choice", "spoils", "unknown")

_CPU = "sys/devices/system/cpu"
_HYPERVISOR = "the hypervisor decides"
#: Longest wake-up time (µs) of an idle state that does not affect memory latencies.
_LONG_WAKING_US = 20

#: Largest number of other programs' threads per CPU on a quiet host.
_QUIET_SHARE = 0.25


def audit(host: Host) -> list[Finding]:
    """The findings of all audits. An audit that fails is a finding too."""
    return ask(AUDITS, host, "unknown")


def _nodes_per_socket(host: Host) -> Iterator[Finding]:
    feature = "nodes per socket"
    sockets = {
        int(path.split("/cpu/cpu")[1].split("/")[0]): text
        for path, text in host.texts(f"{_CPU}/cpu[0-9]*/topology/physical_package_id").items()
    }
    nodes = [text for text in host.texts("sys/devices/system/node/node[0-9]*/cpulist").values()]
    owners = [{sockets[cpu] for cpu in ids(text) if cpu in sockets} for text in nodes if text]
    if not sockets or not any(owners):
        yield Finding(feature, "unknown", "the kernel does not say which CPUs are one socket")
        return
    if any(len(owner) > 1 for owner in owners) and host.is_guest:
        yield Finding(feature, "unknown", f"one node has CPUs of several sockets; {_HYPERVISOR}")
        return
    if any(len(owner) > 1 for owner in owners):
        yield Finding(
            feature, "spoils", "one node has CPUs of several sockets: near and far are mixed",
            "firmware setup: switch node interleaving off (EPYC: NPS1 or more, not NPS0)",
        )  # fmt: skip
        return
    most = max(Counter(next(iter(owner)) for owner in owners if owner).values())
    if most == 1:
        shown = "1, as the hypervisor shows it" if host.is_guest else "1: SNC is off, or NPS is 1"
        yield Finding(feature, "fine", shown)
    else:
        # SNC and NPS make 2 to 4 of a socket; more are its caches (EPYC: L3 as NUMA).
        why = (
            f"{most} (SNC-{most} or NPS{most}): one node's memory has 1/{most} of the channels"
            if most <= 4
            else f"{most}: these may be caches (L3 as NUMA), which share the channels"
        )
        if host.is_guest:
            why = f"{most}, as the hypervisor shows it"
        yield Finding(
            feature, "choice", why, "compare only with machines that have as many"
        )


def _transparent_huge_pages(host: Host) -> Iterator[Finding]:
    feature = "transparent huge pages"
    setting = host.read("sys/kernel/mm/transparent_hugepage/enabled")
    remedy = "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"
    if setting is None:
        yield Finding(feature, "unknown", "this kernel was built without them, or hides them")
    elif "[never]" in setting:
        yield Finding(feature, "spoils", "never: latencies have the TLB's misses in them", remedy)
    elif "[always]" in setting:
        yield Finding(
            feature, "choice", "always: other programs get them too without asking", remedy
        )
    else:
        yield Finding(feature, "fine", "madvise: who asks gets them")


def _governor(host: Host) -> Iterator[Finding]:
    feature = "frequency governor"
    found = host.texts(f"{_CPU}/cpu[0-9]*/cpufreq/scaling_governor").values()
    governors = Counter(found)
    if not governors:
        why = _HYPERVISOR if host.is_guest else "no cpufreq driver: firmware decides"
        yield Finding(feature, "unknown", why)
    elif set(governors) == {"performance"}:
        yield Finding(feature, "fine", f"performance on {plural(len(found), 'CPU')}")
    else:
        words = ", ".join(f"{name} on {number}" for name, number in sorted(governors.items()))
        driver = host.read(f"{_CPU}/cpu0/cpufreq/scaling_driver") or "unknown driver"
        yield Finding(
            feature, "spoils", f"{words} ({driver}): clocks rise only after some load",
            "sudo cpupower frequency-set -g performance",
        )  # fmt: skip


def _turbo(host: Host) -> Iterator[Finding]:
    for path, on in ((f"{_CPU}/intel_pstate/no_turbo", "0"), (f"{_CPU}/cpufreq/boost", "1")):
        value = host.read(path)
        if value is None:
            continue
        if value == on:
            yield Finding(
                "turbo", "choice", "on: clocks depend on how many cores work, and on heat",
                f"echo {1 - int(on)} | sudo tee /{path}   (steadier, slower)",
            )  # fmt: skip
        else:
            yield Finding("turbo", "fine", "off: one clock whatever the load")
        return
    why = _HYPERVISOR if host.is_guest else "no driver tells"
    yield Finding("turbo", "unknown", why)


def _idle_states(host: Host) -> Iterator[Finding]:
    feature = "idle states"
    driver = host.read(f"{_CPU}/cpuidle/current_driver")
    states: list[tuple[int, str]] = []
    for path, name in host.texts(f"{_CPU}/cpu0/cpuidle/state[0-9]*/name").items():
        folder = path.rpartition("/")[0]
        if host.read(f"{folder}/disable") != "1":
            states.append((int(host.read(f"{folder}/latency") or 0), name))
    if driver in (None, "none") and not states:
        yield Finding(feature, "unknown" if driver is None else "fine", "no idle driver")
    elif not states or max(states)[0] <= _LONG_WAKING_US:
        yield Finding(feature, "fine", f"{driver}: no state takes long to leave")
    else:
        latency, name = max(states)
        yield Finding(
            feature, "choice",
            f"{driver}: leaving {name} takes {latency} us; an idle socket slows its neighbour",
            f"sudo cpupower idle-set -D {_LONG_WAKING_US}",
        )  # fmt: skip


def _threads_per_core(host: Host) -> Iterator[Finding]:
    active = host.read(f"{_CPU}/smt/active")
    if active is None:
        yield Finding("SMT", "unknown", "the kernel does not say")
    elif active == "1":
        yield Finding(
            "SMT", "choice", "on: two threads of a core share its caches and its misses",
            "echo off | sudo tee /sys/devices/system/cpu/smt/control   (one thread per core)",
        )  # fmt: skip
    elif host.is_guest:
        yield Finding("SMT", "unknown", "the hypervisor may run two CPUs on one core")
    else:
        yield Finding("SMT", "fine", "off, or not there: each CPU is a core")


def _numa_balancing(host: Host) -> Iterator[Finding]:
    value = host.read("proc/sys/kernel/numa_balancing")
    if value in (None, "0"):
        yield Finding("NUMA balancing", "fine", "off: the kernel moves no pages behind our back")
    else:
        yield Finding(
            "NUMA balancing", "spoils",
            f"on (mode {value}): the kernel may move pages during measurements",
            "sudo sysctl kernel.numa_balancing=0",
        )  # fmt: skip


def _mitigations(host: Host) -> Iterator[Finding]:
    feature = "mitigations"
    states = list(host.texts(f"{_CPU}/vulnerabilities/*").values())
    if not states:
        yield Finding(feature, "unknown", "the kernel does not say")
        return
    mitigated = sum(state.startswith("Mitigation") for state in states)
    bare = sum(state.startswith("Vulnerable") for state in states)
    told = re.findall(r"(?:^| )(mitigations=\S+)", host.read("proc/cmdline") or "")
    words = f"{mitigated} active, {bare} left out" + (f" ({told[-1]})" if told else "")
    if mitigated == 0:
        yield Finding(feature, "choice" if bare else "fine", words)
    else:
        yield Finding(
            feature, "choice", f"{words}: system calls, faults and migration cost more",
            "compare only with machines that have the same",
        )  # fmt: skip


def _swap(host: Host) -> Iterator[Finding]:
    table = host.read("proc/swaps")
    places = [line.split()[0] for line in (table or "").splitlines()[1:] if line.split()]
    if table is None:
        yield Finding("swap", "unknown", "the kernel does not say")
    elif places:
        yield Finding(
            "swap", "choice", f"on ({', '.join(places)}): full memory slows down and does not fail",
            "sudo swapoff -a   (while measuring)",
        )  # fmt: skip
    else:
        yield Finding("swap", "fine", "off")


def _cpu_time(host: Host) -> Iterator[Finding]:
    limit = host.files.cpu_time_limit()
    allowed = len(host.allowed("Cpus"))
    if limit is None:
        yield Finding("CPU time", "fine", "no control group limits it")
        return
    if allowed and limit.cpus >= allowed:
        had = f"{limit.words} for {plural(allowed, 'CPU')} ({limit.file})"
        yield Finding("CPU time", "fine", had)
    else:
        threads = max(1, int(limit.cpus))
        of = f" of {plural(allowed, 'CPU')}" if allowed else ""
        yield Finding(
            "CPU time", "spoils",
            f"{limit.words}{of} ({limit.file} is {limit.says}): "
            f"measure uses {plural(threads, 'thread')}",
            "lift it: docker run without --cpus; systemctl set-property UNIT CPUQuota=",
        )  # fmt: skip


def _memory_limit(host: Host) -> Iterator[Finding]:
    group = host.files.memory_group()
    whole = sum(n.capacity or 0 for n in host.machine.nodes if n.byte_addressable)
    if group is None or group.limit is None or (whole and group.limit >= whole):
        yield Finding("memory limit", "fine", "no control group limits it")
    else:
        yield Finding(
            "memory limit", "spoils",
            f"{headrace.format_bytes(group.limit)} of {headrace.format_bytes(whole)} "
            f"({group.limit_file}): buffers shrink",
            "lift it: docker run without --memory; systemctl set-property UNIT MemoryMax=",
        )  # fmt: skip


def _dimms(host: Host) -> Iterator[Finding]:
    feature = "DIMMs per channel"
    try:
        slots = dmi.dimms(host.read_bytes(dmi.TABLE))
    except PermissionError:
        why, remedy = f"only root may read /{dmi.TABLE}", "sudo headrace doctor"
        yield Finding(feature, "unknown", why, remedy)
        return
    except OSError:
        yield Finding(feature, "unknown", "firmware has no SMBIOS table here")
        return
    filled = [slot for slot in slots if slot.size > 0]
    if host.is_guest or not filled:
        why = _HYPERVISOR if host.is_guest else "firmware describes no DIMM"
        yield Finding(feature, "unknown", why)
        return
    yield from _channels(slots, filled)
    slow = [slot for slot in filled if 0 < slot.running < slot.rated]
    if slow:
        yield Finding(
            "DIMM speed", "choice",
            f"{slow[0].running} MT/s, {plural(len(slow), 'DIMM')} could do {slow[0].rated}",
            "firmware setup: memory frequency; two DIMMs per channel often lower it",
        )  # fmt: skip
    elif any(slot.running for slot in filled):
        speeds = sorted({slot.running for slot in filled if slot.running})
        yield Finding("DIMM speed", "fine", f"{' and '.join(map(str, speeds))} MT/s, as rated")


def _channels(slots: list[dmi.Dimm], filled: list[dmi.Dimm]) -> Iterator[Finding]:
    feature = "DIMMs per channel"
    kinds = "/".join(sorted({slot.kind for slot in filled}))
    have = f"{len(filled)} of {plural(len(slots), 'slot')} filled with {kinds}"
    # No channel has more than three: then the letter is the socket, the number the channel (Dell).
    slots_of = Counter(slot.channel for slot in slots)
    if None in slots_of or max(slots_of.values()) > 3:
        yield Finding(feature, "unknown", f"{have}; the slots' names tell no channel")
        return
    bytes_of: Counter[str] = Counter({slot.channel or "": 0 for slot in slots})
    dimms_of: Counter[str] = Counter(slot.channel or "" for slot in filled)
    for slot in filled:
        bytes_of[slot.channel or ""] += slot.size
    empty = sum(size == 0 for size in bytes_of.values())
    if empty:
        yield Finding(
            feature, "spoils",
            f"{have}: {empty} of {plural(len(bytes_of), 'channel')} empty, bandwidth that is lost",
            "put a DIMM into each channel",
        )  # fmt: skip
    elif len(set(bytes_of.values())) > 1:
        yield Finding(
            feature, "spoils", f"{have}: channels differ in size; not all is interleaved alike",
            "fill all channels alike",
        )  # fmt: skip
    else:
        each = "/".join(str(number) for number in sorted(set(dimms_of.values())))
        channels = plural(len(bytes_of), "channel")
        yield Finding(feature, "fine", f"{each} on each of {channels}; {have}")


def _bus_counters(host: Host) -> Iterator[Finding]:
    """Counters of memory traffic, in the order of the library's find_bus_counter(): controllers,
    then caches."""
    feature = "bus counters"
    pmus = "sys/bus/event_source/devices"
    controllers = host.find(f"{pmus}/*/events/cas_count_read*") + host.find(f"{pmus}/amd_umc*")
    resctrl = "sys/fs/resctrl"
    features = (host.read(f"{resctrl}/info/L3_MON/mon_features") or "").split()
    mbm = {"mbm_total_bytes", "mbm_local_bytes"} & set(features)
    paranoid = host.read("proc/sys/kernel/perf_event_paranoid")
    if controllers and paranoid is not None and int(paranoid) <= 0:
        yield Finding(feature, "fine", "DDR's controllers count for all users: `bus_counted`")
    elif controllers:
        yield Finding(
            feature, "choice", "DDR's controllers count for root alone: `bus` is arithmetic",
            "sudo sysctl kernel.perf_event_paranoid=0, or measure as root",
        )  # fmt: skip
    elif mbm:
        yield Finding(feature, "choice", "resctrl counts the bytes of all programs")
    elif host.find(resctrl) and not features:
        yield Finding(
            feature, "choice", "resctrl is not mounted: `bus` is arithmetic",
            f"sudo mount -t resctrl resctrl /{resctrl}",
        )  # fmt: skip
    else:
        why = "no memory controller's PMU and no MBM: `bus` of rows is arithmetic"
        yield Finding(feature, "unknown", f"{why}; {_HYPERVISOR}" if host.is_guest else why)


def _other_programs(host: Host) -> Iterator[Finding]:
    """Number of other programs' threads that ran or waited for a CPU: the load average of a minute.
    """
    feature = "other programs"
    load = (host.read("proc/loadavg") or "").split()
    cpus = sum(len(node.cpus) for node in host.machine.nodes)
    if not load or not cpus:
        yield Finding(feature, "unknown", "the kernel does not say how many threads run")
        return
    why = f"{load[0]} threads wanted a CPU in the last minute, of {plural(cpus, 'CPU')}"
    if float(load[0]) <= _QUIET_SHARE * cpus:
        yield Finding(feature, "fine", why)
    else:
        remedy = "measure when they have ended; headrace measure flags disturbed rows as noisy"
        yield Finding(feature, "spoils", why, remedy)


AUDITS: tuple[Question, ...] = (
    _nodes_per_socket,
    _dimms,
    _governor,
    _turbo,
    _idle_states,
    _threads_per_core,
    _transparent_huge_pages,
    _numa_balancing,
    _swap,
    _mitigations,
    _cpu_time,
    _memory_limit,
    _bus_counters,
    _other_programs,
    setup_steps,
)
