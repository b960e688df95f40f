# SPDX-License-Identifier: Apache-2.0
"""A key-value store in the configurations of a talk (P. Zhou, MemCon 2024): modelled by
headrace-bench-kv.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace._bench import programs

PROGRAM = "headrace-bench-kv"
WORKLOADS = ("A", "B", "C", "D")
#: What the talk says of each configuration; of CXL nothing.
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
    "kernel": "",
}
#: A model of all workloads takes seconds.
_MODEL_SECONDS = 600.0


@dataclass(frozen=True)
class ModelOptions:
    machine: str
    workloads: list[str]
    records: int
    value: int
    threads: int
    clients: int
    seed: int


def model(options: ModelOptions, stop: Callable[[], bool]) -> dict[str, Any]:
    """Rows and checks. CancelledError: `stop` returned true."""
    command = [
        programs.find(PROGRAM), "--machine", options.machine, "--records", str(options.records),
        "--value", str(options.value), "--threads", str(options.threads),
        "--clients", str(options.clients), "--seed", str(options.seed),
    ]  # fmt: skip
    for workload in options.workloads:
        command += ["--workload", workload]
    return programs.answer(command, _MODEL_SECONDS, stop)
