# SPDX-License-Identifier: Apache-2.0
"""headrace bench spark"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Any, Optional

import headrace
from headrace._cli import exit_codes, output, parse
from headrace._cli.interrupt import Interrupt
from headrace._cli.options import Data, Json, Out, Scale
from headrace._files import check_writable
from headrace._format import interval_text, rounds_text, seconds_text
from headrace._profile.documents import Fields, all_fields
from headrace_bench import spark, spark_live, tpch_parquet
from headrace_bench.commands.options import number, option
from headrace_bench.runner import check
from headrace_bench.two_memories import memories_here

_NAIVE = "naive interleaving"
#: Words of the talk on each configuration.
TALK = {
    "MMEM": "",
    "3:1": _NAIVE,
    "1:1": _NAIVE,
    "1:3": _NAIVE,
    "Hot-Promote": "about 34 % slower than MMEM, faster than 3:1",
    "ssd-spill": "much worse than DRAM or CXL",
    "tmpfs-spill": "",
}


def command(
    queries: Annotated[
        Optional[str], option("LIST", "TPC-H queries: Q5, Q7, Q8, Q9 (default: all).")
    ] = None,
    configs: Annotated[
        Optional[str], option("LIST", "Configurations, such as MMEM,3:1,ssd-spill (default: all).")
    ] = None,
    scale: Scale = 1,
    rounds: Annotated[int, number("Number of repetitions after the first.", 1, 1000)] = 3,
    master: Annotated[
        Optional[str], option("URL", "Spark master: local[N] (default: all CPUs of a node).")
    ] = None,
    memory: Annotated[Optional[str], option(
        "SIZE", "Heap of each JVM (default: 256 MiB per thread of local[N], at least 2 GiB).",
    )] = None,
    spill_memory: Annotated[Optional[str], option(
        "SIZE",
        "Memory of tasks in ssd-spill and tmpfs-spill (default: 8 MiB per thread, at least 16 "
        "MiB).",
    )] = None,
    partitions: Annotated[Optional[int], number(
        "Number of partitions per shuffle (default: 2 per thread, at least 64).", 1, 10**5,
    )] = None,
    spill: Annotated[Optional[Path], option(
        "DIRECTORY", "Directory on an SSD for shuffled and spilled files (default: $TMPDIR).",
    )] = None,
    data: Data = None,
    json: Json = False,
    out: Out = None,
) -> int:
    """Measure TPC-H on Spark: interleaved memory or spilling.

    Configurations and queries come from a talk on CXL memory (P. Zhou, MemCon 2024). Answers are
    compared with DuckDB's. Configurations that this machine lacks are skipped, with the reason;
    headrace predict spark predicts another machine. A measurement needs Spark and Java
    (docs/design/workloads/spark.md).

    \b
    headrace bench spark --scale 0.1
    headrace bench spark --queries Q9 --configs MMEM,ssd-spill,tmpfs-spill
    """
    if out is not None:
        check_writable(out)
    machine = headrace.Machine.discover()
    cpus = len(memories_here(machine).cpus)
    master = master or f"local[{cpus}]"
    heap, tasks, parts = spark_live.defaults(spark_live.threads_of(master, cpus))
    heap = heap if memory is None else parse.size(memory)
    tasks = min(tasks, spark_live.tasks_memory(heap) // 2)
    options = spark_live.Options(
        queries=parse.chosen(queries, list(spark.QUERIES), "query", list(spark.QUERIES)),
        configs=parse.chosen(
            configs, spark_live.CONFIGS, "configuration", list(spark_live.CONFIGS)
        ),
        scale=scale, rounds=rounds, master=master,
        memory=heap,
        spill_memory=tasks if spill_memory is None else parse.size(spill_memory),
        partitions=partitions or parts, spill=spill or Path(tempfile.gettempdir()), data=data,
    )  # fmt: skip
    spark_live.check(options)
    return measured(machine, options, json, out)


def measured(
    machine: headrace.Machine, options: spark_live.Options, json: bool, out: Path | None
) -> int:
    points = spark_live.points(options)
    spark_live.leave_out(points, machine, options)
    with Interrupt() as interrupt, output.ProgressBar("Spark") as bar:
        # Tables are kept for the next run once complete; an incomplete one is not kept.
        with interrupt.suspended():
            bar(0, 1, f"TPC-H at scale {options.scale:g}")
            tables = tpch_parquet.prepare(options.scale, options.data)
        version, runner = spark_live.run(points, tables, machine, options, interrupt, bar)
    here = memories_here(machine)
    document = output.document(
        "bench spark", machine, basis="measured", versions=spark_live.versions(version),
        fast_node=None if here.alone else here.fast, slow_node=here.slow,
        scale=options.scale, rounds=options.rounds, master=options.master,
        memory_bytes=options.memory, spill_memory_bytes=options.spill_memory,
        partitions=options.partitions, interrupted=interrupt.requested,
        order=runner.order(), rows=[row.asdict() for row in spark_live.rows(runner)],
    )  # fmt: skip
    output.deliver(document, out=out, json=json, show=lambda: print_measured(document))
    check(document, "Spark's answer is")
    return exit_codes.INTERRUPTED if interrupt.requested else exit_codes.SUCCESS


def print_measured(document: dict[str, Any]) -> None:
    """Prints a table for each query, then reasons for missing numbers."""
    output.print_text(
        f"Spark {document['versions']['spark']} on {document['master']}, "
        f"TPC-H at scale {document['scale']:g}, heaps of "
        f"{headrace.format_bytes(document['memory_bytes'])}, {document['partitions']} partitions; "
        f"spilling with {headrace.format_bytes(document['spill_memory_bytes'])} for tasks"
    )
    if document["fast_node"] is not None:
        slow = document["slow_node"]
        output.print_text(
            f"all on the CPUs of node {document['fast_node']}, its memory first; "
            + ("no node is slower" if slow is None else f"the slow memory is node {slow}")
        )
    rows = all_fields(document)
    for name in dict.fromkeys(row["query"] for row in rows):
        found = [row for row in rows if row["query"] == name and row["median"] is not None]
        if found:
            output.print_text(f"\n{name}")
            _print_found(found)
    for row in {row["config"]: row for row in rows if row["reason"] or row["note"]}.values():
        output.print_text(f"{row['config']}: {row['reason'] or row['note']}")
    wrong = [row["wrong"] for row in rows if row["wrong"] is not None]
    if wrong:
        told = "WRONG, see below" if any(wrong) else "equal to DuckDB's"
        output.print_text(f"answers: {told}")
    rounds = rounds_text(document)
    output.print_text(f"medians of {rounds} and their intervals, {document['rests_on']['detail']}")


def _print_found(rows: list[Fields]) -> None:
    output.print_table(
        ("config", "the talk's words", "seconds", "interval", "task CPU", "GC", "shuffled",
         "spilled", "slow"),
        [
            (row["config"], TALK[row["config"]],
             seconds_text(row["median"]), interval_text(row, seconds_text),
             _seconds(row["cpu_seconds"]), _seconds(row["gc_seconds"]),
             _bytes(row["shuffle_bytes"]), _bytes(row["spilled_bytes"]), _share(row["slow_share"]))
            for row in rows
        ],
        left=2,
    )  # fmt: skip


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"


def _bytes(size: float | None) -> str:
    return "-" if size is None else str(headrace.format_bytes(int(size)))
