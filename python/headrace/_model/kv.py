# SPDX-License-Identifier: Apache-2.0
"""A key-value store in the configurations of a talk (P. Zhou, MemCon 2024): modelled by
headrace-bench-kv (docs/design/workloads/kv-model.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace import _programs as programs
from headrace._model.constants import Constant

PROGRAM = "headrace-bench-kv"
WORKLOADS = ("A", "B", "C", "D")
#: Words of the talk on each configuration; it has none on CXL.
TALK = {
    "MMEM": "entire working set in main memory",
    "MMEM-SSD-0.2": "20 % of the working set spilled to SSD",
    "MMEM-SSD-0.4": "40 % of the working set spilled to SSD",
    "3:1": "naive interleaving: significant performance drop",
    "1:1": "naive interleaving: significant performance drop",
    "1:3": "naive interleaving: significant performance drop",
    "CXL": "",
    "Hot-Promote": "nearly as well as local DRAM",
    "best share": "",
}
#: A model of all workloads takes seconds.
_MODEL_SECONDS = 600.0


@dataclass(frozen=True)
class Options:
    machine: str
    workloads: list[str]
    records: int
    value: int
    threads: int
    clients: int
    seed: int


def model(options: Options, stop: Callable[[], bool]) -> dict[str, Any]:
    """Rows and checks. CancelledError: `stop` returned true."""
    command = [
        programs.find(PROGRAM), "--machine", options.machine, "--records", str(options.records),
        "--value", str(options.value), "--threads", str(options.threads),
        "--clients", str(options.clients), "--seed", str(options.seed),
    ]  # fmt: skip
    for workload in options.workloads:
        command += ["--workload", workload]
    return programs.answer(command, _MODEL_SECONDS, stop)


def constants(fitted: dict[str, float]) -> list[Constant]:
    """The constants in the `fitted` of an answer, with what they were fitted to."""
    return [
        Constant("CPU time of an operation", fitted["cpu_ns"] / 1e3, "us", "fitted",
                 "Redis 7.0.15 on one VM: 10.4 us of CPU time in DRAM (zipf, 1 KB)"),
        Constant("cache lines awaited in turn", fitted["dependent_lines"], "lines", "fitted",
                 "3:1 and 1:3 are 1.2 and 1.5 times slower than MMEM, workload C"),
        Constant("more if the record is on SSD", fitted["ssd_ns"] / 1e3, "us", "fitted",
                 "both SSD shares are 1.8 times slower than MMEM, workloads A and C"),
    ]  # fmt: skip
