# SPDX-License-Identifier: Apache-2.0
"""``headrace bench query``: one query in every mode, interleaved, checked and compared.

The answer is compared for equality with DuckDB's on the same data, and DuckDB's time stands in the
table as the peer.
"""

from __future__ import annotations

import os
import platform
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import headrace_bench
from headrace import _core
from headrace._errors import unknown
from headrace._isolated_calls import Child
from headrace._provenance import rests_on
from headrace_bench import tpch
from headrace_bench.runner import SEED, Progress, Runner, Stop, Variant, median_of, row_of

#: Modes of the workload, in the order of a round; then the peer.
MODES = ("resident", "direct", "mmap", "prefetch")
PEER = "duckdb"
#: Not a mode: the transfer alone.
FLOOR = "floor"

#: Digits after the point of averages: the rule of average_text in benchmarks/query/decimal.h.
AVERAGE_DIGITS = 6
#: Averages of an answer and the sums they are derived from.
AVERAGES = {"avg_qty": "sum_qty", "avg_price": "sum_base_price", "avg_disc": "sum_disc"}


@dataclass(frozen=True)
class QueryBenchOptions:
    """Options of a run. A node that is not given is chosen from the machine's nodes."""

    query: str = "q6"
    scale: float = 3.0
    runs: int = 5
    modes: tuple[str, ...] = (*MODES, PEER)
    threads: int | None = None  #: of the pipeline and of the peer; None: all CPUs of this process
    aggregators: int = 0  #: threads of a second stage; then `threads` only filter
    groups: int = 1  #: nodes with CPUs that each scan a part of the rows; 1: no node is chosen
    engine: str = "any"  #: that copies between memories: any, cpu or dsa
    route: str = "measured"
    chunk: int = 1 << 20  #: bytes of a chunk of the widest column
    budget: int = 256 << 20  #: bytes of the cache on the fast node
    lead: float = 0.05  #: seconds a block should be ready before its use
    window: int = 64 << 20  #: most bytes fetched ahead
    slow: int | None = None
    fast: int | None = None
    directory: Path | None = None  #: of the tables; None: tpch.default_directory()


#: Called before each step: what is done, steps done, of how many.
Told = Callable[[str, float, float], object]


def bench_query(
    options: QueryBenchOptions | None = None, progress: Told | None = None, stop: Stop | None = None
) -> dict[str, Any]:
    """Runs the benchmark and returns its document, which json.dumps can write.

    When `stop` returns true, the document holds what was measured until then and "interrupted" is
    true.
    """
    options = checked(options or QueryBenchOptions())
    told = progress or (lambda what, done, total: None)
    table_path = tpch.prepare(options.scale, options.directory, told)
    bench = _Bench(options, table_path, stop or (lambda: False))
    what = f"{options.query} at scale {options.scale:g}"
    bench.run(lambda done, total, mode: told(what, done, total))
    return bench.document()


#: Threads of a group, at most.
MOST_THREADS = 1024


def checked(options: QueryBenchOptions) -> QueryBenchOptions:
    """The options, unless no machine could run them: known before any data are made."""
    headrace_bench.query_columns(options.query)  # raises for an unknown name
    tpch.check_scale(options.scale)
    if options.runs < 1:
        raise _core.InvalidError(f"{options.runs} runs; take at least 1")
    known = (*MODES, PEER)
    for mode in options.modes:
        if mode not in known:
            raise unknown("mode", mode, known)
    if not options.modes:
        raise _core.InvalidError(f"no modes; take some of {', '.join(known)}")
    if options.chunk < 1:
        raise _core.InvalidError(f"a chunk of {options.chunk} bytes; take at least 1")
    if options.groups < 1:
        raise _core.InvalidError(f"{options.groups} groups; take at least 1")
    if (options.threads or 0) + options.aggregators > MOST_THREADS:
        raise _core.InvalidError(f"more than {MOST_THREADS} threads; take fewer")
    return options


