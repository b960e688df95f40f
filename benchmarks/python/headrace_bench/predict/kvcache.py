# SPDX-License-Identifier: Apache-2.0
"""Keys and values of known prompts: loaded to a GPU from each memory or from an SSD, or computed
again. KV store and Mover are those of production, in virtual time (benchmarks/kvcache).
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import headrace
from headrace import _language_models
from headrace._cli import parse
from headrace_bench import _core
from headrace_bench.llm import trace
from headrace_bench.predict.answer import Column, Row
from headrace_bench.predict.command import Axis, Workload, command_of, count, number, size_of
from headrace_bench.predict.target import KINDS, Binding, Estimate, Speed, Target, exactly

COLUMNS = (Column("time", "s"), Column("load", "B/s"), Column("of recompute", "x"))
#: In the order of layers, or all first.
POLICIES = {"layerwise": True, "load-first": False}
#: Blocks of a tier lie in whole pages.
_PAGE = 4096
#: Requests of a trace and blocks of a prompt that fit in memory here.
_MOST_REQUESTS, _MOST_BLOCKS = 100_000, 1 << 20
#: How far off the rate of computing may be (assumed).
_DOUBT = 0.3


@dataclass(frozen=True)
class Run:
    """One placement and policy, simulated."""

    words: str
    node: int
    in_order: bool
    given: bool
    found: Mapping[str, Any]


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
        raise headrace.UnsupportedError(
            f"{target.name} has no SSD with a known rate; add one (--add ssd:1), or measure storage"
        )
    if settings["trace"] is not None:
        if not any(budgets.values()):
            raise headrace.InvalidError("no tier for the blocks; give --memory 64GiB")
        run.load("stored", memories[0][1], budgets, given=True)
        return run.rows()
    if any(budgets.values()):
        raise headrace.InvalidError("--pool, --memory and --ssd are for the requests of --trace")
    for number, (kind, node) in enumerate(memories):
        run.load(KINDS[kind], node, {"memory": run.all_blocks}, given=number == 0)
    if run.disks:
        run.load("SSD", memories[0][1], {"ssd": run.all_blocks})
    return run.rows()


class Prompts:
    """Requests on one machine."""

    def __init__(
        self, target: Target, settings: Mapping[str, Any], engine: Mapping[str, Any]
    ) -> None:
        self.target, self.engine = target, engine
        self.stop = settings.get("stop")
        self.progress = settings.get("progress") or (lambda done, total, what: None)
        self.disks = [
            e for e in target.document["engines"]
            if e["kind"] == "ssd" and _has_rate(target.document, e)
        ]  # fmt: skip
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
        self.runs: list[Run] = []

    def _one(self, cached: int, new: int) -> list[dict[str, Any]]:
        """The known prompt, which is stored, and the same with new tokens."""
        if cached < self.block:
            raise headrace.InvalidError(
                f"{cached} tokens fill no block of {self.block}; give a smaller --block"
            )
        if cached // self.block > _MOST_BLOCKS:
            raise headrace.InvalidError(
                f"{cached} tokens are {cached // self.block} blocks; give a larger --block, "
                f"at most {_MOST_BLOCKS} blocks"
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
        if requests > _MOST_REQUESTS:
            raise headrace.InvalidError(
                f"a trace of {requests} requests; give at most {_MOST_REQUESTS}"
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

    def rows(self) -> list[Row]:
        """Means of the requests that all policies served: a stop leaves some with fewer."""
        counts = [len(each.found["requests"]) for each in self.runs]
        served = min(filter(None, counts), default=0)
        timed = self.requests[self.untimed :]
        tokens = statistics.mean(int(each["tokens"]) for each in timed[: served or None])
        again = self.model.layers * self.token_seconds * tokens
        time = Estimate(again, (1 - _DOUBT) * again, (1 + _DOUBT) * again)
        stopped = 0 < served < len(timed)
        note = f"Stopped: means of {served} of {len(timed)} requests." if stopped else ""
        values = {"time": time, "load": None, "of recompute": exactly(1.0)}
        return [
            Row("computed again", values, self.computing(), note=note),
            *(self._row(each, served, again) for each in self.runs),
        ]

    def computing(self) -> Binding:
        return Binding("GPU: computing", "assumed", f"{self.tflops:g} TFLOP/s as given")

    def load(
        self, words: str, node: int, tiers: Mapping[str, int], *, given: bool = False
    ) -> None:
        """Simulates each policy; `given`: the first is what was asked for."""
        for policy, in_order in POLICIES.items():
            name = f"{words}, {policy}"
            found = self._run(name, {
                "memory": node, "layer_order": in_order,
                **{f"{tier}_bytes": size for tier, size in tiers.items()},
            })  # fmt: skip
            self.runs.append(Run(name, node, in_order, in_order and given, found))

    def _row(self, run: Run, served: int, again: float) -> Row:
        found, requests = run.found, run.found["requests"][:served]
        if not requests:  # stopped before
            return Row(run.words, {"time": None}, Binding("stopped"), run.given)
        seconds, waited, loading = (
            statistics.mean(each[name] for each in requests)
            for name in ("seconds", "waited_seconds", "loading_seconds")
        )
        size = found["block_bytes"] * statistics.mean(sum(each["found"]) for each in requests)
        disks = self.disks if any(
            tier["name"] == "ssd" and tier["hits"] for tier in found["tiers"]
        ) else []  # fmt: skip
        alone = self._alone(run.node, disks)
        rate = size / loading if loading else 0.0
        load = alone.rate.scaled(rate / alone.rate.value) if rate else None
        values = {"time": self._interval(run, requests, alone.rate, _DOUBT), "load": load,
                  "of recompute": self._interval(run, requests, alone.rate, 0).scaled(1 / again)}
        binds = self._binds(found, alone, disks) if waited > 0.01 * seconds else self.computing()
        return Row(run.words, values, binds, given=run.given, note=self._note(run, requests))

    def _interval(
        self, run: Run, requests: Sequence[Mapping[str, Any]], rate: Estimate, doubt: float
    ) -> Estimate:
        """The mean time of requests. Its ends are as far off as those of a pipeline of equal
        layers, with the ends of the rate and `doubt` about computing.
        """
        def piped(loading: float, computing: float) -> float:
            if not run.in_order:
                return loading + computing
            layers = self.model.layers
            return max(loading / layers + computing, loading + computing / layers)

        def mean(end: str, factor: float) -> float:
            seconds = 0.0
            for each in requests:
                loading = each["loading_seconds"]
                computing = each["seconds"] - each["waited_seconds"]
                slower = piped(loading * rate.value / rate.at(end), computing * factor)
                seconds += each["seconds"] + slower - piped(loading, computing)
            return seconds / len(requests)

        return Estimate(mean("value", 1), mean("high", 1 - doubt), mean("low", 1 + doubt))

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

    def _note(self, run: Run, requests: Sequence[Mapping[str, Any]]) -> str:
        """Says where the blocks of a trace were found, and how many were not stored."""
        parts = []
        if self.untimed == 0:
            all_blocks = sum(len(each["blocks"]) for each in self.requests[: len(requests)])
            shares = [
                f"{sum(each['found'][i] for each in requests) / all_blocks:.1%} in {tier['name']}"
                for i, tier in enumerate(run.found["tiers"])
            ]
            parts.append("blocks found: " + ", ".join(shares))
        for name in ("refused", "failed"):
            if run.found[name]:
                parts.append(f"{run.found[name]} blocks {name}")
        return f"{run.words}: " + "; ".join(parts) + "." if parts else ""


def _has_rate(document: Mapping[str, Any], engine: Mapping[str, Any]) -> bool:
    """Nothing else holds an engine back: without a rate it would copy as fast as memories do."""
    ceilings = (document.get("model") or {}).get("ceilings", ())
    return any(each["engine"] == engine["id"] for each in document.get("copy_rates", ())) or any(
        engine["home"] in each.get("to", ()) for each in ceilings
    )


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
    conversations are served one after another. Times are means, until the first
    token, without the wait for earlier requests.

    Computing a token takes 2 operations per parameter. Attention to other tokens is
    left out: with 128Ki tokens of an 8B model it takes longer than all the rest.

    \b
    headrace predict kvcache --machine h200 --add ssd:1
    headrace predict kvcache --machine h200 --sweep cached=1024,16384,131072
    headrace predict kvcache --add ssd:4 --trace 100 --memory 8GiB --ssd 1TiB""",
    (
        Axis("model", "NAME", str, "llama-3.1-8b", "Language model."),
        Axis("cached", "TOKENS", lambda text: int(parse.size(text)), "16384",
             "Number of tokens with known keys and values."),
        Axis("new", "TOKENS", lambda text: int(parse.size(text)), "512", "Number of new tokens."),
        Axis("tflops", "NUMBER", number("number of TFLOP/s", 400), "400",
             "Computing rate that the GPU reaches, TFLOP/s."),
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
