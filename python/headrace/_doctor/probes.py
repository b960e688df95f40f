# SPDX-License-Identifier: Apache-2.0
"""State of each feature on this host: whether it works, why, and what would change it.

Each probe reads the kernel's files below the host's root, or tries the feature. None changes
anything. audit.py has the effect of settings on measurements.
"""

from __future__ import annotations

import os
import platform
import resource
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import headrace
from headrace._doctor.host import Finding, Host, Question, ask
from headrace._format import installing, plural

#: ready: works in full. limited: works in part. off: exists but cannot be used. absent: not on this
#: host, and no command changes that.
STATES = ("ready", "limited", "off", "absent")


def examine(host: Host) -> list[Finding]:
    """The findings of all probes. A probe that fails is a finding too."""
    return ask(PROBES, host, "limited")


def _numa_binding(host: Host) -> Iterator[Finding]:
    feature = "NUMA binding"
    memories = [n for n in host.machine.nodes if n.byte_addressable and n.capacity != 0]
    allowed = host.allowed("Mems")
    usable = [node for node in memories if not allowed or node.id in allowed]
    try:
        for node in usable:
            placement = headrace.Placement.on(node.id, pages="base")
            headrace.where(headrace.allocate(host.machine, 4096, placement))
    except headrace.Error as error:
        yield Finding(
            feature, "off", str(error),
            "in a container: docker run --cap-add SYS_NICE ... (mbind and move_pages need it)",
        )  # fmt: skip
        return
    ready = f"pages can be bound to {plural(len(usable), 'memory node')}"
    outside = [str(node.id) for node in memories if node not in usable]
    if not outside:
        yield Finding(feature, "ready", ready)
        return
    everything = ",".join(str(node.id) for node in memories)
    yield Finding(
        feature, "limited", f"{ready}; this process's cpuset leaves out node {', '.join(outside)}",
        f"widen cpuset.mems; in a container: docker run --cpuset-mems={everything} ...",
    )  # fmt: skip


def _huge_pages(host: Host) -> Iterator[Finding]:
    for name, kilobytes, wanted in (("2 MiB", 2048, 512), ("1 GiB", 1048576, 1)):
        pool = f"sys/kernel/mm/hugepages/hugepages-{kilobytes}kB"
        feature, total = f"huge pages {name}", host.read(f"{pool}/nr_hugepages")
        if total is None:
            yield Finding(feature, "absent", "this CPU or kernel has none of this size")
            continue
        free = host.read(f"{pool}/free_hugepages") or "0"
        if int(free) > 0:
            yield Finding(feature, "ready", f"{free} of {total} are free")
            continue
        why = "none are reserved" if total == "0" else f"all {total} are in use"
        yield Finding(
            feature, "off", f"{why}; transparent huge pages serve instead",
            f"echo {int(total) + wanted} | sudo tee /{pool}/nr_hugepages",
        )  # fmt: skip


def _io_uring(host: Host) -> Iterator[Finding]:
    backends = headrace.Backends.open(host.machine).capabilities
    notes = [facts.note for facts in backends if facts.name == "storage"]
    disabled = host.read("proc/sys/kernel/io_uring_disabled")
    if not notes:
        yield Finding("io_uring", "absent", "this machine has no storage node")
    elif notes[0].startswith("io_uring"):
        yield Finding("io_uring", "ready", notes[0])
    elif disabled not in (None, "0"):
        yield Finding(
            "io_uring", "off", f"kernel.io_uring_disabled is {disabled}; {notes[0]}",
            "sudo sysctl kernel.io_uring_disabled=0",
        )  # fmt: skip
    else:
        yield Finding(
            "io_uring", "off", notes[0],
            "in a container: docker run --security-opt seccomp=unconfined ...",
        )  # fmt: skip


def _direct_reads(host: Host) -> Iterator[Finding]:
    feature = "O_DIRECT"
    try:
        with tempfile.NamedTemporaryFile(prefix=".headrace-doctor.", dir=host.data) as file:
            file.write(bytes(4096))
            file.flush()
            direct = headrace.File.open(host.machine, file.name).direct
    except OSError as error:
        yield Finding(
            feature, "off", f"cannot try in {host.data}: {error.strerror or error}",
            "headrace doctor --data DIRECTORY (one you can write to)",
        )  # fmt: skip
        return
    if direct:
        yield Finding(feature, "ready", f"reads in {host.data} can go past the page cache")
    else:
        yield Finding(
            feature, "off",
            f"the file system of {host.data} refuses it; the page cache is in between",
            "export HEADRACE_DATA=DIRECTORY (one on ext4, xfs or btrfs on the device itself)",
        )  # fmt: skip


def _locked_memory(host: Host) -> Iterator[Finding]:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    #: Space for the registered buffers of a few storage queues.
    enough = 64 << 20
    if os.geteuid() == 0 or soft == resource.RLIM_INFINITY or soft >= enough:
        limit = "no limit" if soft == resource.RLIM_INFINITY else headrace.format_bytes(soft)
        why = f"{limit}, and root needs none" if os.geteuid() == 0 else limit
        yield Finding("locked memory", "ready", why)
    else:
        yield Finding(
            "locked memory", "limited",
            f"limited to {headrace.format_bytes(soft)}: fewer registered buffers",
            "echo '* - memlock unlimited' | sudo tee /etc/security/limits.d/headrace.conf",
        )  # fmt: skip


