"""headrace bench copy, headrace bench query"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import headrace
from headrace._cli import exit_codes, output, parse
from headrace._cli.interrupt import Interrupt
from headrace._errors import WrongAnswer, kind_of
from headrace._report_words import efficiency, percent

#: What --quick and the demo measure: below, at and above the streaming threshold, out of all
#: caches; and the fewest rounds that give a median.
QUICK_SIZES = (4 << 10, 256 << 10, 4 << 20, 64 << 20)
QUICK_ROUNDS = 3


def measure_copy(
    machine: headrace.Machine, interrupt: Interrupt, **options: Any
) -> list[headrace.CopyRow]:
    """bench_copy() with a progress bar, until done or interrupted."""
    with output.ProgressBar("copying") as bar:
        return headrace.bench_copy(machine, stop=interrupt, progress=bar, **options)


def copy_document(
    machine: headrace.Machine, rows: list[headrace.CopyRow], rounds: int, interrupted: bool
) -> dict[str, Any]:
    return output.document(
        "bench copy",
        machine,
        kernel=headrace.chosen_copy_kernel(),
        rounds=rounds,
        interrupted=interrupted,
        rows=[row.asdict() for row in rows],
    )


def copy(
    *,
    json: bool,
    sizes: str | None,
    threads: str,
    engines: str,
    rounds: int,
    quick: bool,
    out: Path | None,
) -> int:
    wanted = parse.sizes(sizes) or (list(QUICK_SIZES) if quick else [])
    options: dict[str, Any] = {
        "sizes": wanted,
        "threads": parse.counts(threads) or [1],
        "engines": [] if engines == "all" else parse.words(engines),
        "rounds": min(rounds, QUICK_ROUNDS) if quick else rounds,
    }
    known = ["memcpy", "cpu", *headrace.copy_kernels()]
    for engine in options["engines"]:
        if engine not in known:
            raise headrace.AbsentError(f"no engine '{engine}' here; there are {', '.join(known)}")
    if out is not None:
        output.check_writable(out)
    machine = headrace.Machine.discover()
    with Interrupt() as interrupt:
        rows = measure_copy(machine, interrupt, **options)
    document = copy_document(machine, rows, options["rounds"], interrupt.requested)
    output.deliver(document, out=out, json=json, show=lambda: print_copy(document["rows"]))
    return exit_codes.INTERRUPTED if interrupt.requested else exit_codes.SUCCESS


def print_copy(rows: list[dict[str, Any]]) -> None:
    """One line per state, size and threads; one column per engine: rate and ratio to memcpy."""
    engines = list(dict.fromkeys(row["engine"] for row in rows))
    lines: dict[tuple[str, int, int], dict[str, str]] = {}
    for row in rows:
        line = lines.setdefault((row["state"], row["bytes"], row["threads"]), {})
        line[row["engine"]] = _cell(row)
    output.print_table(
        ("state", "bytes", "threads", *engines),
        (
            (state, headrace.format_bytes(size), str(threads), *(cells.get(e, "") for e in engines))
            for (state, size, threads), cells in lines.items()
        ),
    )
    for reason in dict.fromkeys(row["reason"] for row in rows if row["reason"]):
        print(f"not measured: {reason}")


def _cell(row: dict[str, Any]) -> str:
    if row["bytes_per_second"] is None:
        return "-"
    rate: str = headrace.format_rate(row["bytes_per_second"])
    ratio = row["ratio_to_memcpy"]
    return rate if ratio is None or row["engine"] == "memcpy" else f"{rate}  x{ratio:.2f}"


def measure_query(options: Any, interrupt: Interrupt) -> dict[str, Any]:
    """bench_query() with a progress bar, until done or interrupted.

    The data are made first if need be. That keeps nothing when interrupted, so that Ctrl-C ends it
    at once.
    """
    from headrace import _data, _query

    with output.ProgressBar("preparing data") as bar:
        if not interrupt.requested:
            with interrupt.suspended():
                _data.prepare(options.scale, options.directory, lambda what, d, t: bar(d, t, what))
    with output.ProgressBar(options.query) as bar:
        return _query.bench_query(options, lambda what, d, t: bar(d, t, what), interrupt)


def query(
    *,
    query: str,
    scale: float,
    runs: int,
    modes: list[str] | None,
    slow: int | None,
    fast: int | None,
    threads: int | None,
    block: str,
    budget: str,
    data: Path | None,
    json: bool,
    out: Path | None,
) -> int:
    from headrace._query import MODES, PEER, QueryBenchOptions

    if out is not None:
        output.check_writable(out)
    options = QueryBenchOptions(
        query=query,
        scale=scale,
        runs=runs,
        modes=tuple(dict.fromkeys(modes)) if modes else (*MODES, PEER),
        threads=threads,
        block=parse.size(block),
        budget=parse.size(budget),
        slow=slow,
        fast=fast,
        directory=data,
    )
    headrace.query_columns(query)
    with Interrupt() as interrupt:
        document = measure_query(options, interrupt)
    output.deliver(document, out=out, json=json, show=lambda: print_query(document))
    check_query(document)
    return exit_codes.INTERRUPTED if document["interrupted"] else exit_codes.SUCCESS


def check_query(document: dict[str, Any]) -> None:
    """Raises, when all is written, if the run has a wrong answer or no number at all."""
    if document["answer_ok"] is False:
        raise WrongAnswer("the answers differ from DuckDB's; trust no number of this run")
    modes = document["modes"].values()
    if document["interrupted"] or any(mode["runs"] for mode in modes):
        return
    for mode in modes:
        raise kind_of(mode["code"])(f"no mode could be measured: {mode['reason']}")


def print_query(document: dict[str, Any]) -> None:
    """One line per mode, the floors, and whether the answer is right."""
    rows = [_mode_row(name, mode) for name, mode in document["modes"].items()]
    floor = document["floor"]
    for what in ("transfer", "compute"):
        middle, spread = (floor.get(f"{what}_{name}") for name in ("seconds", "mad"))
        rows.append((f"floor: {what}", _seconds(middle), _seconds(spread, ""), "", "", ""))
    print(
        f"{document['query']} at scale {document['scale']:g}, "
        f"{headrace.format_bytes(document['bytes'])} of columns from {document['slow']['name']} "
        f"to {document['fast']['name']}, {document['threads']} threads"
    )
    output.print_table(("mode", "seconds", "+-", "waited", "cached", "runs"), rows)
    if document["overlap_efficiency"] is not None:
        low, high = document["overlap_efficiency_interval"].values()
        print(
            f"overlap efficiency: {efficiency(document)}; max(transfer, compute) / prefetch, "
            f"95 % interval {low:.2f} to {high:.2f}"
        )
    right = {True: "equal to DuckDB's", False: "WRONG: differs from DuckDB's", None: "not checked"}
    print(f"answer: {right[document['answer_ok']]}")
    for mode in document["modes"].values():
        if "reason" in mode:
            print(f"not measured: {mode['reason']}")
    for warning in document["warnings"]:
        print(f"warning: {warning}")


def _mode_row(name: str, mode: dict[str, Any]) -> tuple[str, ...]:
    return (
        name,
        _seconds(mode["seconds_median"]),
        _seconds(mode["seconds_mad"]),
        _seconds(mode.get("waited_seconds")),
        _cached_share(name, mode),
        str(mode["runs"]),
    )


def _cached_share(name: str, mode: dict[str, Any]) -> str:
    """How much was in the page cache before the run; of `resident` all is in memory anyway."""
    cached = mode["cached_before_bytes"]
    if name == "resident" or cached is None:
        return "-"
    return str(percent(cached / mode["bytes"]))


def _seconds(value: float | None, missing: str = "-") -> str:
    return missing if value is None else f"{value:.3f}"
