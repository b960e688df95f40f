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
from headrace._cli.options import Json, Out, Seed, Threads
from headrace._errors import unknown
from headrace._files import check_writable
from headrace._format import interval_text, plural, prose
from headrace._profile.documents import Fields
from headrace._profile.nested import rows_of
from headrace._provenance import EMULATED_GPUS
from headrace_bench.commands.options import number, option

LanguageModel = Annotated[str, typer.Option(metavar="NAME", help="Language model.")]
Requests = Annotated[
    int, typer.Option(metavar="NUMBER", min=2, max=10**5, help="Number of requests.")
]
BlockTokens = Annotated[
    int, typer.Option(metavar="NUMBER", min=1, max=1 << 16, help="Number of tokens per block.")
]
Policies = Annotated[
    Optional[str],
    typer.Option(
        metavar="LIST",
        help="Policies: layerwise, ahead, load-first, demand, recompute (default: all).",
    ),
]
#: Blocks of each tier where the first is a GPU's memory, for the whole trace.
_CAPACITIES_WITH_GPU = (2_000, 8_000, 40_000)


def command(
    model: LanguageModel = "llama-3.2-1b",
    requests: Requests = 60,
    block_tokens: BlockTokens = 64,
    policies: Policies = None,
    work: Annotated[
        str, option("SHARE", "Share of a layer's weights and operations that is computed.")
    ] = "0.5%",
    store: Annotated[
        Optional[str],
        option("LIST", "Stores of the blocks: headrace, asyncio, torch (default: all)."),
    ] = None,
    on: Annotated[str, option("PLACE", "Memory that blocks are loaded to: dram or gpu.")] = "dram",
    data: Annotated[
        Path, option("DIRECTORY", "Directory on the disk that is the slow tier.")
    ] = Path("."),
    depth: Annotated[int, number("Number of disk reads at once.", 1, 1024)] = 16,
    rounds: Annotated[
        int, number("Number of interleaved comparisons; an interval takes 6.", 1, 1000)
    ] = 5,
    threads: Threads = None,
    seed: Seed = 1,
    json: Json = False,
    out: Out = None,
) -> int:
    """Measure how long a prefill waits for cached KV blocks.

    Requests come from a published trace of conversations. A loop that reads and multiplies stands
    for the computation; no tokens are computed. Each policy on each store takes all requests:
    minutes with the defaults, in proportion to --requests.

    \b
    headrace bench kvcache --requests 60
    headrace bench kvcache --model llama-3.1-8b --policies layerwise,load-first
    """
    from headrace import _language_models as models
    from headrace_bench.llm import kvcache, prefill

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
    from headrace_bench.llm import (
        gpu,
        kv_store,
        kvcache,
        kvcache_rounds,
        noise,
        prefill,
        settings,
        trace,
    )

    chosen = parse.chosen(stores, [*kv_store.STORES], "store", kv_store.usual(on_gpu))
    for name in chosen:
        kv_store.check(name, on_gpu)
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
        runner = kvcache_rounds.run_policies(bench, makers, chosen)
        control = noise.control([row for each in runner.variants for row in each.results])
        policies = kvcache_rounds.policy_rows(bench, runner)
        bench.make = makers[0]
        disturbed = [] if interrupt() else kvcache_rounds.interference(bench)
        loads = []
        for tiers in (3, 2) if on_gpu else (2,):
            loads += [] if interrupt() else kvcache_rounds.loads(bench, makers, depth, tiers)
    document = output.document(
        "bench kvcache", machine, **prefill.geometry(options.model, options.scale.block_tokens),
        trace=trace.statistics(bench.requests), scale=kvcache.scale_of(options),
        rates=bench.rates, settings=settings.settings(), interrupted=interrupt(),
        rounds=options.rounds, control=control, order=runner.order(),
        computing=bench.compute.words(),
        rows=[row.asdict() for row in (*policies, *disturbed, *loads)],
        layer_ms=1e3 * bench.fixed, us_per_token_and_layer=1e6 * bench.per_token,
        hides={
            name: 8192 * options.model.layer_kv_bytes() / rate / bench.per_token
            for name, rate in bench.rates.items() if rate and bench.per_token
        },
    )  # fmt: skip
    if bench.basis() == "emulated":
        document["rests_on"] = EMULATED_GPUS
    return document


def print_kvcache(d: dict[str, Any]) -> None:
    policies = [row for row in rows_of(d, "kvcache") if row["hit_rate"] is not None]
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
    output.print_text(f"computing: {d['computing']}")
    for name, tokens in d["hides"].items():
        output.print_text(f"from {name} 8192 tokens hide behind {tokens:.0f} new ones or more")
    output.print_table(
        ("policy", "store", "hits", "n", "stall p50", "95 %", "stall p99", "overlapped",
         "overlappable", "n", "of peak", ""),
        [_line(row) for row in policies], left=2,
    )  # fmt: skip
    output.print_text(prose(
        "stall: what each layer of a request with cached blocks waits, in ms (recompute: for "
        "them to be computed again), and n such requests; p99 of fewer than 100 is the longest; "
        "overlapped: share of the policy's own loading time in which layers were computed, over "
        "all requests; overlappable: over the n requests whose layers take as long as their "
        "loads; of peak: share of the best rate of source and destination."
    ))  # fmt: skip
    noise = _noise(policies, d["control"])
    for line in [*_of_alone(policies), *_first_layers(policies), *noise]:
        output.print_text(prose(line))
    _print_beside(d)
    output.print_text(d["rests_on"]["detail"])


