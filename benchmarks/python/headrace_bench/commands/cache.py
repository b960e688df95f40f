# SPDX-License-Identifier: Apache-2.0
"""headrace bench cache"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import headrace
from headrace._cli import exit_codes, output, parse
from headrace._cli.interrupt import Interrupt
from headrace._cli.options import Json, Out
from headrace._files import check_writable
from headrace._format import intervals_text, plural, rounds_text, say
from headrace._profile.documents import Fields, all_fields
from headrace._profile.plans import in_words
from headrace_bench.commands.options import flag, number, option

#: Longer runs print an estimate first.
_TOLD_SECONDS = 10.0


def command(
    implementations: Annotated[
        Optional[str], option("LIST", "Implementations, such as headrace,sharded (default: all).")
    ] = None,
    scenarios: Annotated[
        Optional[str], option("LIST", "Scenarios, such as hit-spread,buffer-pool (default: all).")
    ] = None,
    threads: Annotated[Optional[str], option(
        "LIST", "Numbers of threads (default: 1, 2, 4, ... to twice the cores).",
    )] = None,
    rounds: Annotated[int, number("Number of interleaved repetitions.", 1, 1000)] = 5,
    seconds: Annotated[float, number("Seconds per measurement.", 0.001, 60)] = 0.1,
    part_seconds: Annotated[
        float, number("Seconds per part of a scenario with files.", 0.01, 600)
    ] = 2.0,
    extents: Annotated[Optional[int], number(
        "Number of extents of the file (default: small-miss 200000, buffer-pool 81920).",
        16, 1 << 30,
    )] = None,
    budget: Annotated[Optional[str], option(
        "SIZE", "Memory for copies of the file (default: small-miss 256MiB, buffer-pool 64MiB).",
    )] = None,
    scan: Annotated[
        Optional[str], option("SIZE", "Size of the file that small-miss scans (default: 1GiB).")
    ] = None,
    data: Annotated[Optional[Path], option(
        "DIRECTORY", "Directory that keeps the files for the next run (default: a temporary one).",
    )] = None,
    instructions: Annotated[
        bool, flag("--instructions", "Count instructions too, with valgrind (minutes).")
    ] = False,
    seed: Annotated[int, number("Seed of every random choice.", 0, 1 << 40)] = 1,
    list_them: Annotated[bool, flag("--list", "List the implementations and scenarios.")] = False,
    json: Json = False,
    out: Out = None,
) -> int:
    """Compare caches: hits, misses, pins, plans, small reads.

    The command prints an estimate of its duration first.

    \b
    headrace bench cache --list
    headrace bench cache --scenarios hit-spread --threads 1 --instructions
    headrace bench cache --scenarios small-miss,buffer-pool --data /ssd/bench
    """
    from headrace_bench import cache
    from headrace_bench.runner import check

    known = cache.known()
    if list_them:
        output.print_list("bench cache", json=json, show=lambda: print_known(known), **known)
        return exit_codes.SUCCESS
    if out is not None:
        check_writable(out)
    machine = headrace.Machine.discover()
    options = cache.Options(
        implementations=parse.words(implementations), scenarios=parse.words(scenarios),
        threads=parse.counts(threads) or cache.default_threads(machine), rounds=rounds,
        seconds=seconds, part_seconds=part_seconds, extents=extents, budget=at_least_mib(budget),
        scan=at_least_mib(scan), directory=data, instructions=instructions, seed=seed,
    )  # fmt: skip
    variants = cache.chosen(known, options)
    with Interrupt() as interrupt, output.ProgressBar("caches") as bar:
        runner, rows = cache.run(
            variants, options, interrupt, bar, begin=lambda: _tell_duration(variants, options)
        )
    document = output.document(
        "bench cache", machine, rounds=rounds, seconds=seconds, seed=seed,
        files={"part_seconds": part_seconds, "threads": cache.FILE_THREADS},
        interrupted=interrupt.requested, **known, order=runner.order(),
        rows=[row.asdict() for row in rows],
    )  # fmt: skip
    output.deliver(document, out=out, json=json, show=lambda: print_cache(document))
    check(document, "blocks are")
    return exit_codes.INTERRUPTED if interrupt.requested else exit_codes.SUCCESS


def _tell_duration(variants: list[Any], options: Any) -> None:
    from headrace_bench import cache

    count, seconds = cache.estimate(variants, options)
    if seconds > _TOLD_SECONDS:
        told = f"{plural(count, 'measurement')}, about {in_words(seconds)}"
        say(f"{told}; Ctrl-C keeps what is measured")


def at_least_mib(text: str | None) -> int | None:
    if text is None:
        return None
    size = parse.size(text)
    if not 1 << 20 <= size <= 1 << 40:
        raise headrace.InvalidError(f"'{text}'; give 1MiB to 1TiB")
    return size


def print_known(known: dict[str, Any]) -> None:
    for kind in ("implementations", "scenarios"):
        heading = kind.removesuffix("s")
        lines = [(each["name"], each["about"] + _missing(each)) for each in known[kind]]
        output.print_table((heading, "what it is"), lines, left=2)
        if kind == "implementations":
            output.print_text("")


def _missing(each: dict[str, Any]) -> str:
    return f"; not here: {each['missing']}" if each.get("missing") else ""


def print_cache(document: dict[str, Any]) -> None:
    """Prints a table for each scenario with a line per implementation, then reasons for missing
    numbers."""
    rows = all_fields(document)
    for scenario in document["scenarios"]:
        found = [row for row in rows if row["scenario"] == scenario["name"]]
        measured = [row for row in found if row["median"] is not None]
        if not measured:
            continue
        output.print_text(f"{scenario['name']}: {scenario['about']}")
        if scenario["files"]:
            _print_files(measured)
        else:
            _print_times(measured)
        output.print_text("")
    told = {row["implementation"]: row for row in rows if row["reason"] or row["note"]}
    for row in told.values():
        output.print_text(f"{row['implementation']}: {row['reason'] or row['note']}")
    rests_on = document["rests_on"]["detail"]
    output.print_text(
        f"medians of {rounds_text(document)} and their {intervals_text(rows)}; a thread's time, "
        f"{rests_on}"
    )


def _print_times(rows: list[Fields]) -> None:
    """Prints times by number of threads. For the smallest number also CPU time, which other work
    affects less, misses and instructions.
    """
    threads = sorted({row["threads"] for row in rows})
    counted = any(row["instructions_per_op"] is not None for row in rows)
    by_name: dict[str, dict[int, Fields]] = {}
    for row in rows:
        by_name.setdefault(row["implementation"], {})[row["threads"]] = row
    lines = []
    for name, found in by_name.items():
        first = next(iter(found.values()))
        extra = [_number(first["instructions_per_op"], 0)] if counted else []
        lines.append(
            (
                name,
                *(_time(found.get(n)) for n in threads),
                f"{_ns(first['cpu_ns_per_op'])} ns",
                f"{first['hit_ratio']:.0%}",
                *extra,
            )
        )
    headings = [f"{n} thread{'s' * (n > 1)}" for n in threads]
    headings += [f"CPU, {threads[0]}", "hits", *(["instructions"] if counted else [])]
    output.print_table(("", *headings), lines)


def _time(row: Fields | None) -> str:
    """ "12.3 (12.1 to 12.9) ns"."""
    if row is None:
        return "-"
    bounds = f" ({_ns(row['low'])} to {_ns(row['high'])})" if len(row["samples"]) > 1 else ""
    return f"{_ns(row['median'])}{bounds} ns"


def _ns(value: float) -> str:
    return f"{value:.{1 if value < 1000 else 0}f}"


def _print_files(rows: list[Fields]) -> None:
    """Prints lookups alone; if there is a scan, then both alone and beside each other."""
    first = rows[0]
    output.print_text(
        f"{first['threads']} threads, {first['extents']:.0f} extents, "
        f"{headrace.format_bytes(int(first['budget_bytes']))}"
    )
    output.print_table(
        ("", "ops/s", "hits", "CPU/miss", "over budget"),
        (
            (row["implementation"], f"{row['ops_per_second']:.0f}", f"{row['hit_ratio']:.0%}",
             _micro(row["cpu_ns_per_miss"]), _mib(row["memory_over_budget_bytes"]))
            for row in rows
        ),
    )  # fmt: skip
    output.print_text("")
    output.print_table(
        ("", "hit p50", "p99", "p99.9", "max", "miss p50", "p99"),
        (
            (row["implementation"],
             *(_micro(row[f"hit_{which}_ns"]) for which in ("p50", "p99", "p999", "max")),
             *(_micro(row[f"miss_{which}_ns"]) for which in ("p50", "p99")))
            for row in rows
        ),
    )  # fmt: skip
    if "scan_alone_bytes_per_second" not in first:
        return
    output.print_text("")
    output.print_table(
        ("", "lookups/s alone", "beside the scan", "scan alone", "beside lookups"),
        (
            (row["implementation"], f"{row['ops_per_second']:.0f}",
             f"{row['lookups_beside_scan_per_second']:.0f}",
             _rate(row["scan_alone_bytes_per_second"]),
             _rate(row["scan_beside_lookups_bytes_per_second"]))
            for row in rows
        ),
    )  # fmt: skip


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _micro(ns: float | None) -> str:
    return "-" if ns is None else f"{ns / 1e3:.1f} us"


def _mib(size: float) -> str:
    return f"{size / (1 << 20):.0f} MiB"


def _rate(value: float) -> str:
    return str(headrace.format_rate(value))
