# SPDX-License-Identifier: Apache-2.0
"""Copies by modelled DSA devices, from headrace-dsa-rates (docs/design/dsa-rates.md)."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import headrace
from headrace import _programs as programs
from headrace._errors import kind_of_exit
from headrace._isolated_calls import death
from headrace._model.constants import Constant

#: The program with the model, which a wheel does not have.
PROGRAM = "headrace-dsa-rates"
#: Those of dsa_sim/rates/rates.h.
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
    machine: headrace.Machine,
    selections: Sequence[Mapping[str, Any]],
    rounds: int,
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> list[headrace.Row]:
    """The experiment `dsa` on a model of the machine's devices, by headrace-dsa-rates: rows of the
    basis `modelled`. Copies by cores are measured on this host, `rounds` times.

    `stop` is asked at the start and after each point. When it returns true, the rows so far are
    returned.
    """
    if stop():
        return []
    with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
        described = Path(folder, "machine.json")
        described.write_text(json.dumps(machine.asdict()))
        command = [programs.find(PROGRAM), str(described), str(rounds), json.dumps(selections)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, start_new_session=True,
        ) as process:  # fmt: skip
            try:
                found = _read(process, stop, progress)
                _, said = process.communicate()
            finally:
                process.kill()
    if found is None:
        if process.returncode < 0:
            raise death(PROGRAM, process.returncode)
        reason = programs.last_line(said).removeprefix(f"{PROGRAM}: ")
        raise kind_of_exit(process.returncode)(reason)
    return [headrace.Row.fromdict(row) for row in found]


def _read(
    process: subprocess.Popen[str], stop: Callable[[], bool], progress: Callable[[int, int], object]
) -> list[dict[str, Any]] | None:
    """The rows of the last line; None: the program failed."""
    assert process.stdin is not None and process.stdout is not None
    for text in process.stdout:
        line = json.loads(text)
        if "rows" in line:
            found: list[dict[str, Any]] = line["rows"]
            return found
        progress(line["done"], line["total"])
        with contextlib.suppress(BrokenPipeError):  # it ended early: stderr has the reason
            process.stdin.write("stop\n" if stop() else "continue\n")
            process.stdin.flush()
    return None