def _line(row: Fields) -> tuple[str, ...]:
    hits = " ".join(f"{name} {share:.1%}" for name, share in row["hit_rate"].items())
    spread = f"{_number(row['low'])} to {_number(row['high'])}" if _is_interval(row) else "-"
    return (
        row["policy"], row["store"], hits, str(row["with_cached"]),
        _number(row["median"]), spread, _number(row["stall_p99_ms"]),
        _share(row["hidden_share"]),
        _share(row["hidden_share_where_it_can"]), str(row["can_hide"]),
        _share(row["roofline_share"]),
        " ".join([*row["flags"], *(["emulated"] if row["basis"] == "emulated" else [])]),
    )  # fmt: skip


def _is_interval(row: Fields) -> bool:
    return str(row["interval"]).startswith("95 %")


def _of_alone(rows: list[Fields]) -> list[str]:
    """The overlap of a policy, relative to the time of loads alone instead of its own load time."""
    loaded = [row for row in rows if row["policy"] in ("layerwise", "ahead")]
    if loaded and not any(row["policy"] == "load-first" for row in rows):
        return ["Overlap with loads alone is not known: add load-first to --policies."]
    return [
        f"{row['policy']} with {row['store']}, of what load-first takes to load for the same "
        f"{plural(row['of_alone'], 'request')}: {_rest(row['waited_of_alone'])} overlapped, "
        f"{_rest(row['waited_of_alone_where_it_can'])} of overlappable requests."
        for row in loaded if row["waited_of_alone"] is not None
    ]  # fmt: skip


def _first_layers(rows: list[Fields]) -> list[str]:
    """A remark on why layer-wise loads are not fully hidden although they could be."""
    return [
        f"{row['policy']} with {row['store']}, overlappable requests, medians: a layer takes "
        f"{terms['layer_ms']:.3g} ms and its keys and values at the best rates "
        f"{terms['layer_load_ms']:.3g} ms, so they can come behind the layer before; waiting for "
        f"the first takes {terms['first_layer_ms']:.3g} ms, which nothing overlaps. At "
        f"most {terms['most_hidden']:.0%} can be overlapped; "
        f"{row['hidden_share_where_it_can']:.0%} is."
        for row in rows
        if row["policy"] in ("layerwise", "ahead") and (terms := row["inequality"]) is not None
    ]


def _noise(rows: list[Fields], control: dict[str, Any] | None) -> list[str]:
    """Reasons why rows cannot be compared, and the unknown among them."""
    lines = []
    if not all(map(_is_interval, rows)):
        lines.append("95 % of the median takes 6 requests with cached blocks: more --requests.")
    loaded = {row["with_cached"] for row in rows if row["policy"] != "recompute"}
    if len(loaded) > 1:
        lines.append(
            "Rows with another n are of other requests: what was not stored yet when it was asked "
            "for, or had left, was computed."
        )
    shares = [row["others_share"] for row in rows]
    if None in shares:
        lines.append("The CPU use of other programs is not known here: no row is marked noisy.")
    elif any("noisy" in row["flags"] for row in rows):
        stolen = max(row["steal_share"] for row in rows)
        lines.append(
            f"noisy: other programs had up to {max(shares):.0%} of the CPUs meanwhile, the "
            f"hypervisor {stolen:.0%} of the busy ones; of such rows only large differences mean "
            "something."
        )
    if control is not None and not control["holds"]:
        waits = ", ".join(f"{_number(ms)} ms beside {name}"
                          for name, ms in control["stall_p50_ms"].items())  # fmt: skip
        lines.append(
            f"recompute asks no store and should wait alike beside each; it waited {waits}: the "
            "machine was disturbed, and no two rows can be compared. Run it again when it is quiet."
        )
    return lines


def _print_beside(d: dict[str, Any]) -> None:
    for row in rows_of(d, "kvcache_interference"):
        if row["median"] is not None:
            output.print_text(
                f"{row['of']} beside {row['beside']}: {row['median']:.2f} of the speed alone"
                f"{_flags(row)}"
            )
    for row in rows_of(d, "kvcache_load"):
        spread = interval_text(row, _rate)
        output.print_text(
            f"{row['store']}: {_rate(row['median'])}{spread and f' ({spread})'} from "
            f"{row['tier']}, {row['depth']} at once, {_share(row['roofline_share'])} of peak"
            f"{_flags(row)}"
        )


def _flags(row: Fields) -> str:
    return "".join(f", {flag}" for flag in row["flags"])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _rest(share: float | None) -> str:
    return _share(None if share is None else 1 - share)


def _rate(value: float | None) -> str:
    return "-" if value is None else str(headrace.format_rate(value))
