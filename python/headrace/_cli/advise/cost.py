# SPDX-License-Identifier: Apache-2.0
"""headrace advise cost"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Optional

import typer

import headrace
from headrace._cli import exit_codes, output, parse
from headrace._cli.advise.instances import INSTANCES, SOURCE, gib_per_vcpu
from headrace._cli.advise.prose import prose
from headrace._cli.options import Json, Out
from headrace._files import check_writable

_INPUTS = {
    "dram_speed": "speed in DRAM (SSD: 1)",
    "cxl_speed": "speed in CXL memory (SSD: 1)",
    "capacity_ratio": "DRAM to CXL capacity",
    "cost_ratio": "cost of a server with CXL to one without",
}
#: Inputs are changed by so much for the table.
_CHANGE = 0.1


def command(
    dram_speed: Annotated[
        float, typer.Option(metavar="NUMBER", help="Of the job in DRAM; on SSD it is 1.")
    ] = 10.0,
    cxl_speed: Annotated[
        float, typer.Option(metavar="NUMBER", help="Of the job in CXL memory.")
    ] = 8.0,
    capacity_ratio: Annotated[
        float, typer.Option(metavar="NUMBER", help="DRAM to CXL memory of one server.")
    ] = 2.0,
    cost_ratio: Annotated[
        float,
        typer.Option(metavar="NUMBER", help="A server with CXL memory to one without, in all."),
    ] = 1.1,
    instance_gib: Annotated[
        Optional[float],
        typer.Option(metavar="NUMBER", help="GiB per vCPU that instances have; default: 4."),
    ] = None,
    instance: Annotated[
        Optional[str],
        typer.Option(metavar="NAME", help="Instead: those of a cloud's instance, m7a.large."),
    ] = None,
    server_gib: Annotated[
        float, typer.Option(metavar="NUMBER", help="GiB of DRAM per vCPU of the server.")
    ] = 3.0,
    discount: Annotated[
        str, typer.Option(metavar="SHARE", help="On instances in CXL memory.")
    ] = "20%",
    json: Json = False,
    out: Out = None,
) -> int:
    """Compute what CXL memory is worth: fewer servers, or vCPUs that could not be sold.

    Two models as arithmetic (docs/design/advice.md); nothing is measured, and the defaults are
    examples, nobody's prices.

    \b
    headrace advise cost --dram-speed 10 --cxl-speed 8 --capacity-ratio 2 --cost-ratio 1.1
    headrace advise cost --instance m7a.large --server-gib 3 --discount 20%
    """
    if out is not None:
        check_writable(out)
    inputs = {
        "dram_speed": dram_speed, "cxl_speed": cxl_speed, "capacity_ratio": capacity_ratio,
        "cost_ratio": cost_ratio,
    }  # fmt: skip
    if instance is not None:
        if instance_gib is not None:
            raise headrace.InvalidError("--instance has its own GiB; leave out --instance-gib")
        instance_gib = gib_per_vcpu(instance)
    offer = {
        "instance_gib": 4.0 if instance_gib is None else instance_gib,
        "server_gib": server_gib,
        "discount": parse.share(discount),
    }
    saving = headrace.server_saving(**inputs)
    changes = headrace.cost_sensitivity(**inputs, change=_CHANGE)
    made = {
        "schema_version": headrace.SCHEMA_VERSION,
        "kind": "advise_cost",
        "version": headrace.__version__,
        "basis": "modelled",
        "servers": {
            "inputs": inputs,
            "result": saving.asdict(),
            "sensitivity": [
                {"input": each.name, "value": each.value, **each.result.asdict()}
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
    return exit_codes.SUCCESS


def text(made: Mapping[str, Any]) -> str:
    servers, instances = made["servers"], made["instances"]
    saving, gain, offer = servers["result"], instances["result"], instances["inputs"]
    given = "\n".join(
        f"  {_INPUTS[name]}: {value:g}" for name, value in servers["inputs"].items()
    )
    kind = "saves" if saving["saving"] >= 0 else "costs"
    fewer = [
        f"Fewer servers, for a job that reads from SSD what does not fit:\n{given}",
        prose(
            f"{saving['servers'] * 100:.2f} % as many servers with CXL memory take as long: this "
            f"{kind} {abs(saving['saving']) * 100:.2f} %; nothing is saved once such a server "
            f"costs {saving['break_even']:.2f} times one without."
        ),
    ]
    rows = [
        (
            _INPUTS[each["input"]],
            f"{each['value']:.3g}",
            f"{each['servers'] * 100:.2f} %",
            f"{each['saving'] * 100:.2f} %",
        )
        for each in servers["sensitivity"]
    ]
    table = output.table_text((f"changed by {_CHANGE:.0%}", "to", "servers", "saving"), rows)
    sold = (
        f"Stranded vCPUs: on a server with {offer['server_gib']:g} GiB of DRAM per vCPU and "
        f"instances of {offer['instance_gib']:g}, "
        f"{gain['stranded'] * 100:.1f} % of its vCPUs have no memory to be sold with. "
        f"{gain['cxl_gib']:.3g} GiB of CXL memory per vCPU of the server, sold "
        f"{offer['discount'] * 100:g} % cheaper, bring {gain['revenue'] * 100:.1f} % more revenue."
    )
    return "\n\n".join(["\n".join(fewer), table, prose(sold), "Computed, not measured."])