def scale_of(query: str, size: int) -> float:
    """The scale at which the columns of a query have about this size."""
    row = sum(tpch.WIDTHS[name] for name in headrace_bench.query_columns(query))
    return size / row / tpch.ROWS_PER_SCALE


class _Bench:
    def __init__(self, options: QueryBenchOptions, table_path: Path, stop: Stop) -> None:
        self.options = options
        self.table_path = table_path
        self.stop = stop
        self.started = datetime.now(UTC)
        self.machine = _core.Machine.discover(storage=[table_path])
        self.slow, self.fast = _choose_nodes(self.machine, options)
        self.table = headrace_bench.Table.open(self.machine, table_path)
        self.engines = headrace_bench.Engines(
            self.machine, engine=options.engine, route=options.route
        )
        self.groups = _groups(self.machine, options.groups, self.slow, self.fast)
        there = [len(cpus) for cpus, _, _ in self.groups] or [len(os.sched_getaffinity(0))]
        self.threads = options.threads or min(there)
        known = {"query": options.query, "scale": f"{options.scale:g}"}
        # The transfer alone is that of one group.
        floor = () if self.groups else (FLOOR,)
        modes = (*options.modes, *floor)
        self.variants = {mode: Variant({**known, "mode": mode}) for mode in modes}
        self.runner = Runner([*self.variants.values()], options.runs, draw=self._draw)
        self._ends = ExitStack()
        self._duckdb: Child | None = None

    def _draw(self, variants: Sequence[Variant], rounds: int, seed: int) -> list[list[Variant]]:
        return [
            [self.variants[mode] for mode in order if mode in self.variants]
            for order in orders(self.options.modes, rounds, seed)
        ]

    def run(self, progress: Progress | None = None) -> None:
        """Round after round; a mode that cannot run is left out of the rest."""
        with self._ends:
            self.runner.run(
                lambda variant, _: self._run_once(variant.parameters["mode"]), self.stop, progress
            )

    def duckdb(self) -> Child:
        """The peer, in a process of its own, which it may end where memory is limited."""
        if self._duckdb is None:
            self._duckdb = self._ends.enter_context(Child("DuckDB"))
        return self._duckdb

    def _run_once(self, mode: Any) -> Any:
        if mode == PEER:
            return _run_duckdb(self)
        if mode == FLOOR:
            return headrace_bench.measure_transfer_floor(
                self.table, self.engines, query=self.options.query, slow=self.slow.id,
                fast=self.fast.id, block=self.options.chunk, stop=self.stop,
            )  # fmt: skip
        return headrace_bench.run_query(
            self.table, self.engines, query=self.options.query, mode=mode,
            groups=self.groups or [([], self.slow.id, self.fast.id)], block=self.options.chunk,
            threads=self.threads, aggregators=self.options.aggregators,
            budget=self.options.budget, lead=self.options.lead, window=self.options.window,
            stop=self.stop,
        )  # fmt: skip

    def document(self) -> dict[str, Any]:
        """All of it, in the order people read it."""
        ours = [run for mode in MODES for run in self._found(mode)]
        peers = self._found(PEER)
        prefetch = self._middle("prefetch")
        return {
            "schema_version": _core.SCHEMA_VERSION,
            "kind": "bench query",
            "query": self.options.query,
            "scale": self.options.scale,
            "table_rows": self.table.rows,
            "bytes": self._bytes(),
            "block_bytes": self.options.chunk,
            "budget_bytes": self.options.budget,
            "threads": self.threads,
            "aggregators": self.options.aggregators,
            "groups": max(len(self.groups), 1),
            "slow": _node(self.slow),
            "fast": _node(self.fast),
            "answer": _answer(ours[0].answer) if ours else (peers[0].answer if peers else None),
            "answer_ok": _answers_agree(ours, peers),
            "rows": [row.asdict() for row in self._rows()],
            "rounds": self.options.runs,
            "order": self.runner.order(),
            "cache": _cache(prefetch),
            "timeline": {
                mode: _timeline(run)
                for mode in ("direct", "prefetch")
                if (run := self._middle(mode)) is not None
            },
            "sql": headrace_bench.query_sql(self.options.query),
            "interrupted": self.runner.interrupted,
            "warnings": self._warnings(),
            **_provenance(self.machine, self.started),
        }

    def _rows(self) -> Iterator[_core.Row]:
        """A row per mode, the transfer alone, and the share of the work that is overlapped."""
        for mode, variant in self.variants.items():
            yield self.runner.row("query", variant, "s", self._seconds(mode), **self._more(mode))
        compute = median_of([{"s": each} for each in self._seconds("resident")], "s")
        shares = overlap_efficiencies(self._seconds(FLOOR), compute, self._seconds("prefetch"))
        if shares:
            known = self.variants["prefetch"].parameters
            yield row_of("overlap", known, "share", shares)

    def _found(self, mode: str) -> list[Any]:
        return self.variants[mode].results if mode in self.variants else []

    def _bytes(self) -> int:
        widths = {column.name: column.width for column in self.table.columns}
        wanted = headrace_bench.query_columns(self.options.query)
        return int(self.table.rows * sum(widths[name] for name in wanted))

    def _more(self, mode: str) -> dict[str, Any]:
        """Details and words of a mode's row."""
        runs = self._found(mode)
        if mode == FLOOR:
            return {}
        cached = max((run.cached_before for run in runs), default=None)
        details: dict[str, Any] = {"cached_before_bytes": cached, "bytes": self._bytes()}
        if mode == PEER:
            words = {
                "engine": f"DuckDB {tpch.version_of('duckdb')}",
                "source_files": "Parquet files (SNAPPY)",
            }
            return {"details": details | {"bytes": sum(r.bytes for r in runs[:1])}, "words": words}
        times = [{"compute": run.compute, "waited": run.waited} for run in runs]
        details["compute_seconds"] = median_of(times, "compute")
        # The kernel waits in page faults, where nobody counts.
        details["waited_seconds"] = None if mode == "mmap" else median_of(times, "waited")
        return {"details": details}

    def _seconds(self, mode: str) -> list[float]:
        return [run if mode == FLOOR else run.time for run in self._found(mode)]

    def _middle(self, mode: str) -> Any:
        """The run of median time: of an even number the slower of the middle two."""
        runs = sorted(self._found(mode), key=lambda run: run.time)
        return runs[len(runs) // 2] if runs else None

    def _warnings(self) -> list[str]:
        warnings = list(self.machine.warnings)
        for mode in self.options.modes:
            warm = max((run.cached_before for run in self._found(mode)), default=0)
            if warm:
                warnings.append(f"{mode} did not start cold: {warm} bytes were in the page cache")
        return warnings


@dataclass(frozen=True)
class _PeerRun:
    answer: dict[str, Any]
    time: float
    cached_before: int
    bytes: int


def orders(modes: Sequence[str], rounds: int, seed: int = SEED) -> list[list[str]]:
    """The modes of each round, in random order.

    The floor and the mode compared with it are neighbours, each first in turn, because the speed of
    a disk changes from minute to minute.
    """
    generator = random.Random(seed)
    pair = [mode for mode in (FLOOR, "prefetch") if mode == FLOOR or mode in modes]
    generator.shuffle(pair)
    result = []
    for _ in range(rounds):
        pair = pair[::-1]
        steps = [pair, *([mode] for mode in modes if mode != "prefetch")]
        generator.shuffle(steps)
        result.append([mode for step in steps for mode in step])
    return result


def overlap_efficiencies(
    transfers: list[float], compute: float | None, prefetches: list[float]
) -> list[float]:
    """Per round, the larger of what has to be done / the time taken: 1 when the smaller is hidden
    in full. A mode runs in every round until it fails, so equal places are of the same round.
    """
    if compute is None:
        return []
    return [
        max(transfer, compute) / prefetch
        for transfer, prefetch in zip(transfers, prefetches, strict=False)
    ]


def _run_duckdb(bench: _Bench) -> _PeerRun:
    """The query by DuckDB from cold Parquet files, with as many threads as we take."""
    paths = tpch.parquet_files(bench.table_path)
    files = [_core.File.open(bench.machine, path) for path in paths]
    for file in files:
        file.drop_page_cache()
    cached = sum(file.page_cache_residency() for file in files)
    threads = (bench.threads + bench.options.aggregators) * max(len(bench.groups), 1)
    columns, rows, seconds = bench.duckdb().call(
        timed_query, headrace_bench.query_sql(bench.options.query), paths, threads,
        stop=bench.stop,
    )  # fmt: skip
    size = sum(file.size for file in files)
    return _PeerRun(_peer_answer(columns, rows), seconds, cached, size)


def timed_query(
    sql: str, paths: list[Path], threads: int
) -> tuple[list[str], list[tuple[Any, ...]], float]:
    """Columns, rows and seconds of a query over `lineitem`, by DuckDB in this process."""
    with tpch.duckdb_connection() as connection:
        connection.execute(f"SET threads = {threads}")
        names = ", ".join("'" + str(path).replace("'", "''") + "'" for path in paths)
        connection.execute(
            f"CREATE TEMP VIEW lineitem AS SELECT * FROM read_parquet([{names}])"
        )
        start = time.perf_counter()
        cursor = connection.execute(sql)
        rows = cursor.fetchall()
        seconds = time.perf_counter() - start
        return [column[0] for column in cursor.description or ()], rows, seconds


def _peer_answer(columns: list[str], rows: list[tuple[Any, ...]]) -> dict[str, Any]:
    keys = [name for name in columns if name in ("l_returnflag", "l_linestatus")]
    values = [name for name in columns if name not in keys]
    answer: dict[str, Any] = {"columns": [*keys, *values], "rows": []}
    for row in rows:
        cells = dict(zip(columns, row, strict=True))
        answer["rows"].append(
            {
                "keys": [str(cells[name]) for name in keys],
                # A sum over no rows is NULL in SQL and zero here.
                "values": [_text(cells[name]) for name in values],
            }
        )
    return answer


def _text(value: Any) -> str:
    if value is None:
        return "0"
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _answer(answer: Any) -> dict[str, Any]:
    return {
        "columns": list(answer.columns),
        "rows": [{"keys": list(row.keys), "values": list(row.values)} for row in answer.rows],
    }


def _answers_agree(ours: list[Any], peers: list[_PeerRun]) -> bool | None:
    """Whether every run gave the peer's answer, exactly; None if there is nothing to compare."""
    if not ours or not peers:
        return None
    oracle = peers[0].answer
    same_peers = all(peer.answer == oracle for peer in peers)
    return same_peers and all(answers_equal(_answer(run.answer), oracle) for run in ours)


def answers_equal(ours: dict[str, Any], oracle: dict[str, Any]) -> bool:
    """Whether our answer is the oracle's: the same rows in the same order, all numbers equal.

    Sums and counts are compared as decimals. The oracle's averages would be floating point, so it
    is not asked for them: ours must follow from its sums and counts by the rule they are printed
    by (rounded half away from zero to AVERAGE_DIGITS digits).
    """
    if len(ours["rows"]) != len(oracle["rows"]):
        return False
    for our_row, oracle_row in zip(ours["rows"], oracle["rows"], strict=True):
        expected = _cells(oracle["columns"], oracle_row)
        for average, total in AVERAGES.items():
            if average in ours["columns"]:
                expected[average] = str(average_of(expected[total], expected["count_order"]))
        actual = _cells(ours["columns"], our_row)
        if actual.keys() != expected.keys():
            return False
        keys = ours["columns"][: len(our_row["keys"])]
        for name, value in actual.items():
            other = expected[name]
            if value != other if name in keys else Decimal(value) != Decimal(other):
                return False
    return True


def _cells(columns: list[str], row: dict[str, Any]) -> dict[str, str]:
    return dict(zip(columns, [*row["keys"], *row["values"]], strict=True))


def average_of(total: str, count: str) -> Decimal:
    """total / count, rounded half away from zero to AVERAGE_DIGITS digits."""
    from decimal import localcontext

    with localcontext(prec=100):
        unit = Decimal(1).scaleb(-AVERAGE_DIGITS)
        return (Decimal(total) / Decimal(count)).quantize(unit, ROUND_HALF_UP)


def _choose_nodes(machine: Any, options: QueryBenchOptions) -> tuple[Any, Any]:
    """DRAM -> HBM where there is HBM, else the disk the tables are on -> DRAM."""
    # A node of CPUs whose memory slots are empty can hold nothing.
    memory, hbm, storage = (
        [node for node in machine.of_kind(kind) if node.capacity != 0]
        for kind in ("dram", "hbm", "storage")
    )
    if options.fast is not None:
        fast = _named_node(machine, options.fast)
    elif hbm or memory:
        fast = (hbm or memory)[0]
    else:
        raise _core.AbsentError("no memory node of kind dram or hbm; name one with --fast")
    if options.slow is not None:
        return _named_node(machine, options.slow), fast
    candidates = [*memory, *storage] if fast.kind == "hbm" else [*storage, *memory]
    for slow in candidates:
        if slow.id != fast.id:
            return slow, fast
    raise _core.AbsentError(f"no node slower than node {fast.id}; name one with --slow")


def _groups(machine: Any, count: int, slow: Any, fast: Any) -> list[tuple[list[int], int, int]]:
    """CPUs, slow and fast node of each group: memories are those nearest to the CPUs."""
    if count == 1:
        return []
    nodes = [node for node in machine.nodes if node.cpus]
    if count > len(nodes):
        raise _core.InvalidError(f"{count} groups; this machine has {len(nodes)} nodes with CPUs")

    def near(wanted: Any, node: Any) -> int:
        kinds = machine.of_kind(wanted.kind)
        if wanted.kind == "storage" or not kinds:
            return int(wanted.id)
        if wanted.kind == node.kind:
            return int(node.id)
        lists = [each for each in kinds if any(a.initiator == node.id for a in each.access)]
        same = [each for each in kinds if each.socket == node.socket]
        return int((lists or same or [wanted])[0].id)

    return [(node.cpus, near(slow, node), near(fast, node)) for node in nodes[:count]]


def _named_node(machine: Any, number: int) -> Any:
    if not 0 <= number < 1 << 31:  # more than C++ has space for
        raise _core.AbsentError(f"no node {number}; headrace topo lists the nodes")
    return machine.node(number)


def _node(node: Any) -> dict[str, Any]:
    return {"id": node.id, "kind": node.kind, "name": node.name}


def _cache(prefetch: Any) -> dict[str, Any] | None:
    return None if prefetch is None or prefetch.cache is None else prefetch.cache.asdict()


def _timeline(run: Any) -> dict[str, Any]:
    return {"seconds": run.time, "blocks": [block.asdict() for block in run.blocks]}


def _provenance(machine: Any, started: datetime) -> dict[str, Any]:
    return {
        "machine": machine.asdict(),
        "version": _core.__version__,
        "date": started.isoformat(timespec="seconds"),
        "rests_on": rests_on(machine),
        "software": {
            "python": platform.python_version(),
            "duckdb": tpch.version_of("duckdb"),
            "tpchgen-cli": tpch.version_of("tpchgen-cli"),
        },
    }
