# SPDX-License-Identifier: Apache-2.0
"""headrace advise cost"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Optional

import typer

import headrace
from headrace._cli import output, parse
from headrace._cli.advise.instances import INSTANCES, SOURCE, gib_per_vcpu
from headrace._cli.options import Json, Out, given
from headrace._files import check_writable
from headrace._format import prose

_INPUTS = {
    "dram_speed": "speed in DRAM (SSD: 1)",
    "cxl_speed": "speed in CXL memory (SSD: 1)",
    "capacity_ratio": "DRAM to CXL capacity",
    "cost_ratio": "cost of a server with CXL to one without",
}
#: Change of each input in the table.
_CHANGE = 0.1


def command(
    context: typer.Context,
    dram_speed: Annotated[
        float, typer.Option(metavar="NUMBER", help="Speed of the job in DRAM, relative to SSD.")
    ] = 10.0,
    cxl_speed: Annotated[
        float,
        typer.Option(metavar="NUMBER", help="Speed of the job in CXL memory, relative to SSD."),
    ] = 8.0,
    capacity_ratio: Annotated[
        float, typer.Option(metavar="NUMBER", help="DRAM of a server, relative to its CXL memory.")
    ] = 2.0,
    cost_ratio: Annotated[
        Optional[float],
        typer.Option(
            metavar="NUMBER", help="Cost of a server with CXL memory, relative to one without."
        ),
    ] = None,
    instance_gib: Annotated[
        Optional[float],
        typer.Option(metavar="NUMBER", help="GiB per vCPU of the instances (default: 4)."),
    ] = None,
    instance: Annotated[
        Optional[str],
        typer.Option(metavar="NAME", help="Cloud instance whose GiB per vCPU is used: m7a.large."),
    ] = None,
    server_gib: Annotated[
        float, typer.Option(metavar="NUMBER", help="GiB of DRAM per vCPU of the server.")
    ] = 3.0,
    discount: Annotated[
        Optional[str], typer.Option(metavar="SHARE", help="Discount on instances in CXL memory.")
    ] = None,
    json: Json = False,
    out: Out = None,
) -> None:
    """Compute what CXL memory is worth.

    One model computes how many servers it saves, with --cost-ratio; another how many more vCPUs can
    be sold, with --discount. Both are arithmetic (docs/design/advice.md): nothing is measured, and
    values that you do not give are assumed.

    \b
    headrace advise cost --dram-speed 10 --cxl-speed 8 --cost-ratio 1.1
    headrace advise cost --instance m7a.large --server-gib 3 --discount 20%
    """
    check_writable(out)
    inputs: dict[str, Any] = {
        "dram_speed": dram_speed, "cxl_speed": cxl_speed, "capacity_ratio": capacity_ratio,
        "cost_ratio": cost_ratio,
    }  # fmt: skip
    if instance is not None:
        if instance_gib is not None:
            raise headrace.InvalidError("--instance has its own GiB; leave out --instance-gib")
        instance_gib = gib_per_vcpu(instance)
    chosen = ["instance_gib"] if instance is not None else []
    offer: dict[str, Any] = {
        "instance_gib": 4.0 if instance_gib is None else instance_gib,
        "server_gib": server_gib,
        "discount": None if discount is None else parse.share(discount),
    }
    saving = headrace.server_saving(**inputs)
    changes = headrace.cost_sensitivity(**inputs, change=_CHANGE)
    made = {
        **output.head("advise_cost"),
        "basis": "modelled",
        "assumed": [
            name
            for name, value in {**inputs, **offer}.items()
            if value is not None and name not in (*given(context), *chosen)
        ],
        "servers": {
            "inputs": inputs,
            "result": saving.asdict(),
            "sensitivity": [
                {"input": each.name, "value": each.value}
                | ({"reason": each.reason} if each.result is None else each.result.asdict())
                for each in changes
            ],
        },
        "instances": {
            "inputs": offer,
            "result": headrace.instance_gain(**offer).asdict(),
            "table": {
                name: {"vcpus": vcpus, "gib": gib} for name, (vcpus, gib) in INSTANCES.items()
            },
            "table_source": SOURCE,
        },
    }
    output.deliver(made, out=out, json=json, show=lambda: output.print_text(text(made)))


def text(made: Mapping[str, Any]) -> str:
    servers, instances = made["servers"], made["instances"]
    saving, gain, offer = servers["result"], instances["result"], instances["inputs"]

    def said(name: str, value: float) -> str:
        return f"{value:g} (assumed)" if name in made["assumed"] else f"{value:g}"

    inputs = "\n".join(
        f"  {_INPUTS[name]}: " + ("not given" if value is None else said(name, value))
        for name, value in servers["inputs"].items()
    )
    fewer = [
        f"Fewer servers, for a job that reads from SSD what does not fit:\n{inputs}",
        prose(
            f"{saving['servers'] * 100:.1f} servers with CXL memory replace 100; break-even price "
            f"{saving['break_even']:.2f} x; {_saved(saving['saving'])}"
            f"{_assumed(made['assumed'], servers['inputs'])}."
        ),
    ]
    rows = [
        (
            _INPUTS[each["input"]],
            f"{each['value']:.3g}",
            *(
                "-" if each.get(name) is None else f"{each[name] * 100:.2f} %"
                for name in ("servers", "saving")
            ),
        )
        for each in servers["sensitivity"]
    ]
    table = output.table_text((f"changed by {_CHANGE:.0%}", "to", "servers", "saving"), rows)
    table += "".join(
        f"\nno figures for {_INPUTS[each['input']]} {each['value']:.3g}: {each['reason']}"
        for each in servers["sensitivity"]
        if "reason" in each
    )
    sold = (
        f"Stranded vCPUs: on a server with {said('server_gib', offer['server_gib'])} GiB of DRAM "
        f"per vCPU and instances of {said('instance_gib', offer['instance_gib'])}, "
        f"{gain['stranded'] * 100:.1f} % of its vCPUs have no memory to be sold with. "
        f"{gain['cxl_gib']:.3g} GiB of CXL memory per vCPU of the server"
        f"{_earned(gain['revenue'], offer['discount'])}."
    )
    return "\n\n".join(["\n".join(fewer), table, prose(sold), "Computed, not measured."])


def _saved(saving: float | None) -> str:
    if saving is None:
        return "saving unknown: give --cost-ratio"
    return f"this {'saves' if saving >= 0 else 'costs'} {abs(saving) * 100:.2f} %"


def _assumed(assumed: list[str], inputs: Mapping[str, float | None]) -> str:
    """The inputs that the user did not give."""
    names = [_INPUTS[name] for name in inputs if name in assumed]
    return f"; assumed, not yours: {', '.join(names)}" if names else ""


def _earned(revenue: float | None, discount: float | None) -> str:
    if revenue is None or discount is None:
        return " lets them be sold; what that earns takes a price, --discount"
    return f", sold {discount * 100:g} % cheaper, bring {revenue * 100:.1f} % more revenue"
