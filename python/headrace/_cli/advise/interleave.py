# SPDX-License-Identifier: Apache-2.0
"""headrace advise interleave"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Optional

import typer

import headrace
from headrace._cli import output, parse
from headrace._cli.advise.orders import lines as order_lines
from headrace._cli.advise.orders import orders
from headrace._cli.options import Json, Out
from headrace._core import format_rate
from headrace._files import check_writable
from headrace._format import listed, plural, prose

#: With more nodes, a table with a column for each is wider than a terminal.
_MOST_COLUMNS = 4


def command(
    machine: Annotated[
        Optional[str],
        typer.Option("--machine", metavar="NAME|FILE", help="Preset whose curves are used."),
    ] = None,
    profile: Annotated[
        Optional[str],
        typer.Option(
            "--profile",
            metavar="FILE",
            help="Profile whose curves are used, written by headrace measure loaded.",
        ),
    ] = None,
    threads: Annotated[
        Optional[int],
        typer.Option(
            metavar="NUMBER",
            min=1,
            max=4096,
            help="Number of threads that use the data (default: one per CPU).",
        ),
    ] = None,
    demand: Annotated[
        Optional[str],
        typer.Option(
            metavar="RATE", help="Bandwidth that is read and written, instead of --threads: 40GB/s."
        ),
    ] = None,
    lines: Annotated[
        Optional[float],
        typer.Option(
            metavar="NUMBER",
            help="Number of cache lines in flight at all times, instead of --threads.",
        ),
    ] = None,
    lines_per_thread: Annotated[
        float,
        typer.Option(
            metavar="NUMBER",
            help="Cache lines in flight per thread: 10 to 16 by the core, 1 for pointer chasing.",
        ),
    ] = headrace.LINES_PER_THREAD,
    mix: Annotated[
        str,
        typer.Option(
            metavar="MIX", help="Accesses: read, write, nt_write, or loads to stores (2:1)."
        ),
    ] = "read",
    data_size: Annotated[
        Optional[str],
        typer.Option(metavar="SIZE", help="Size of the data set (default: any size fits)."),
    ] = None,
    free: Annotated[
        Optional[str],
        typer.Option(
            metavar="NODE=SIZE,...", help="Free memory by node (default: all of each node)."
        ),
    ] = None,
    cpu_node: Annotated[
        Optional[int],
        typer.Option(metavar="NODE", min=0, help="Node whose CPUs use the data."),
    ] = None,
    json: Json = False,
    out: Out = None,
) -> None:
    """Advise how to split a data set between memories.

    A memory answers more slowly under load, so the best split depends on the load: a light load
    belongs on the nearest memory, a heavy one is spread. The figures are predictions from
    loaded-latency curves, measured or published.

    \b
    headrace measure loaded --full --out p.json
    headrace advise interleave --profile p.json --threads 16
    headrace advise interleave --profile p.json --demand 40GB/s --mix 2:1
    headrace advise interleave --machine cxl-a1000 --data-size 200GiB
    """
    check_writable(out, machine, profile)
    curves = _curves(machine, profile)
    asked = {"--threads": threads, "--demand": demand, "--lines": lines}
    given = [name for name, value in asked.items() if value is not None]
    if len(given) > 1:
        raise headrace.InvalidError(f"{listed(given)} each say how much is asked; give one")
    if not 0 < lines_per_thread <= 1024:
        raise headrace.InvalidError(
            f"--lines-per-thread {lines_per_thread:g} is out of range; "
            "give 1 to 1024"
        )
    size = None if data_size is None else parse.size(data_size)
    if free is not None and size is None:
        raise headrace.InvalidError("--free matters for a data set of a size; add --data-size")
    if threads is None and demand is None and lines is None:
        threads = _cpus(curves, cpu_node)
    advice = _advised(
        curves,
        profile,
        cpu_node=cpu_node,
        mix=mix,
        demand=None if demand is None else parse.rate(demand),
        lines=threads * lines_per_thread if threads is not None else lines,
        data=size,
        free=_free(free),
    )
    made = document(curves, advice, threads, lines_per_thread, size)
    output.deliver(made, out=out, json=json, show=lambda: output.print_text(text(made)))


def _curves(machine: str | None, profile: str | None) -> headrace.Profile:
    if (machine is None) == (profile is None):
        raise headrace.InvalidError(
            "whose loaded-latency curves? give one: --profile p.json (headrace measure loaded "
            "--out p.json) or --machine cxl-a1000"
        )
    return parse.profile(machine or profile or "")


def _advised(
    curves: headrace.Profile, file: str | None, **load: Any
) -> headrace.InterleaveAdvice:
    """The advice. Errors name the file."""
    try:
        return headrace.advise_interleave(curves, **load)
    except headrace.Error as error:
        raise type(error)(f"{file}: {error}" if file else str(error)) from None


def _cpus(curves: headrace.Profile, cpu_node: int | None) -> int | None:
    """The number of CPUs of the node that uses the data; None: unknown, and C++ reports why."""
    chosen = cpu_node
    if chosen is None:
        try:
            chosen = headrace.advise_interleave(curves, lines=1).cpu_node
        except headrace.Error:
            return None
    return next((len(n.cpus) or None for n in curves.machine.nodes if n.id == chosen), None)


def _free(text: str | None) -> dict[int, int]:
    found = {}
    for part in parse.words(text):
        ((name, value),) = parse.settings(part).items()
        if not (name.isascii() and name.isdecimal() and len(name) <= 9):
            raise headrace.InvalidError(f"'{name}' is no node; write 0=64GiB,8=200GiB")
        if int(name) in found:
            raise headrace.InvalidError(f"--free has node {int(name)} twice; give it once")
        found[int(name)] = parse.size(str(value))
    return found


def document(
    curves: headrace.Profile,
    advice: headrace.InterleaveAdvice,
    threads: int | None,
    per_thread: float,
    data: int | None,
) -> dict[str, Any]:
    weights = {node.node: node.weight for node in advice.nodes}
    flip = advice.flip
    return {
        **output.head("advise_interleave"),
        "machine": curves.machine.name,
        "cpu_node": advice.cpu_node,
        "mix": advice.mix,
        "load": {
            "threads": threads,
            "lines_per_thread": per_thread if threads is not None else None,
            "lines": None if advice.lines is None else advice.lines / advice.bus,
            "demand": None if advice.demand is None else advice.demand / advice.bus,
        },
        "data_bytes": data,
        "weights": {str(node): weight for node, weight in weights.items()},
        "weight_loss": advice.weight_loss,
        "share": {str(node.node): node.share for node in advice.nodes},
        "share_error": advice.share_error,
        "demand_flip": None if flip is None else {
            "bandwidth": flip.bandwidth / advice.bus,
            "bus": flip.bandwidth,
            "lines": flip.lines / advice.bus,
            "threads": flip.lines / advice.bus / per_thread,
        },
        "predicted": {each.name.replace(" ", "_"): _predicted(advice, each)
                      for each in advice.spreads},
        "basis": "modelled",
        "nodes": [
            {"node": n.node, "kind": n.kind, "idle_ns": n.idle_ns, "best": n.best / advice.bus,
             "best_bus": n.best, "most_share": n.most_share, "basis": n.basis, "source": n.source}
            for n in advice.nodes
        ],
        "orders": orders({node: weight for node, weight in weights.items() if weight}, data),
        "warnings": list(advice.warnings),
    }  # fmt: skip


def _predicted(advice: headrace.InterleaveAdvice, each: headrace.NamedSpread) -> dict[str, Any]:
    spread = each.spread
    if spread is None:
        return {"bandwidth": None, "reason": each.reason}
    return {
        "bandwidth": spread.bandwidth / advice.bus,
        "bus": spread.bandwidth,
        "latency_ns": spread.latency_ns,
        "saturated": spread.saturated,
        "share": {str(n.node): share for n, share in zip(advice.nodes, spread.share, strict=True)},
    }


def text(made: Mapping[str, Any]) -> str:
    """The advice, a table of the choices, the reason, the commands, and the basis."""
    parts = [prose(_asked(made)), prose(_answer(made)), _table(made), prose(_why(made))]
    parts.append("To do it:\n" + "\n".join(f"  {line}" for line in order_lines(made["orders"])))
    parts.append("\n".join(prose(line, "  ") for line in _basis(made)))
    return "\n\n".join(parts)


def _asked(made: Mapping[str, Any]) -> str:
    load = made["load"]
    if load["threads"] is not None:
        much = (
            f"{plural(load['threads'], 'thread')} on CPUs of node {made['cpu_node']}, "
            f"{_lines(load['lines_per_thread'])} in flight each"
        )
    elif load["lines"] is not None:
        much = f"{_lines(load['lines'])} in flight from CPUs of node {made['cpu_node']}"
    else:
        much = f"{format_rate(load['demand'])} asked by CPUs of node {made['cpu_node']}"
    data = made["data_bytes"]
    size = "" if data is None else f", a data set of {headrace.format_bytes(data)}"
    return f"{made['machine']}: {much}; mix {made['mix']}{size}"


def _lines(count: float) -> str:
    return f"{count:g} cache line{'' if count == 1 else 's'}"


def _name(made: Mapping[str, Any], node: str) -> str:
    kind = next(each["kind"] for each in made["nodes"] if str(each["node"]) == node)
    return f"node {node} ({kind})"


def _answer(made: Mapping[str, Any]) -> str:
    used = {node: weight for node, weight in made["weights"].items() if weight}
    chosen = made["predicted"]["weights"]
    if len(used) == 1:
        what = f"Put all on {_name(made, next(iter(used)))}"
    else:
        pages = [f"{weight} on {_name(made, node)}" for node, weight in used.items()]
        what = f"Of every {sum(used.values())} pages put {listed(pages)}"
    said = f"{what}: {_outcome(chosen)}"
    alone = made["predicted"][f"node_{next(iter(made['weights']))}_only"]
    first = next(iter(made["weights"]))
    if alone["bandwidth"] is None:
        return f"{said}. The data set does not fit on node {first} alone."
    if list(used) != [first]:
        said += f", instead of {_outcome(alone)} with all on node {first}"
    return said + "."


def _outcome(predicted: Mapping[str, Any]) -> str:
    if predicted["latency_ns"] is None:
        return f"{format_rate(predicted['bandwidth'])} at most"
    return f"{format_rate(predicted['bandwidth'])} at {predicted['latency_ns']:.0f} ns per access"


def _table(made: Mapping[str, Any]) -> str:
    """Bandwidth and latency of each spread, with its shares if there are few nodes."""
    nodes = list(made["weights"])
    few = len(nodes) <= _MOST_COLUMNS
    shown = nodes if few else []
    stores = made["mix"] != "read"
    headings = ["pages", *(f"node {node}" for node in shown), "GB/s"]
    headings += ["GB/s of the memory"] if stores else []
    headings += ["ns per access", ""]
    rows = []
    by_node = ":".join(str(weight) for weight in made["weights"].values())
    for name, each in made["predicted"].items():
        label = name.replace("_", " ")
        if name == "weights":
            label = f"{by_node} (advised)" if few else "weights (advised)"
        elif few and label == by_node:
            continue  # the advised weights, which have their line
        if each["bandwidth"] is None:
            rows.append([label, *["-"] * (len(headings) - 2), each["reason"]])
            continue
        cells = [f"{each['share'][node] * 100:.1f} %" for node in shown]
        cells.append(f"{each['bandwidth'] / 1e9:.1f}")
        cells += [f"{each['bus'] / 1e9:.1f}"] if stores else []
        latency = each["latency_ns"]
        cells.append("-" if latency is None else f"{latency:.0f}")
        note = "less than is asked" if latency is None else "gives all it can" * each["saturated"]
        rows.append([label, *cells, note])
    table = output.table_text(headings, rows)
    return table if few else f"{_nodes(made)}\n\n{table}"


def _nodes(made: Mapping[str, Any]) -> str:
    """Weight, share and limits of each memory."""
    rows = [
        (
            _name(made, node),
            str(weight),
            f"{made['share'][node] * 100:.1f} %",
            f"{each['idle_ns']:.0f}",
            f"{each['best'] / 1e9:.1f}",
        )
        for (node, weight), each in zip(made["weights"].items(), made["nodes"], strict=True)
    ]
    return output.table_text(("memory", "weight", "best", "idle ns", "GB/s at most"), rows)


def _why(made: Mapping[str, Any]) -> str:
    first, rest = made["nodes"][0], made["nodes"][1:]
    others = [f"node {each['node']} in {each['idle_ns']:.0f} ns" for each in rest]
    if len(others) >= _MOST_COLUMNS:
        others = [f"the others in {rest[0]['idle_ns']:.0f} to {rest[-1]['idle_ns']:.0f} ns"]
    said = (
        f"Why: idle, node {first['node']} answers in {first['idle_ns']:.0f} ns and "
        f"{listed(others)}; but an answer takes the longer the more is asked, and node "
        f"{first['node']} gives {format_rate(first['best'])} at most. Each page goes where it "
        "delays all accesses least, those that wait behind it too. "
    )
    flip = made["demand_flip"]
    if flip is None:
        return said + f"No load is better off with a part elsewhere than on node {first['node']}."
    if flip["bandwidth"] == 0:
        return said + f"All of it does not fit on node {first['node']}."
    return said + (
        f"A part elsewhere begins to help at {format_rate(flip['bandwidth'])} "
        f"({flip['lines']:.0f} lines in flight, {flip['threads']:.1f} threads); below that node "
        f"{first['node']} alone is best."
    )


def _loss(made: Mapping[str, Any]) -> str:
    """Loss by integer weights. There is no latency if they do not meet the demand."""
    if made["weight_loss"] is None:
        given = made["predicted"]["weights"]["bandwidth"] / made["predicted"]["best"]["bandwidth"]
        return f"Whole weights give {(1 - given) * 100:.2g} % less than is asked,"
    what = "latency" if made["load"]["lines"] is None else "bandwidth"
    return f"Whole weights cost {made['weight_loss'] * 100:.1f} % of {what}"


def _basis(made: Mapping[str, Any]) -> list[str]:
    by_source: dict[str, list[str]] = {}
    for each in made["nodes"]:
        source = f"{each['basis']}: {each['source']}" if each["source"] else each["basis"]
        by_source.setdefault(source, []).append(str(each["node"]))
    curves = "; ".join(f"node {', '.join(nodes)} {src}" for src, nodes in by_source.items())
    told = [
        f"Basis: the curves are {curves}. All else here is computed from them, not measured.",
        f"{_loss(made)} against the best split, whose shares they miss by at most "
        f"{made['share_error'] * 100:.1f} %.",
        "Pages are taken to be used equally; where few are hot, see headrace advise capacity.",
    ]
    return told + [f"Warning: {warning}." for warning in made["warnings"]]
