# SPDX-License-Identifier: Apache-2.0
"""What the numbers of a document rest on: every document says it."""

from __future__ import annotations

from pathlib import Path

from headrace import _core

#: What was measured on GPUs made of software rests on.
EMULATED_GPUS = {"level": "emulation", "detail": "a GPU made of software, whose speed says nothing"}


def rests_on(machine: _core.Machine) -> dict[str, str]:
    """Which of the four kinds of truth the numbers rest on, and why it is said.

    Real hardware; a guest, a small virtual machine whose memory kinds are only names; a model; or
    published figures. A benchmark runs, so it is one of the first two.
    """
    vendor = _read("/sys/class/dmi/id/sys_vendor")
    virtual = " hypervisor" in _read("/proc/cpuinfo")
    kinds = {node.kind for node in machine.nodes}
    if virtual and vendor == "QEMU" and kinds & {"hbm", "cxl"}:
        return {
            "level": "guest",
            "detail": "a virtual machine with a chosen topology: placement is real, speeds are not",
        }
    where = f"a virtual machine of {vendor}" if virtual and vendor else "a virtual machine"
    return {
        "level": "real hardware",
        "detail": f"measured here, in {where}" if virtual else "measured here",
    }


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""
