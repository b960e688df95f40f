# SPDX-License-Identifier: Apache-2.0
"""The source of a document's numbers. Every document states it."""

from __future__ import annotations

from headrace import _core

#: The basis of measurements on GPUs made of software.
EMULATED_GPUS = {"level": "emulation", "detail": "a GPU made of software, whose speed says nothing"}


def rests_on(machine: _core.Machine, measured: str = "measured here") -> dict[str, str]:
    """The basis of the numbers, one of four, and the reason for it.

    The four: real hardware; a guest, a small virtual machine whose memory kinds are only names; a
    model; published figures. A benchmark has one of the first two. `measured`: words for the place
    of the measurement.
    """
    virtual = machine.provenance.get("hypervisor") == "yes"
    system = machine.provenance.get("system", "")
    kinds = {node.kind for node in machine.nodes}
    if virtual and system.startswith("QEMU") and kinds & {"hbm", "cxl"}:
        return {
            "level": "guest",
            "detail": "a virtual machine with a chosen topology: placement is real, speeds are not",
        }
    where = f", in a virtual machine ({system})" if system else ", in a virtual machine"
    return {"level": "real hardware", "detail": measured + (where if virtual else "")}
