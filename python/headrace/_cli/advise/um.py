# SPDX-License-Identifier: Apache-2.0
"""headrace advise um"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Optional

import typer

import headrace
from headrace._cli import output, um_options
from headrace._cli.options import Json, Out
from headrace._files import check_writable
from headrace._format import plural, prose
from headrace._model import um as model
from headrace._model import um_advice
from headrace._model.um_cases import Case

_PARADIGMS = {
    "ats": "the GPU uses the host's page tables (ATS), so it reads any memory of the host",
    "managed": "the GPU reads managed and registered memory only",
    "hmm": (
        "the GPU reads any memory of the host by faults (HMM), of which nobody told a rate; "
        "managed memory moves as where it reads that alone"
    ),
}


def command(
    size: Annotated[str, typer.Option(metavar="SIZE", help="Size of the array: 40GiB.")],
    machine: Annotated[
        Optional[str],
        typer.Option(
            metavar="NAME",
            help="Machine: ac922, x86-pcie3 or gh200 (default: the most similar to this host).",
        ),
    ] = None,
    runs: um_options.Runs = 5,
    op: um_options.Op = "read",
    touch_on_host: Annotated[
        bool,
        typer.Option(
            "--touch-on-host", help="Assume that the host writes the array before each run."
        ),
    ] = False,
    json: Json = False,
    out: Out = None,
) -> None:
    """Advise how to allocate an array that a GPU reads.

    The recipes run on the model of headrace predict um, which says why the advised one is
    the fastest and what the others cost (docs/design/gpu/um.md).

    \b
    headrace advise um --size 40GiB --machine ac922
    headrace advise um --size 8GiB --machine x86-pcie3 --touch-on-host
    """
    check_writable(out)
    asked = um_options.checked(
        Case(size=um_options.size(size), runs=runs, op=op, touch_on_host=touch_on_host)
    )
    made = {
        **output.head("advise_um"),
        "rests_on": {"level": "model", "detail": "a model of the driver's states, not a GPU"},
        **um_advice.advise(here() if machine is None else model.machine_named(machine), asked),
    }
    output.deliver(made, out=out, json=json, show=lambda: output.print_text(text(made)))


def here() -> model.Machine:
    """The model whose GPU reaches host memory in the same way as this host's, with this GPU's
    memory size.

    AbsentError: no GPU. UnsupportedError: no model of such.
    """
    try:
        gpu = headrace.unified_memory_gpu(headrace.Machine.discover())
    except headrace.AbsentError as error:
        raise headrace.AbsentError(f"{error}; for another machine give --machine ac922") from None
    slow = model.machine_named("x86-pcie3")
    like = {
        "ats": model.machine_named("gh200"), "managed": slow, "hmm": replace(slow, hmm=True)
    }.get(gpu.paradigm)  # fmt: skip
    if like is None:
        raise headrace.UnsupportedError(
            f"no model of a GPU that reaches memory of the host as this one ({gpu.paradigm}); give "
            f"--machine {', '.join(model.NAMES)}"
        )
    if gpu.managed_bytes < model.BLOCK:
        raise headrace.ExhaustedError(
            f"{gpu.name} has no room for managed memory now; end what has its memory, or give "
            f"--machine {', '.join(model.NAMES)}"
        )
    which = "managed memory" if like.hmm else "memory"
    words = f"{gpu.name}, with the figures of {like.name}, which reaches {which} as it does"
    return replace(like, name="here", words=words, device_bytes=gpu.managed_bytes)


def text(made: Mapping[str, Any]) -> str:
    best = next(row for row in made["rows"] if row["recipe"] == made["advised"])
    size, room = map(headrace.format_bytes, (made["size"], made["device_bytes"]))
    rate = f"{_rate(best['run_1'])} GiB/s in run 1"
    if best["after_1"] is not None:
        rate += f", {_rate(best['after_1'])} after it"
    head = "\n".join((
        prose(f"{made['machine']}: {made['machine_words']}; {_PARADIGMS[made['paradigm']]}."),
        prose(f"Do: {best['calls']}."),
        prose(f"Because: {size} is {'more than' if made['beyond_the_card'] else 'within'} the "
              f"{room} that the card has for managed memory. The array {best['because']}: {rate}."),
    ))  # fmt: skip
    table = output.table_text(
        ("recipe", "because", "run 1", "after 1", "all", "slower"),
        [
            (row["recipe"], row["because"].removeprefix(f"{made['machine']}: "),
             _rate(row["run_1"]), _rate(row["after_1"]), _rate(row["rate"]),
             "-" if row["slower"] is None else f"{row['slower']:.2f} x")
            for row in made["rows"]
        ],
        left=2,
    )  # fmt: skip
    notes = [
        f"Computed, not measured: GiB/s, all over {plural(made['runs'], 'run')} of the "
        f"{made['kernel']} kernel. Check by a run{'' if made['machine'] == 'here' else ' there'}:"
    ]
    if made["beyond_the_card"]:
        notes.insert(0, beyond(made))
    return "\n\n".join((head, table, *map(prose, notes))) + f"\n{best['check']}"


def beyond(made: Mapping[str, Any]) -> str:
    """The effect of managed memory that exceeds the GPU's, if a recipe uses managed memory."""
    plain = next(row for row in made["rows"] if row["recipe"] == "managed")
    if plain["rate"] is None:
        what = "how fast is not known there, as nobody published it"
    else:
        what = f"{_rate(plain['after_1'] or plain['run_1'])} GiB/s"
    return (
        "Managed memory beyond the card's, without advice that keeps it in host memory: pages are "
        f"evicted for others in each run, {what}. Advice that keeps it there holds until something "
        "brings it: a prefetch, or access counters."
    )


def _rate(rate: float | None) -> str:
    if rate is None:
        return "-"
    return f"{rate:.2f}" if rate < 100 else f"{rate:.0f}"
