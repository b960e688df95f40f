# SPDX-License-Identifier: Apache-2.0
"""Checks the settings of a Xeon Max with DSA devices, by section 2.5 of C. Fürst's thesis (TU
Dresden 2024).

The steps: flat HBM, VT-d with scalable mode, all bits of addresses, a kernel with the driver, a
device on each node with CPUs. A host without DSA devices and without HBM gets one line, about its
kernel.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headrace._doctor.host import Finding, Host
from headrace._format import plural

DEVICES = "/sys/bus/dsa/devices"
#: Sapphire Rapids and Granite Rapids, and the device of later ones (drivers/dma/idxd/registers.h).
_PCI_IDS = {("0x8086", "0x0b25"), ("0x8086", "0x1212"), ("0x8086", "0x11fb")}
_LEAST_KERNEL = (5, 10)
#: Addresses of such CPUs have 52 bits; firmware that limits them says 46.
_LIMITED_BITS = 46
_OPTIONS = "intel_iommu=on,sm_on"


@dataclass(frozen=True)
class Device:
    """A DSA device that the kernel's driver has. Its node is -1 if the kernel does not know it."""

    number: int
    node: int

    @property
    def name(self) -> str:
        return f"dsa{self.number}"


def devices_in(folder: Path) -> list[Device]:
    """DSA devices, sorted by node and number. Numbers have gaps, because IAA devices count too."""
    found: list[Device] = []
    for path in folder.glob("dsa[0-9]*"):
        if match := re.fullmatch(r"dsa(\d+)", path.name):
            text = _text(path / "numa_node")
            node = int(text) if re.fullmatch(r"-?\d+", text) else -1
            found.append(Device(int(match[1]), node))
    return sorted(found, key=lambda device: (device.node, device.number))


def _text(path: Path) -> str:
    """The file's text; empty if it cannot be read, or is no file of sysfs, since a pipe would not
    end."""
    try:
        return path.read_text().strip() if path.is_file() else ""
    except OSError:
        return ""


def setup_steps(host: Host) -> Iterator[Finding]:
    present = devices_in(host.root / DEVICES[1:])
    has_dsa = bool(present) or _on_pci(host)
    yield from _kernel(host, has_dsa)
    yield from _hbm_mode(host)
    if has_dsa:
        yield from _command_line(host, present)
        yield from _address_bits(host)
        yield from _devices_against_nodes(host, present)
        yield from _tool(host)


def _on_pci(host: Host) -> bool:
    vendors = host.texts("sys/bus/pci/devices/*/vendor")
    return any(
        (vendor, host.read(path.replace("/vendor", "/device"))) in _PCI_IDS
        for path, vendor in vendors.items()
    )


def _kernel(host: Host, has_dsa: bool) -> Iterator[Finding]:
    release = host.read("proc/sys/kernel/osrelease") or ""
    match = re.match(r"(\d+)\.(\d+)", release)
    if match is None:
        yield Finding("kernel", "unknown", "its release cannot be read")
    elif (int(match[1]), int(match[2])) >= _LEAST_KERNEL:
        yield Finding("kernel", "fine", f"{release} (DSA needs 5.10)")
    else:
        yield Finding(
            "kernel", "spoils" if has_dsa else "choice",
            f"{release}: the driver for DSA came with 5.10",
            "boot a kernel of 5.10 or later",
        )  # fmt: skip


def _hbm_mode(host: Host) -> Iterator[Finding]:
    hbm = host.machine.of_kind("hbm")
    remedy = "firmware setup: Memory Hierarchy: Flat"
    if mode := host.machine.cache_mode:
        yield Finding("HBM mode", "spoils", mode.partition(";")[0], remedy)
    elif hbm:
        yield Finding("HBM mode", "fine", f"flat: HBM is {plural(len(hbm), 'node')} of its own")
    elif "CPU Max" in host.cpuinfo("model name") and not host.is_guest:
        yield Finding("HBM mode", "spoils", "this CPU has HBM, and no node is HBM", remedy)


def _command_line(host: Host, present: list[Device]) -> Iterator[Finding]:
    feature = "IOMMU, scalable mode"
    words = (host.read("proc/cmdline") or "").split()
    told = {
        option
        for word in words
        if word.startswith("intel_iommu=")
        for option in word.partition("=")[2].split(",")
    }
    enabled = [host.read(f"{DEVICES[1:]}/{device.name}/pasid_enabled") for device in present]
    if enabled and all(value == "1" for value in enabled):
        yield Finding(feature, "fine", "on: devices take addresses of processes (pasid_enabled)")
    elif {"on", "sm_on"} <= told:
        yield Finding(
            feature, "spoils" if enabled else "fine",
            "the command line has it" + (", the devices have no PASID" if enabled else ""),
            "firmware setup: VT-d: Enabled" if enabled else None,
        )  # fmt: skip
    else:
        yield Finding(
            feature, "spoils", f"the kernel's command line has no {_OPTIONS}",
            f"add {_OPTIONS} to GRUB_CMDLINE_LINUX in /etc/default/grub, then: sudo update-grub; "
            "firmware setup: VT-d: Enabled",
        )  # fmt: skip


def _address_bits(host: Host) -> Iterator[Finding]:
    match = re.match(r"(\d+) bits physical", host.cpuinfo("address sizes"))
    if match is None:
        yield Finding("address bits", "unknown", "the kernel does not say")
    elif int(match[1]) > _LIMITED_BITS:
        yield Finding("address bits", "fine", f"{match[1]} physical")
    else:
        yield Finding(
            "address bits", "spoils", f"{match[1]} physical: firmware limits them",
            "firmware setup: Limit CPU PA to 46 bits: Disabled",
        )  # fmt: skip


def _devices_against_nodes(host: Host, present: list[Device]) -> Iterator[Finding]:
    feature = "DSA devices by node"
    nodes = [node.id for node in host.machine.nodes if node.cpus]
    here = ", ".join(f"{device.name} on node {device.node}" for device in present)
    if not present:
        yield Finding(
            feature, "spoils", "devices on PCI, none with the driver", "sudo modprobe idxd"
        )
        return
    if any(device.node < 0 for device in present):
        yield Finding(
            feature, "unknown", f"the kernel knows no node of {present[0].name}",
            "look for firmware that describes PCI roots with their nodes (_PXM)",
        )  # fmt: skip
        return
    without = [str(node) for node in nodes if node not in {device.node for device in present}]
    if without:
        yield Finding(
            feature, "spoils", f"{here}; no device on node {', '.join(without)}",
            "sudo dmesg | grep idxd   (firmware setup: enable all devices)",
        )  # fmt: skip
    else:
        yield Finding(
            feature, "fine", f"{plural(len(present), 'device')} for {plural(len(nodes), 'node')} "
            "with CPUs",
        )  # fmt: skip


def _tool(host: Host) -> Iterator[Finding]:
    if host.is_this and shutil.which("accel-config") is None:
        yield Finding(
            "accel-config", "choice", "not installed: queues are set up by hand",
            "sudo apt-get install accel-config",
        )  # fmt: skip
