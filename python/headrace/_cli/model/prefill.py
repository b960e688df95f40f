# SPDX-License-Identifier: Apache-2.0
"""headrace model prefill"""

from __future__ import annotations

from typing import Annotated, Any, Optional

import typer

import headrace
from headrace import _language_models as models
from headrace._cli import output, parse
from headrace._cli.model import document
from headrace._cli.options import Json, Out, Seed
from headrace._files import check_writable
from headrace._format import prose
from headrace._model.constants import Constant

Row = dict[str, Any]

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


def command(
    rates: Annotated[
        str, typer.Option(metavar="LIST", help="One or two tiers with their rates.")
    ] = "dram=50GB/s,ssd=7GB/s",
    operations: Annotated[
        float, typer.Option("--tflops", metavar="NUMBER", help="Accelerator's TFLOP/s.")
    ] = 400.0,
    bandwidth: Annotated[
        str, typer.Option(metavar="RATE", help="Rate at which the accelerator reads weights.")
    ] = "3.35TB/s",
    model: LanguageModel = "llama-3.1-8b",
    requests: Requests = 12_031,
    block_tokens: BlockTokens = 512,
    policies: Policies = None,
    seed: Seed = 1,
    json: Json = False,
    out: Out = None,
) -> None:
    """Model how long a prefill waits for cached KV blocks.

    The requests and policies of headrace bench kvcache on tiers and an accelerator of given speeds
    (docs/design/workloads/kvcache.md). Each load takes its bytes over the tier's rate.

    \b
    headrace model prefill
    headrace model prefill --rates dram=133GB/s,ssd=25GB/s --tflops 1000
    """
    from headrace._model import prefill, trace

    check_writable(out)
    names = parse.chosen(policies, list(prefill.POLICIES), "policy", list(prefill.POLICIES))
    chosen = models.model(model)
    if not 0 < operations < 1e9:
        raise headrace.InvalidError(f"nothing computes {operations:g} TFLOP/s; give --tflops 400")
    speeds = prefill.Speeds(_tiers(rates), 1e12 * operations, parse.rate(bandwidth))
    scale = prefill.Scale(requests, block_tokens)
    if len(speeds.tiers) == 1:
        scale = prefill.Scale(requests, block_tokens, (sum(scale.capacities),))
    drawn = trace.conversations(requests, seed=seed)
    fields = {
        **prefill.geometry(chosen, block_tokens), "trace": trace.statistics(drawn),
        "rates": dict(speeds.tiers), "scale": None, "interference": [], "loads": [],
        "rows": [prefill.simulate(drawn, chosen, speeds, scale, name) for name in names],
        "hides": {
            name: prefill.tokens_that_hide(chosen, 8192, speeds.operations, rate)
            for name, rate in speeds.tiers.items()
        },
    }  # fmt: skip
    constants = [
        *(Constant(name, rate, "B/s", "given", "--rates") for name, rate in speeds.tiers.items()),
        Constant("computing", operations, "TFLOP/s", "given", "--tflops"),
        Constant("reading weights", speeds.memory, "B/s", "given", "--bandwidth"),
        Constant("drawn", requests, "requests", "fitted",
                 "counts and hit rates of Mooncake's conversation trace (FAST'25)"),
    ]  # fmt: skip
    detail = f"loads of {model} at given rates, which nothing disturbs"
    document.deliver("prefill", detail, constants, fields, show=show, json=json, out=out)


def _tiers(text: str) -> dict[str, float]:
    tiers: dict[str, float] = {}
    for word in parse.words(text):
        name, equals, rate = word.partition("=")
        if not (name and equals):
            raise headrace.InvalidError(f"'{word}' is no tier; write dram=50GB/s,ssd=7GB/s")
        if name in tiers:
            raise headrace.InvalidError(f"two tiers named '{name}'; give each its own name")
        tiers[name] = parse.rate(rate)
    if not 1 <= len(tiers) <= 2:
        raise headrace.InvalidError(f"{len(tiers)} tiers; give one or two: dram=50GB/s,ssd=7GB/s")
    return tiers


def show(made: Row) -> None:
    size, fragment = (
        headrace.format_bytes(made[name]) for name in ("block_bytes", "fragment_bytes")
    )
    output.print_text(prose(
        f"{made['model']} ({made['dtype']}): blocks of {made['block_tokens']} tokens, {size}, "
        f"{fragment} per layer; {made['trace']['reusable']:.1%} of {made['trace']['blocks']} "
        "blocks were there before"
    ))  # fmt: skip
    for name, tokens in made["hides"].items():
        output.print_text(f"from {name} 8192 tokens hide behind {tokens:.0f} new ones or more")
    output.print_table(
        ("policy", "hits", "n", "stall p50", "stall p99", "overlapped", "overlappable", "n"),
        [
            (row["policy"],
             " ".join(f"{name} {part:.1%}" for name, part in row["hit_rate"].items()),
             str(row["with_cached"]), _number(row["stall_p50_ms"]), _number(row["stall_p99_ms"]),
             _share(row["hidden_share"]), _share(row["hidden_share_where_it_can"]),
             str(row["can_hide"]))
            for row in made["rows"]
        ],
    )  # fmt: skip
    output.print_text(prose(
        "stall: waiting of a layer in ms, of n requests with cached blocks (recompute: computing "
        "them again); overlapped: share of the loading time in which layers were computed; "
        "overlappable: the same, of n requests whose layers take as long as their loads."
    ))  # fmt: skip


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"
