# SPDX-License-Identifier: Apache-2.0
"""Keys and values of known prompts: loaded to a GPU from each memory or from an SSD, or computed
again. KV store and Mover are those of production, in virtual time (benchmarks/kvcache).
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import headrace
from headrace import _language_models
from headrace._cli import parse
from headrace_bench import _core
from headrace_bench.llm import trace
from headrace_bench.predict.answer import Column, Row
from headrace_bench.predict.command import Axis, Workload, command_of, count, number, size_of
from headrace_bench.predict.target import KINDS, Binding, Estimate, Speed, Target, exactly

COLUMNS = (Column("time", "s"), Column("load", "B/s"), Column("of again", "x"))
#: In the order of layers, or all first.
POLICIES = {"layerwise": True, "load-first": False}
#: The ends of the time to compute, by its value: TFLOP/s are assumed.
_COMPUTING = (0.7, 1.3)
#: Blocks of a tier lie in whole pages.
_PAGE = 4096


def predict(target: Target, settings: Mapping[str, Any]) -> list[Row]:
    engines = [e for e in target.document["engines"] if e["kind"] == "gpu"]
    if not engines:
        raise headrace.UnsupportedError(
            f"{target.name} has no GPU to load to; take --machine h200 or gh200"
        )
    run = Prompts(target, settings, engines[0])
    budgets = {name: settings[name] or 0 for name in ("pool", "memory", "ssd")}
    memories = [(kind, target.of_kind(kind)[0]) for kind in ("dram", "hbm", "cxl")
                if target.of_kind(kind)]  # fmt: skip
    if budgets["ssd"] and not run.disks:
        raise headrace.UnsupportedError(f"{target.name} has no SSD; add one: --add ssd:1")
    rows = [run.computed()]
    if settings["trace"] is not None:
        if not any(budgets.values()):
            raise headrace.InvalidError("no tier for the blocks; give --memory 64GiB")
        return rows + run.loaded("stored", memories[0][1], budgets, given=True)
    if any(budgets.values()):
        raise headrace.InvalidError("--pool, --memory and --ssd are for the requests of --trace")
    for number, (kind, node) in enumerate(memories):
        rows += run.loaded(KINDS[kind], node, {"memory": run.all_blocks}, given=number == 0)
    if run.disks:
        rows += run.loaded("SSD", memories[0][1], {"ssd": run.all_blocks})
    return rows


class Prompts:
    """Requests on one machine."""

    def __init__(
        self, target: Target, settings: Mapping[str, Any], engine: Mapping[str, Any]
    ) -> None:
        self.target, self.engine = target, engine
        self.stop = settings.get("stop")
        self.progress = settings.get("progress") or (lambda done, total, what: None)
        self.disks = [e for e in target.document["engines"] if e["kind"] == "ssd"]
        self.tflops = settings["tflops"]
        self.block = settings["block"]
        self.model = _language_models.model(settings["model"])
        self.token_seconds = 2.0 * self.model.token_parameters / (self.tflops * 1e12)
        if settings["trace"] is None:
            self.requests, self.untimed = self._one(settings["cached"], settings["new"]), 1
        else:
            self.requests, self.untimed = self._many(settings["trace"], settings["seed"]), 0
        pages = -(-self.block * self.model.layers * self.model.layer_kv_bytes() // _PAGE)
        self.all_blocks = pages * _PAGE * max(1, len(self.requests[0]["blocks"]))

    def _one(self, cached: int, new: int) -> list[dict[str, Any]]:
        """The known prompt, which is stored, and the same with new tokens."""
        if cached < self.block:
            raise headrace.InvalidError(
                f"{cached} tokens fill no block of {self.block}; give a smaller --block"
            )
        blocks = list(range(cached // self.block))
        return [{"seconds": 0.0, "tokens": tokens, "blocks": blocks}
                for tokens in (cached, cached + new)]  # fmt: skip

    def _many(self, requests: int, seed: int) -> list[dict[str, Any]]:
        if trace.BLOCK_TOKENS % self.block:
            raise headrace.InvalidError(
                f"a block of {self.block} tokens; one of the trace has {trace.BLOCK_TOKENS}, so "
                "give 16, 64 or another power of 2"
            )
        parts = trace.BLOCK_TOKENS // self.block
        return [
            {
                "seconds": each.seconds,
                "tokens": len(each.blocks) * trace.BLOCK_TOKENS,
                "blocks": [at * parts + i for at in each.blocks for i in range(parts)],
            }
            for each in trace.conversations(requests, seed=seed)
        ]

    def again(self, requests: int) -> float:
        """Mean seconds of the first timed requests, computed whole."""
        timed = self.requests[self.untimed : self.untimed + requests]
        tokens = sum(int(each["tokens"]) for each in timed) / len(timed)
        return float(self.model.layers * self.token_seconds * tokens)

    def computed(self) -> Row:
        again = self.again(len(self.requests))
        time = Estimate(again, *(part * again for part in _COMPUTING))
        values = {"time": time, "load": None, "of again": exactly(1.0)}
        return Row("computed again", values, self.computing())

    def computing(self) -> Binding:
        return Binding("GPU: computing", "assumed", f"{self.tflops:g} TFLOP/s as given")

    def loaded(
        self, words: str, node: int, tiers: Mapping[str, int], *, given: bool = False
    ) -> list[Row]:
        """A row for each policy; `given`: the first is what was asked for."""
        return [
            self._row(f"{words}, {policy}", node, tiers, in_order=in_order, given=given)
            for policy, in_order in POLICIES.items()
        ]

    def _row(
        self, words: str, node: int, tiers: Mapping[str, int], *, in_order: bool, given: bool
    ) -> Row:
        found = self._run(words, {
            "memory": node, "layer_order": in_order,
            **{f"{name}_bytes": size for name, size in tiers.items()},
        })  # fmt: skip
        served = found["requests"]
        if not served:  # stopped before
            return Row(words, {"time": None}, Binding("stopped"), in_order and given)
        seconds, waited, loading = (
            statistics.mean(each[name] for each in served)
            for name in ("seconds", "waited_seconds", "loading_seconds")
        )
        size = found["block_bytes"] * sum(sum(each["found"]) for each in served) / len(served)
        disks = self.disks if any(
            tier["name"] == "ssd" and tier["hits"] for tier in found["tiers"]
        ) else []  # fmt: skip
        alone = self._alone(node, disks)
        slowest = alone.rate
        rate = size / loading if loading else 0.0
        load = slowest.scaled(rate / slowest.value) if rate else None
        time, of_again = self._estimates(served, slowest, in_order=in_order)
        values = {"time": time, "load": load, "of again": of_again}
        binds = self._binds(found, alone, disks) if waited > 0.01 * seconds else self.computing()
        return Row(words, values, binds, given=in_order and given, note=self._note(words, found))

    def _estimates(
        self, served: Sequence[Mapping[str, float]], slowest: Estimate, *, in_order: bool
    ) -> tuple[Estimate, Estimate]:
        """The mean time, and its part of computing again, which is as uncertain."""
        again = self.again(len(served))
        slower = [slowest.value / slowest.at(end) for end in ("low", "high")]
        ends = {(computing, loading): statistics.mean(
                    self._seconds(each, computing, loading, in_order=in_order) for each in served)
                for computing in _COMPUTING for loading in slower}  # fmt: skip
        parts = [time / (again * computing) for (computing, _), time in ends.items()]
        seconds = statistics.mean(each["seconds"] for each in served)
        time = Estimate(seconds, min(ends.values()), max(ends.values()))
        return time, Estimate(seconds / again, min(parts), max(parts))

    def _seconds(
        self, each: Mapping[str, float], computing: float, loading: float, *, in_order: bool
    ) -> float:
        """The time of a request with computing and loading slowed down by these factors."""
        load, waited = each["loading_seconds"], each["waited_seconds"]
        compute = each["seconds"] - waited
        if not in_order:
            return compute * computing + waited * loading
        layers = self.model.layers

        def waits(compute: float, load: float) -> float:
            """For the first layer, or for the part of all loads that computing does not hide."""
            return max(load / layers, load - compute * (layers - 1) / layers)

        changed = waits(compute * computing, load * loading) - waits(compute, load)
        return compute * computing + max(0.0, waited + changed)

    def _run(self, words: str, options: Mapping[str, Any]) -> dict[str, Any]:
        kept = {k: v for k, v in self.target.document.items() if k not in ("rows", "conditions")}
        made = {
            "layers": self.model.layers, "layer_token_bytes": self.model.layer_kv_bytes(),
            "block_tokens": self.block, "gpu": self.engine["home"],
            "layer_token_seconds": self.token_seconds, "requests": self.requests,
            "untimed": self.untimed, **options,
        }  # fmt: skip
        found: dict[str, Any] = json.loads(
            _core.simulate_kvcache(
                json.dumps(kept), json.dumps(made), stop=self.stop,
                progress=lambda done, total: self.progress(done, total, words),
            )  # fmt: skip
        )
        return found

    def _alone(self, node: int, disks: Sequence[Mapping[str, Any]]) -> Speed:
        """The slowest engine that loads use, with no other flow."""
        engine, source, to = self.engine, node, self.engine["home"]
        if disks:
            engine, source, to = disks[0], disks[0]["home"], node
        flow = {
            "name": engine["name"], "threads": 1, "initiator": engine["home"],
            "engine": engine["name"], "cap_bytes_per_second": 1e12,
            "accesses": [{"node": source, "kind": "read", "bytes": 1.0},
                         {"node": to, "kind": "write", "bytes": 1.0}],
        }  # fmt: skip
        return self.target.solve([flow])[0]

    def _binds(
        self, found: Mapping[str, Any], alone: Speed, disks: Sequence[Mapping[str, Any]]
    ) -> Binding:
        """The limit that copies towards the GPU met for the most time. Peaks of engines are those
        of their links and devices.
        """
        limits: dict[str, float] = {}
        for flow in found["flows"]:
            if not _loads(flow["flow"], self.engine["home"], disks):
                continue
            for each in flow["limited"]:
                limits[each["by"]] = limits.get(each["by"], 0.0) + each["seconds"]
        name = max(sorted(limits), key=lambda each: limits[each], default="nothing")
        return alone.binds if name.startswith("engine") else self.target.binding(name)

    def _note(self, words: str, found: Mapping[str, Any]) -> str:
        """Says where the blocks of a trace were found, and how many were not stored."""
        parts = []
        if self.untimed == 0:
            served = self.requests[: len(found["requests"])]
            all_blocks = sum(len(each["blocks"]) for each in served)
            shares = [
                f"{sum(each['found'][i] for each in found['requests']) / all_blocks:.1%} in "
                f"{tier['name']}" for i, tier in enumerate(found["tiers"])
            ]  # fmt: skip
            parts.append("blocks found: " + ", ".join(shares))
        for name in ("refused", "failed"):
            if found[name]:
                parts.append(f"{found[name]} blocks {name}")
        return f"{words}: " + "; ".join(parts) + "." if parts else ""


def _loads(flow: str, gpu: int, disks: Sequence[Mapping[str, Any]]) -> bool:
    return flow.endswith(f"to node {gpu}") or any(
        f"copies node {each['home']} to" in flow for each in disks
    )


WORKLOAD = Workload(
    "kvcache",
    "Predict loading a prompt's KV cache, or computing it.",
    """The KV store and the Mover run as they are, in virtual time. The prompt has
    tokens whose keys and values are known, and new ones. Loads are layer by layer
    while the layers before are computed, or all first. With --trace, requests of
    conversations come one after another, and times are means.

    \b
    headrace predict kvcache --machine h200 --add ssd:1
    headrace predict kvcache --machine h200 --sweep cached=1024,16384,131072
    headrace predict kvcache --add ssd:4 --trace 100 --memory 64GiB --ssd 1TiB""",
    (
        Axis("model", "NAME", str, "llama-3.1-8b", "Language model."),
        Axis("cached", "TOKENS", lambda text: int(parse.size(text)), "16384",
             "Number of tokens with known keys and values."),
        Axis("new", "TOKENS", lambda text: int(parse.size(text)), "512", "Number of new tokens."),
        Axis("tflops", "NUMBER", number("number of TFLOP/s", 400), "400",
             "Computing rate of the GPU, TFLOP/s."),
        Axis("block", "TOKENS", count, "64", "Tokens of a block."),
        Axis("trace", "NUMBER", count, None,
             "Requests of conversations, instead of one prompt."),
        Axis("pool", "SIZE", size_of, None, "GPU memory for blocks (with --trace)."),
        Axis("memory", "SIZE", size_of, None, "Main memory for blocks (with --trace)."),
        Axis("ssd", "SIZE", size_of, None, "SSD for blocks (with --trace)."),
    ),
    COLUMNS,
    predict,
    "h200",
)  # fmt: skip
command = command_of(WORKLOAD)
