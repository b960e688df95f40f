# SPDX-License-Identifier: Apache-2.0
"""Settings of firmware and CPUs that a profile records among its conditions.

They affect measurements, and may differ between hosts that should be alike. An unknown setting has
the reason.
"""

from __future__ import annotations

import errno
from collections import Counter

from headrace._core import format_bytes
from headrace._doctor import dmi
from headrace._doctor.host import Host
from headrace._format import plural

_MSR = "dev/cpu/0/msr"
_HYPERVISOR = "unknown: the hypervisor decides"
#: For each maker of CPUs, the register and the prefetcher that each bit switches off. Sources:
#: Intel, Software Developer's Manual, volume 4, MSR_MISC_FEATURE_CONTROL; AMD, PPR of family 19h,
#: models 10h and on, MSRC000_0108. Other models have other bits.
_PREFETCHERS = {
    "GenuineIntel": (0x1A4, {0: "L2 stream", 1: "L2 adjacent line", 2: "L1 stream", 3: "L1 IP"}),
    "AuthenticAMD": (
        0xC0000108,
        {0: "L1 stream", 1: "L1 stride", 2: "L1 region", 3: "L2 stream", 5: "L2 up/down"},
    ),
}


def settings(host: Host) -> dict[str, str]:
    """Conditions of a profile, name to text."""
    return {
        "bios": _bios(host), "dimms": _dimms(host), "hbm_mode": _hbm_mode(host),
        "nodes_per_socket": _nodes_per_socket(host), "prefetchers": _prefetchers(host),
    }  # fmt: skip


def _bios(host: Host) -> str:
    names = ("vendor", "version", "date")
    words = [host.read(f"sys/class/dmi/id/bios_{name}") for name in names]
    return " ".join(word for word in words if word) or "unknown"


def _dimms(host: Host) -> str:
    """ "16 of 32 slots: DDR5 32 GiB 4800 MT/s"."""
    if host.is_guest:
        return _HYPERVISOR
    try:
        slots = dmi.dimms(host.read_bytes(dmi.TABLE))
    except PermissionError:
        return "unknown: only root may read them"
    except OSError:
        return "unknown: no SMBIOS table"
    filled = Counter(
        f"{slot.kind} {format_bytes(slot.size)}" + (f" {slot.running} MT/s" if slot.running else "")
        for slot in slots if slot.size > 0
    )  # fmt: skip
    kinds = [
        kind if number == filled.total() else f"{number} x {kind}"
        for kind, number in sorted(filled.items())
    ]
    if not kinds:
        return "unknown: firmware describes none"
    return f"{filled.total()} of {plural(len(slots), 'slot')}: {', '.join(kinds)}"


def _hbm_mode(host: Host) -> str:
    """The mode of HBM that forms nodes. HBM as a cache has the condition cache_mode."""
    kinds = {node.kind for node in host.machine.nodes if node.capacity != 0}
    if "hbm" not in kinds:
        return "no HBM nodes"
    return "flat" if "dram" in kinds else "HBM only"


def _nodes_per_socket(host: Host) -> str:
    nodes = host.machine.asdict()["nodes"]
    sockets = Counter(node["socket"] for node in nodes if node["cpus"] and "socket" in node)
    found = "/".join(str(number) for number in sorted(set(sockets.values()))) or "unknown"
    return f"{found}, as the hypervisor shows it" if host.is_guest else found


def _prefetchers(host: Host) -> str:
    register, bits = _PREFETCHERS.get(host.cpuinfo("vendor_id"), (0, {}))
    if host.is_guest or not bits:
        return _HYPERVISOR if host.is_guest else "unknown"
    try:
        with (host.root / _MSR).open("rb", buffering=0) as file:
            file.seek(register)
            value = int.from_bytes(file.read(8), "little")
    except PermissionError:
        return "unknown: only root may read them, and not under kernel lockdown"
    except OSError as error:
        if error.errno == errno.EIO:
            return "unknown: this CPU model has no such register"
        return "unknown: takes the kernel's module msr; sudo modprobe msr"
    off = [name for bit, name in bits.items() if value >> bit & 1]
    return f"off: {', '.join(off)}" if off else "on"
