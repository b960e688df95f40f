# SPDX-License-Identifier: Apache-2.0
"""headrace bench kvcache"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

import headrace
from headrace._cli import exit_codes, output, parse
from headrace._cli.interrupt import Interrupt
from headrace._cli.model.prefill import BlockTokens, LanguageModel, Policies, Requests
from headrace._cli.options import Json, Out, Seed, Threads
from headrace._errors import unknown
from headrace._files import check_writable
from headrace._format import plural, prose
from headrace._orders import orders
from headrace._provenance import EMULATED_GPUS

#: Blocks of each tier where the first is a GPU's memory, for the whole trace.
_CAPACITIES_WITH_GPU = (2_000, 8_000, 40_000)


def command(
    model: LanguageModel = "llama-3.2-1b",
    requests: Requests = 60,
    block_tokens: BlockTokens = 64,
    policies: Policies = None,
    work: Annotated[
        str,
        typer.Option(
            metavar="SHARE", help="Share of a layer's weights and operations that is computed."
        ),
    ] = "0.5%",
    store: Annotated[
        Optional[str],
        typer.Option(
            metavar="LIST", help="Stores of the blocks: headrace, asyncio (default: both)."
        ),
    ] = None,
    on: Annotated[
        str, typer.Option(metavar="PLACE", help="Memory that blocks are loaded to: dram or gpu.")
    ] = "dram",
    data: Annotated[
        Path, typer.Option(metavar="DIRECTORY", help="Directory on the disk that is the slow tier.")
    ] = Path("."),
    depth: Annotated[
        int, typer.Option(metavar="NUMBER", min=1, max=1024, help="Number of disk reads at once.")
    ] = 16,
    rounds: Annotated[
        int,
        typer.Option(
            metavar="NUMBER",
            min=1,
            max=1000,
            help="Number of interleaved comparisons; an interval takes 6.",
        ),
    ] = 5,
    threads: Threads = None,
    seed: Seed = 1,
    json: Json = False,
    out: Out = None,
) -> int:
    """Measure how long a prefill waits for cached KV blocks.

    Requests come from a published trace of conversations. A loop that reads and multiplies stands
    for the computation; no tokens are computed. Each policy on each store takes all requests:
    minutes with the defaults, in proportion to --requests. headrace model prefill takes seconds.

    \b
    headrace bench kvcache --requests 60
    headrace bench kvcache --model llama-3.1-8b --policies layerwise,load-first
    """
    from headrace import _language_models as models
    from headrace._model import prefill
    from headrace_bench.llm import kvcache

    names = parse.chosen(policies, list(prefill.POLICIES), "policy", list(prefill.POLICIES))
    if out is not None:
        check_writable(out)
    share = parse.share(work)
    if share == 0:
        raise headrace.InvalidError("no work stands for nothing; give --work 0.5% or more")
    scale = prefill.Scale(requests, block_tokens)
    options = kvcache.Options(
        models.model(model), scale, share, names, threads, data, seed, rounds
    )
    if options.shape().fragment % 4096:
        raise headrace.InvalidError(
            f"a fragment of {options.shape().fragment} bytes is no multiple of 4096, as the disk "
            "is read; give --block-tokens 64 or another power of 2"
        )
    if on not in ("dram", "gpu"):
        raise unknown("place", on, ("dram", "gpu"))
    with Interrupt() as interrupt:
        document = _measure(options, store, on == "gpu", depth, interrupt)
    output.deliver(document, out=out, json=json, show=lambda: print_kvcache(document))
    return exit_codes.INTERRUPTED if document["interrupted"] else exit_codes.SUCCESS


def _measure(
    options: Any, stores: str | None, on_gpu: bool, depth: int, interrupt: Interrupt
) -> dict[str, Any]:
    from headrace._model import prefill, trace
    from headrace_bench.llm import gpu, kv_store, kvcache, noise, settings

    there = [*kv_store.STORES][: 1 if on_gpu else None]  # the peer knows no GPU
    chosen = parse.chosen(stores, there, "store", there)
    with output.ProgressBar("requests") as bar:
        with interrupt.suspended():
            machine = headrace.Machine.discover(storage=[options.directory])
            node = gpu.gpu_named(machine, "gpu") if on_gpu else None
            if node is not None:
                options = replace(
                    options, device=gpu.Device(machine, node),
                    scale=replace(options.scale, capacities=_CAPACITIES_WITH_GPU),
                )  # fmt: skip
            number = None if node is None else node.id
            makers = [
                kv_store.maker(name, machine, options.directory, depth, number) for name in chosen
            ]
            bench = kvcache.Bench(
                options, machine, makers[0], stop=interrupt, progress=bar, stores=len(makers)
            )
            bar(0, 1, "preparing")
            bench.prepare()
            bench.find_rates()
        interrupt.keeps = True
        rows = _policies(bench, makers, interrupt)
        bench.add_alone(rows)
        bench.make = makers[0]
        disturbed = [] if interrupt() else kvcache.interference(bench)
        loads = [] if interrupt() else kvcache.loads(bench, makers, depth)
    document = output.document(
        "bench kvcache", machine, **prefill.geometry(options.model, options.scale.block_tokens),
        trace=trace.statistics(bench.requests), scale=kvcache.scale_of(options),
        rates=bench.rates, settings=settings.settings(), interrupted=interrupt(), rows=rows,
        control=noise.control(rows),
        layer_ms=1e3 * bench.fixed, us_per_token_and_layer=1e6 * bench.per_token,
        interference=disturbed, loads=loads,
        hides={
            name: 8192 * options.model.layer_kv_bytes() / rate / bench.per_token
            for name, rate in bench.rates.items() if rate and bench.per_token
        },
    )  # fmt: skip
    if bench.basis() == "emulated":
        document["rests_on"] = EMULATED_GPUS
        for row in (*disturbed, *loads):
            row["basis"] = "emulated"
    return document


def _policies(bench: Any, makers: list[Any], interrupt: Interrupt) -> list[dict[str, Any]]:
    """Each policy on each store once. The order is drawn, so that no store has all the early runs;
    rows are in the order of stores, then of policies.
    """
    pairs = [(make, name) for make in makers for name in bench.options.policies]
    rows: dict[int, dict[str, Any]] = {}
    for number in next(orders(range(len(pairs)), 1, bench.options.seed)):
        if not interrupt():
            bench.make, name = pairs[number]
            rows[number] = bench.policy(name)
    return [rows[number] for number in sorted(rows)]


def print_kvcache(d: dict[str, Any]) -> None:
    output.print_text(
        f"{d['model']} ({d['dtype']}): blocks of {d['block_tokens']} tokens, "
        f"{headrace.format_bytes(d['block_bytes'])}, in fragments of "
        f"{headrace.format_bytes(d['fragment_bytes'])} per layer, {d['layout']}"
    )
    s = d["scale"]
    output.print_text(
        f"scaled down: {s['requests']} of {s['of_requests']} requests, blocks of "
        f"{s['block_tokens']} of {s['of_block_tokens']} tokens, {s['tier_blocks']} blocks in "
        f"the tiers, {s['work']:.2%} of a layer's weights and operations"
    )
    output.print_text(
        f"{d['trace']['reusable']:.1%} of {d['trace']['blocks']} blocks were there before; rates "
        + ", ".join(f"{name} {_rate(rate)}" for name, rate in d["rates"].items())
    )
    for name, tokens in d["hides"].items():
        output.print_text(f"from {name} 8192 tokens hide behind {tokens:.0f} new ones or more")
    output.print_table(
        ("policy", "store", "hits", "n", "stall p50", "95 %", "stall p99", "overlapped",
         "overlappable", "n", "of peak", ""),
        [_line(row) for row in d["rows"]], left=2,
    )  # fmt: skip
    output.print_text(prose(
        "stall: what each layer of a request with cached blocks waits, in ms (recompute: for "
        "them to be computed again), and n such requests; p99 of fewer than 100 is the longest; "
        "overlapped: share of the policy's own loading time in which layers were computed, over "
        "all requests; overlappable: over the n requests whose layers take as long as their "
        "loads; of peak: share of the best rate of source and destination."
    ))  # fmt: skip
    for line in [*_of_alone(d), *_first_layers(d), *_noise(d)]:
        output.print_text(prose(line))
    _print_beside(d)
    output.print_text(d["rests_on"]["detail"])


def _line(row: dict[str, Any]) -> tuple[str, ...]:
    hits = " ".join(f"{name} {share:.1%}" for name, share in row["hit_rate"].items())
    interval = row["stall_p50_interval_ms"]
    spread = "-" if interval is None else " to ".join(map(_number, interval))
    return (
        row["policy"], row["store"], hits, str(row["with_cached"]),
        _number(row["stall_p50_ms"]), spread, _number(row["stall_p99_ms"]),
        _share(row["hidden_share"]),
        _share(row["hidden_share_where_it_can"]), str(row["can_hide"]),
        _share(row["roofline_share"]),
        " ".join([*row["flags"], *(["emulated"] if row["basis"] == "emulated" else [])]),
    )  # fmt: skip


def _of_alone(d: dict[str, Any]) -> list[str]:
    """The overlap of a policy with loads as long as they take alone, not with its own."""
    loaded = [row for row in d["rows"] if row["policy"] in ("layerwise", "ahead")]
    if loaded and not any(row["policy"] == "load-first" for row in d["rows"]):
        return ["Overlap with loads alone is not known: add load-first to --policies."]
    return [
        f"{row['policy']} with {row['store']}, of what load-first takes to load for the same "
        f"{plural(row['of_alone'], 'request')}: {_share(row['hidden_of_alone'])} overlapped, "
        f"{_share(row['hidden_of_alone_where_it_can'])} of overlappable requests."
        for row in loaded if row["hidden_of_alone"] is not None
    ]  # fmt: skip


def _first_layers(d: dict[str, Any]) -> list[str]:
    """Why layer-wise loads that can hide are not hidden whole."""
    return [
        f"{row['policy']} with {row['store']}, overlappable requests, medians: a layer takes "
        f"{terms['layer_ms']:.3g} ms and its keys and values at the best rates "
        f"{terms['layer_load_ms']:.3g} ms, so they can come behind the layer before; waiting for "
        f"the first takes {terms['first_layer_ms']:.3g} ms, which nothing overlaps. At "
        f"most {terms['most_hidden']:.0%} can be overlapped; "
        f"{row['hidden_share_where_it_can']:.0%} is."
        for row in d["rows"]
        if row["policy"] in ("layerwise", "ahead") and (terms := row["inequality"]) is not None
    ]


def _noise(d: dict[str, Any]) -> list[str]:
    """Reasons why rows cannot be compared, and the unknown among them."""
    lines = []
    if any(row["stall_p50_interval_ms"] is None for row in d["rows"]):
        lines.append("95 % of the median takes 6 requests with cached blocks: more --requests.")
    loaded = {row["with_cached"] for row in d["rows"] if row["policy"] != "recompute"}
    if len(loaded) > 1:
        lines.append(
            "Rows with another n are of other requests: what was not stored yet when it was asked "
            "for, or had left, was computed."
        )
    shares = [row["others_share"] for row in d["rows"]]
    if None in shares:
        lines.append("The CPU use of other programs is not known here: no row is marked noisy.")
    elif any(row["flags"] for row in d["rows"]):
        stolen = max(row["steal_share"] for row in d["rows"])
        lines.append(
            f"noisy: other programs had up to {max(shares):.0%} of the CPUs meanwhile, the "
            f"hypervisor {stolen:.0%} of the busy ones; of such rows only large differences mean "
            "something."
        )
    if (control := d["control"]) is not None and not control["holds"]:
        waits = ", ".join(f"{_number(ms)} ms beside {name}"
                          for name, ms in control["stall_p50_ms"].items())  # fmt: skip
        lines.append(
            f"recompute asks no store and should wait alike beside each; it waited {waits}: the "
            "machine was disturbed, and no two rows can be compared. Run it again when it is quiet."
        )
    return lines


def _print_beside(d: dict[str, Any]) -> None:
    for row in d["interference"]:
        if row["ratio"] is not None:
            output.print_text(
                f"{row['of']} beside {row['beside']}: {row['ratio']:.2f} of the speed alone"
                f"{_flags(row)}"
            )
    for row in d["loads"]:
        output.print_text(
            f"{row['store']}: {_rate(row['bytes_per_second'])}{_spread(row)} from {row['tier']}, "
            f"{row['depth']} at once, {_share(row['roofline_share'])} of peak{_flags(row)}"
        )


def _spread(row: dict[str, Any]) -> str:
    """The interval, or of too few rounds the least and the most."""
    samples = row["samples"]
    if row["interval"] is not None:
        return f" (95 %: {' to '.join(map(_rate, row['interval']))})"
    if len(samples) < 2:
        return ""
    return f" ({_rate(min(samples))} to {_rate(max(samples))} in {len(samples)} rounds)"


def _flags(row: dict[str, Any]) -> str:
    return "".join(f", {flag}" for flag in row["flags"])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _rate(value: float | None) -> str:
    return "-" if value is None else str(headrace.format_rate(value))
