# SPDX-License-Identifier: Apache-2.0
"""headrace bench histogram"""

from __future__ import annotations

from typing import Annotated, Any, Optional

import headrace
import headrace_bench
from headrace._cli import exit_codes, output, parse
from headrace._cli.interrupt import Interrupt
from headrace._cli.options import Json, Out, Threads
from headrace._files import check_writable
from headrace._format import interval_text, seconds_text
from headrace._profile.documents import all_fields
from headrace._provenance import rests_on
from headrace_bench.commands.options import number, option


def command(
    data: Annotated[Optional[str], option(
        "PLACE", "Memory of the doubles (default: the two fastest kinds, in turn).", "--data",
    )] = None,
    bins: Annotated[Optional[str], option(
        "PLACE", "Memory of the counters (default: the two fastest kinds, in turn).", "--bins",
    )] = None,
    threads: Threads = None,
    size: Annotated[
        Optional[str], option("SIZE", "Size of all data (default: 171 MiB per thread, if it fits).")
    ] = None,
    rounds: Annotated[int, number("Number of rounds, each in fresh memory.", 1, 1000)] = 3,
    json: Json = False,
    out: Out = None,
) -> int:
    """Count doubles into bins, both in chosen memories.

    The example is IT4I's. PLACE is the same as for headrace run.

    \b
    headrace bench histogram                          all four combinations
    headrace bench histogram --data dram --bins hbm   the best in IT4I's guide
    """
    from headrace_bench import histogram
    from headrace_bench.runner import check
    from headrace_bench.threads import cpus_for

    if out is not None:
        check_writable(out)
    machine = headrace.Machine.discover(storage=[])
    cpus = cpus_for(machine, threads)
    pairs = histogram.chosen(machine, data, bins, cpus)
    wanted = parse.size(size) if size else histogram.default_bytes(machine, pairs, cpus)
    options = histogram.Options(pairs, cpus, wanted, rounds)
    with Interrupt() as interrupt, output.ProgressBar("counting") as bar:
        runner = histogram.run(machine, options, interrupt, bar)
    rows = histogram.rows(runner, options)
    document = output.document(
        "bench histogram", machine, source=histogram.SOURCE, bins=headrace_bench.HISTOGRAM_BINS,
        iterations=options.iterations, rounds=rounds, cpus=list(cpus), order=runner.order(),
        interrupted=interrupt.requested, rows=[row.asdict() for row in rows],
        conclusion=histogram.conclusion(rows, rests_on(machine)["level"]),
    )  # fmt: skip
    output.deliver(document, out=out, json=json, show=lambda: print_histogram(document))
    check(document, "the counts are")
    return exit_codes.INTERRUPTED if interrupt.requested else exit_codes.SUCCESS


def print_histogram(document: dict[str, Any]) -> None:
    rows = all_fields(document)
    first = rows[0]
    output.print_text(
        f"{headrace.format_bytes(first['bytes'])} of doubles into {document['bins']} bins for each "
        f"of {first['threads']} threads, {document['iterations']} iterations, "
        f"{document['rests_on']['detail']}"
    )
    output.print_table(
        ("data", "bins", "seconds", "interval", "rate", "verified"),
        ((r["data"], r["bins"], seconds_text(r["median"]), interval_text(r, seconds_text),
          "-" if r["median"] is None else str(headrace.format_rate(r["bytes_per_second"])),
          {0: "yes", None: "-"}.get(r["wrong"], "NO")) for r in rows),
        left=2,
    )  # fmt: skip
    for row in rows:
        if remark := row["reason"] or row["complaint"] or row["note"]:
            output.print_text(f"data {row['data']}, bins {row['bins']}: {remark}")
    if len({place for row in rows for place in (row["data"], row["bins"])}) == 1:
        output.print_text(f"one kind of memory only, {first['data']}: nothing to compare it with")
    holds = {True: "holds here", False: "does NOT hold here", None: "unproven here"}
    told = document["conclusion"]
    output.print_text(f"IT4I's conclusion ({told['claim']}): {holds[told['holds']]}; {told['why']}")
