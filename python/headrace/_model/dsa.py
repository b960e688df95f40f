# SPDX-License-Identifier: Apache-2.0
"""Copies by modelled DSA devices, from headrace-dsa-rates (docs/design/dsa-rates.md)."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import headrace
from headrace import _programs as programs
from headrace._model.constants import Constant

#: The program with the model, which a wheel does not have.
PROGRAM = "headrace-dsa-rates"
#: Repetitions of copies by cores.
_ROUNDS = "3"
_SECONDS = 600.0
#: The constants of dsa_sim/rates/rates.h.
CONSTANTS = [
    Constant("device", 31.17e9, "B/s", "published", "intel/DML issue 25 (16 KiB, dedicated queue)"),
    Constant("ENQCMD", 263, "ns", "fitted", "shared queues are slower up to 8 KiB (Kuper et al.)"),
    Constant("MOVDIR64B", 33, "ns", "assumed", "at most the time of 1 KiB"),
    Constant("write()", 100, "ns", "assumed", "published is only: within the noise of ENQCMD"),
    Constant("start-up", 597, "ns", "fitted", "with one ENQCMD 0.86 us (intel/DTO's README)"),
    Constant("DDR of a tile", 96 * 2.0**30, "B/s", "fitted",
             "brute force from node 0 to 15: 96 GiB/s (Fürst 2024, 3.2.3)"),
    Constant("between tiles, each way", 58.5 * 2.0**30, "B/s", "fitted",
             "smart to node 11: 18 GiB/s below brute force (Fürst 2024, 3.2.3)"),
]  # fmt: skip


def rows(
    machine: headrace.Machine, selections: Sequence[Mapping[str, Any]],
    stop: Callable[[], bool] = lambda: False,
) -> list[headrace.Row]:  # fmt: skip
    """The experiment `dsa` on a model of the machine's devices: rows of the basis `modelled`, and
    copies by cores of this host, which are measured. CancelledError: `stop` returned true.
    """
    with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
        described = Path(folder, "machine.json")
        described.write_text(json.dumps(machine.asdict()))
        command = [programs.find(PROGRAM), str(described), _ROUNDS, json.dumps(selections)]
        done = programs.ended(command, _SECONDS, stop)
    found = json.loads(programs.last_line(done.stdout))["rows"]
    return [headrace.Row.fromdict(row) for row in found]
