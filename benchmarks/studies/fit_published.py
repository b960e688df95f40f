#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fits the published loaded-latency curves of the CXL machine and draws its preset's rows.

    benchmarks/studies/fit_published.py DATA.tsv
        rewrites the fits and fitted rows of machines/cxl-a1000.json

DATA.tsv holds the logs of github.com/bytedance/eurosys24-artifacts as one table with the columns
mem, src_cpus, W, random, threads, delay, lat_ns, bw_MBps, cmd; it is not part of this project. The
formulas, what was left out and the errors: docs/design/published.md. Needs numpy.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

MACHINE = Path(__file__).resolve().parents[2] / "machines" / "cxl-a1000.json"
SOURCE = (
    "fit to MLC 3.10 logs, 16 threads (Tang et al., EuroSys 2024, artifact; "
    "docs/design/published.md)"
)
#: MLC's traffic -> our mix that causes it, and bytes over the bus per byte that a program reads or
#: writes. MLC names and counts what the memory controller sees, where a plain store reads too.
MIXES = {
    "0": ("read", 1), "3": ("2:1", 4 / 3), "2": ("1:1", 3 / 2), "5": ("write", 2),
    "6": ("nt_write", 1),
}  # fmt: skip
#: Log (memory, CPUs of the load, latency thread moved there too) -> (CPU node, memory node), mixes.
CURVES = {
    ("ddr5", "d0", False): ((0, 0), "03256"),
    ("cxl", "d0", False): ((0, 8), "03256"),
    ("ddr5", "d7", True): ((7, 0), "0"),
    ("cxl", "d3", True): ((7, 8), "0325"),
}
#: MLC's delays (of nineteen) that show the curve.
DELAYS = (0, 50, 100, 200, 300, 400, 500, 700, 1000, 1700, 3500, 9000, 20000)


def bandwidth(delay: Any, fit: dict[str, float]) -> Any:
    """GB/s that the load reaches: its best, or one burst per delay, whichever is less."""
    with np.errstate(divide="ignore"):
        slow = (np.asarray(delay, float) / fit["burst"]) ** fit["corner"]
    fast = (1 / (fit["best"] - fit["observer"])) ** fit["corner"]
    return fit["observer"] + (fast + slow) ** (-1 / fit["corner"])


def latency(reached: Any, fit: dict[str, float]) -> Any:
    """ns of a load beside a traffic in GB/s, by a queue of bounded length."""
    used = np.minimum(reached / fit["best"], 1)
    return fit["idle"] + fit["rise"] * used / (1 - fit["bend"] * used)


def fit_bandwidth(delay: Any, reached: Any) -> dict[str, float]:
    best = float(np.median(reached[delay <= 15]))
    tried = [
        {"best": best, "burst": burst, "corner": corner, "observer": observer}
        for observer in np.linspace(0, reached.min() * 0.95, 20)
        for corner in (2, 3, 4, 5, 6, 8, 12, 16)
        for burst in np.geomspace(500, 80000, 300)
    ]
    return rounded(min(tried, key=lambda fit: miss(bandwidth(delay, fit), reached)))


def fit_latency(reached: Any, found: Any, best: float) -> dict[str, float]:
    tried = [
        {"best": best, "idle": idle, "rise": rise, "bend": 1 - rest}
        for idle in np.linspace(found.min() * 0.95, found.min() * 1.25, 30)
        for rest in np.geomspace(0.002, 1, 60)
        for rise in np.geomspace(0.05, 400, 120)
    ]
    return rounded(min(tried, key=lambda fit: miss(latency(reached, fit), found)))


def miss(said: Any, found: Any) -> float:
    return float((np.log(said / found) ** 2).sum())


def rounded(fit: dict[str, float]) -> dict[str, float]:
    """The fit with rounded numbers, as in the preset. Rows are drawn from these."""
    return {name: number(value) for name, value in fit.items()}


def errors(said: Any, found: Any) -> str:
    off = np.abs(said / found - 1) * 100
    return f"{np.median(off):.1f} % in the middle, {off.max():.0f} % at most"


def curves(table: Path) -> Iterator[tuple[int, int, str, Any]]:
    points: dict[tuple[tuple[str, str, bool], str], list[tuple[float, float, float]]] = {}
    with table.open(newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            if row["random"] == "0" and row["threads"] == "16":
                where = (row["mem"], row["src_cpus"], "-c191" in row["cmd"])
                point = (float(row["delay"]), float(row["lat_ns"]), float(row["bw_MBps"]) / 1e3)
                points.setdefault((where, row["W"]), []).append(point)
    for where, ((cpu, memory), codes) in CURVES.items():
        for code in codes:
            yield cpu, memory, code, np.array(sorted(points[where, code]))


def rows(cpu: int, memory: int, code: str, fit: dict[str, float]) -> Iterator[dict[str, Any]]:
    mix, bus = MIXES[code]
    for delay in DELAYS:
        reached = float(bandwidth(delay, fit))
        details = {"bandwidth": number(reached / bus * 1e9), "bus": number(reached * 1e9)}
        yield {
            "experiment": "loaded",
            "parameters": {
                "cpu_node": cpu, "memory_node": memory, "traffic_cpu_node": cpu,
                "traffic_memory_node": memory, "mix": mix, "delay_ns": delay,
            },
            "unit": "ns", "median": number(latency(reached, fit)), "details": details,
            "flags": ["fitted"], "source": SOURCE,
        }  # fmt: skip
    if mix not in ("read", "nt_write"):  # these are quoted
        yield {
            "experiment": "bandwidth",
            "parameters": {"cpu_node": cpu, "memory_node": memory, "mix": mix, "threads": 16},
            "unit": "B/s", "median": number(fit["best"] / bus * 1e9),
            "details": {"bus": number(fit["best"] * 1e9)}, "flags": ["fitted"], "source": SOURCE,
        }  # fmt: skip


def number(value: float) -> float:
    """Four digits, as the fits have."""
    return float(f"{value:.4g}")


def text_of(document: dict[str, Any]) -> str:
    """JSON with one line per node, engine, rate and row, as people read and compare it."""
    parts = []
    for name, value in document.items():
        if isinstance(value, (list, dict)) and value:
            many = isinstance(value, list)
            items = value if isinstance(value, list) else value.items()
            lines = [
                one(each) if many else f"{one(each[0])}: {one(each[1])}" for each in items
            ]
            inner = ",\n    ".join(lines)
            text = f"[\n    {inner}\n  ]" if many else f"{{\n    {inner}\n  }}"
        else:
            text = one(value)
        parts.append(f"  {one(name)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def one(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def main(table: Path) -> None:
    document = json.loads(MACHINE.read_text())
    conditions = {k: v for k, v in document["conditions"].items() if not k.startswith("fit ")}
    kept = [row for row in document["rows"] if "fitted" not in row.get("flags", [])]
    for cpu, memory, code, points in curves(table):
        delay, found, reached = points.T
        fit = fit_bandwidth(delay, reached)
        fit |= fit_latency(np.minimum(reached, fit["best"]), found, fit["best"])
        said = bandwidth(delay, fit)
        numbers = " ".join(f"{name}={value:g}" for name, value in sorted(fit.items()))
        conditions[f"fit {cpu} {memory} {MIXES[code][0]}"] = (
            f"{numbers}; latency off by {errors(latency(said, fit), found)}; bus off by "
            f"{errors(said, reached)}"
        )
        kept += rows(cpu, memory, code, fit)
    MACHINE.write_text(text_of(document | {"conditions": conditions, "rows": kept}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
