# SPDX-License-Identifier: Apache-2.0
"""Keys and values of a known prompt: loaded to a GPU from each memory, or computed again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import headrace
from headrace import _language_models
from headrace._cli import parse
from headrace_bench.llm import prefill
from headrace_bench.predict.answer import Column, Row
from headrace_bench.predict.command import Axis, Workload, command_of, number
from headrace_bench.predict.target import KINDS, Binding, Estimate, Speed, Target

COLUMNS = (Column("time", "s"), Column("load", "B/s"), Column("of recompute", "x"))


def predict(target: Target, settings: Mapping[str, Any]) -> list[Row]:
    engines = [e for e in target.document["engines"] if e["kind"] == "gpu"]
    if not engines:
        raise headrace.UnsupportedError(
            f"{target.name} has no GPU to load to; take --machine h200 or gh200"
        )
    model = _language_models.model(settings["model"])
    known, new = settings["cached"], settings["new"]
    size = float(model.kv_bytes(known))
    operations = settings["tflops"] * 1e12
    again = 2.0 * model.layers * model.token_parameters * known / operations
    compute = 2.0 * model.layers * model.token_parameters * new / operations
    again_time = _around(again + compute, 0.3)
    rows = [
        Row(
            "computed again",
            {"time": again_time, "load": None, "of recompute": _one()},
            Binding("GPU: computing", "assumed", f"{settings['tflops']:g} TFLOP/s as given"),
        )
    ]
    engine = engines[0]
    for kind in ("dram", "hbm", "cxl"):
        for node in target.of_kind(kind)[:1]:
            speed = load(target, engine, node)
            rows += _rows(KINDS[kind], model.layers, size, speed, compute, again + compute)
    return rows


def load(target: Target, engine: Mapping[str, Any], node: int) -> Speed:
    """How fast a GPU's copy engine reads a node into its memory."""
    flow = {
        "name": engine["name"], "threads": 1, "initiator": node, "engine": engine["name"],
        "accesses": [{"node": node, "kind": "read", "bytes": 1.0},
                     {"node": engine["home"], "kind": "write", "bytes": 1.0}],
        "cap_bytes_per_second": 1e12,
    }  # fmt: skip
    return target.solve([flow])[0]


def _rows(
    words: str, layers: int, size: float, speed: Speed, compute: float, again: float
) -> list[Row]:
    rows = []
    for policy in ("layerwise", "load-first"):
        ends = [
            prefill.timeline(policy, layers, size / rate / layers, compute / layers).seconds
            for rate in (speed.rate.value, speed.rate.high, speed.rate.low)
        ]
        time = Estimate(*ends)
        values = {"time": time, "load": speed.rate, "of recompute": time.scaled(1 / again)}
        rows.append(Row(f"{words}, {policy}", values, speed.binds, given=policy == "layerwise"))
    return rows


def _one() -> Estimate:
    return Estimate(1.0, 1.0, 1.0)


def _around(value: float, doubt: float) -> Estimate:
    return Estimate(value, value * (1 - doubt), value * (1 + doubt))


WORKLOAD = Workload(
    "kvcache",
    "Predict loading a prompt's KV cache, or computing it.",
    """The prompt has tokens whose keys and values are known, and new ones. Loads
    are layer by layer while the layers before are computed, or all first.

    \b
    headrace predict kvcache --machine h200
    headrace predict kvcache --machine h200 --sweep cached=1024,16384,131072""",
    (
        Axis("model", "NAME", str, "llama-3.1-8b", "Language model."),
        Axis("cached", "TOKENS", lambda text: int(parse.size(text)), "16384",
             "Number of tokens with known keys and values."),
        Axis("new", "TOKENS", lambda text: int(parse.size(text)), "512", "Number of new tokens."),
        Axis("tflops", "NUMBER", number("number of TFLOP/s", 400), "400",
             "Computing rate of the GPU, TFLOP/s."),
    ),
    COLUMNS,
    predict,
    "h200",
)  # fmt: skip
command = command_of(WORKLOAD)