def _fast_memory(host: Host) -> Iterator[Finding]:
    for kind in ("hbm", "cxl"):
        found = host.machine.of_kind("hbm" if kind == "hbm" else "cxl")
        if found:
            names = ", ".join(str(node.id) for node in found)
            yield Finding(f"{kind.upper()} memory", "ready", f"node {names}: {found[0].reason}")
            continue
        idle = [p.name for p in host.find("sys/bus/dax/devices/dax*") if _is_device_dax(p)]
        if kind == "cxl" and idle:
            yield Finding(
                "CXL memory", "off", f"{', '.join(idle)} in device mode, not a memory node",
                f"sudo daxctl reconfigure-device --mode=system-ram {idle[0]}",
            )  # fmt: skip
        elif kind == "hbm" and (mode := host.machine.cache_mode):
            yield Finding(
                "HBM memory", "off", mode.partition(";")[0],
                "firmware setup: Memory Hierarchy: Flat",
            )  # fmt: skip
        else:
            yield Finding(
                f"{kind.upper()} memory", "absent",
                f"no node is {kind}; if one is, say so: export HEADRACE_NODES=N={kind}",
            )  # fmt: skip


def _is_device_dax(device: Path) -> bool:
    driver = device / "driver"
    return driver.exists() and driver.resolve().name == "device_dax"


def _hmat(host: Host) -> Iterator[Finding]:
    if host.find("sys/devices/system/node/node*/access0/initiators/read_bandwidth"):
        yield Finding("HMAT", "ready", "firmware rates the memory; topo shows it")
    else:
        yield Finding(
            "HMAT", "absent",
            "firmware does not rate the memory; kinds are decided by other evidence",
        )  # fmt: skip


def _dsa(host: Host) -> Iterator[Finding]:
    for found in headrace.examine_dsa(
        sysfs=None if host.is_this else host.root / "sys/bus/dsa/devices",
        dev=None if host.is_this else host.root / "dev/dsa",
        pci=host.root / "sys/bus/pci/devices",
    ):
        name = f"Intel DSA {found.name}".strip()
        yield Finding(name, found.state, found.why, found.remedy or None)


def _gpu(host: Host) -> Iterator[Finding]:
    if not host.is_this:
        yield from _gpu_without_driver(host, "no driver")
        return
    try:
        driver = headrace.gpu_driver()
    except headrace.UnsupportedError as error:
        yield Finding("NVIDIA GPU", "off", str(error))
        return
    except headrace.Error as error:
        yield from _gpu_without_driver(host, str(error))
        return
    for node in host.machine.nodes:
        if node.gpu is not None:
            mark = "; emulated" if node.gpu.emulated else ""
            why = f"{node.name}: {driver}, {node.gpu.paradigm}{mark}"
            yield Finding("NVIDIA GPU", "ready", why)


def _gpu_without_driver(host: Host, why: str) -> Iterator[Finding]:
    version = host.read("proc/driver/nvidia/version")
    displays = [
        path.name
        for path in host.find("sys/bus/pci/devices/*")
        if host.read(f"sys/bus/pci/devices/{path.name}/vendor") == "0x10de"
        and (host.read(f"sys/bus/pci/devices/{path.name}/class") or "").startswith("0x03")
    ]
    if version:
        yield Finding("NVIDIA GPU", "off", f"{version.splitlines()[0]}; {why}")
    elif displays:
        yield Finding(
            "NVIDIA GPU", "off", f"at {displays[0]}: {why}",
            "sudo apt-get install nvidia-driver  (from Debian's non-free section)",
        )  # fmt: skip
    else:
        yield Finding("NVIDIA GPU", "absent", f"no such device ({why})")


def _vector_units(host: Host) -> Iterator[Finding]:
    flags = host.cpuinfo("flags").split()
    best = next((n for n, f in (("AVX-512", "avx512f"), ("AVX2", "avx2")) if f in flags), None)
    kernel = headrace.chosen_copy_kernel()
    if best is None:
        why = f"SSE2 only ({platform.machine()})"
        yield Finding("vector copies", "limited", f"{why}; cold copies use {kernel}")
    else:
        yield Finding("vector copies", "ready", f"{best}; cold copies use {kernel}")


def _counters(host: Host) -> Iterator[Finding]:
    feature = "hardware counters"
    paranoid = host.read("proc/sys/kernel/perf_event_paranoid")
    if not host.find("sys/bus/event_source/devices/cpu*"):
        yield Finding(feature, "absent", "no CPU counters (a virtual machine without them)")
    elif paranoid is not None and int(paranoid) > 1 and os.geteuid() != 0:
        yield Finding(
            feature, "off", f"kernel.perf_event_paranoid is {paranoid}",
            "sudo sysctl kernel.perf_event_paranoid=1",
        )  # fmt: skip
    else:
        yield Finding(feature, "ready", "the CPU's counters can be read")


def _python_extras(_: Host) -> Iterator[Finding]:
    extras = {"reports": ("altair", "jinja2", "vl_convert"), "query data": ("duckdb",)}
    for feature, modules in extras.items():
        missing = [module for module in modules if find_spec(module) is None]
        if missing:
            yield Finding(feature, "off", f"no {', '.join(missing)}", installing(missing))
        else:
            yield Finding(feature, "ready", f"{', '.join(modules)} installed")


PROBES: tuple[Question, ...] = (
    _numa_binding,
    _huge_pages,
    _io_uring,
    _direct_reads,
    _locked_memory,
    _fast_memory,
    _hmat,
    _dsa,
    _gpu,
    _vector_units,
    _counters,
    _python_extras,
)
