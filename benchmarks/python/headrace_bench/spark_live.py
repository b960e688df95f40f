# SPDX-License-Identifier: Apache-2.0
"""TPC-H on Spark in the configurations of a talk (P. Zhou, MemCon 2024), each answer checked
against DuckDB's.

Every configuration has a Spark of its own. All are up at the same time, and each round asks all of
them. In the discarded round a JVM compiles.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import headrace
from headrace import _programs as programs
from headrace._errors import error_of
from headrace._isolated_calls import Child
from headrace_bench import spark_events, spark_session, tpch, tpch_parquet
from headrace_bench.runner import Progress, Runner, Stop, Variant, median_of, wrong_of
from headrace_bench.spark import QUERIES
from headrace_bench.two_memories import (
    INTERLEAVES,
    bytes_by_node,
    free_bytes,
    kind_in_memory,
    memories_here,
    no_interleave,
    placed,
    slow_share,
)

SPILLS = ("ssd-spill", "tmpfs-spill")
CONFIGS = ("MMEM", *INTERLEAVES, "Hot-Promote", *SPILLS)
#: Memory of a JVM besides its heap: code, stacks, network buffers.
_BESIDE_HEAP = 500 << 20
#: Heap that Spark reserves for itself (RESERVED_SYSTEM_MEMORY_BYTES of UnifiedMemoryManager).
_RESERVED = 300 << 20
#: The least heap that Spark starts with, 1.5 times that, rounded up.
LEAST_HEAP = 512 << 20
#: Files of the four queries per unit of scale, rounded up from 650 MB; Spark keeps those of a round
#: until it collects its garbage.
_FILES_PER_SCALE = 1 << 30
_NO_PROMOTION = "between nodes the memory of another program is not promoted here yet"
#: Each thread of a master here has as much by default, and all together at least those of two.
_HEAP_PER_THREAD = 256 << 20
_SPILL_PER_THREAD = 8 << 20
_PARTITIONS_PER_THREAD = 2
_LEAST_DEFAULTS = (2 << 30, 16 << 20, 64)
_LOCAL = re.compile(r"local(\[(\*|[1-9][0-9]{0,3})\])?")


@dataclass(frozen=True)
class Options:
    queries: list[str]
    configs: list[str]
    scale: float
    rounds: int
    master: str
    memory: int  #: bytes of the heap of each JVM
    spill_memory: int  #: bytes that tasks may take in the configurations that spill
    partitions: int
    spill: Path  #: where shuffled and spilled files go, on an SSD
    data: Path | None

    @property
    def files(self) -> int:
        """Bytes that one Spark may shuffle and spill."""
        return int(_FILES_PER_SCALE * self.scale) * (self.rounds + 1)


def threads_of(master: str, cpus: int) -> int:
    """Threads of a master on a host with `cpus` CPUs. InvalidError: no local master."""
    match = _LOCAL.fullmatch(master)
    if match is None:
        raise headrace.InvalidError(f"no master '{master}'; give local[2]")
    if match[2] is None:
        return 1
    return cpus if match[2] == "*" else int(match[2])


def defaults(threads: int) -> tuple[int, int, int]:
    """Bytes of a heap, bytes of it for tasks that spill, partitions: no task is to starve."""
    each = (_HEAP_PER_THREAD, _SPILL_PER_THREAD, _PARTITIONS_PER_THREAD)
    heap, spill, partitions = (
        max(least, threads * one) for least, one in zip(_LEAST_DEFAULTS, each, strict=True)
    )
    return heap, spill, partitions


def points(options: Options) -> list[Variant]:
    scale = f"{options.scale:g}"
    return [
        Variant({"config": config, "query": query, "scale": scale})
        for query in options.queries for config in options.configs
    ]  # fmt: skip


def config_of(point: Variant) -> str:
    return str(point.parameters["config"])


def query_of(point: Variant) -> str:
    return str(point.parameters["query"])


def check(options: Options) -> None:
    """Raises what can be said before anything is made or started."""
    spark_session.check_installed()
    if options.memory < LEAST_HEAP:
        raise headrace.InvalidError(
            f"--memory {headrace.format_bytes(options.memory)}: Spark takes "
            f"{headrace.format_bytes(LEAST_HEAP)} or more"
        )
    if not 1 << 20 <= options.spill_memory <= tasks_memory(options.memory):
        raise headrace.InvalidError(
            f"--spill-memory {headrace.format_bytes(options.spill_memory)}: give 1 MiB to "
            f"{headrace.format_bytes(tasks_memory(options.memory))}, what tasks have of --memory"
        )
    if not options.spill.is_dir():
        raise headrace.AbsentError(f"no directory {options.spill}; give another --spill")


def tasks_memory(heap: int) -> int:
    """Memory that Spark gives to tasks: 0.6 of the heap (spark.memory.fraction)."""
    return int(0.6 * (heap - _RESERVED))


def leave_out(points: list[Variant], machine: headrace.Machine, options: Options) -> None:
    """Gives points that this machine cannot run their reason. ExhaustedError: it can run none."""
    here = memories_here(machine)
    for point in points:
        config = config_of(point)
        if config == "Hot-Promote":
            point.fail("unsupported", _NO_PROMOTION)
        elif config in INTERLEAVES:
            point.fail(*no_interleave(machine, INTERLEAVES[config]))
        elif config == "ssd-spill" and kind_in_memory(options.spill):
            told = f"{options.spill} is in memory; give a --spill directory on an SSD"
            point.fail("absent", told)
        elif config == "tmpfs-spill" and here.slow is None and not here.alone:
            point.fail("absent", here.why)
        elif config == "tmpfs-spill" and (trouble := _tmpfs_trouble(here.slow)):
            point.fail("denied", f"no tmpfs can be mounted: {trouble}")
    _check_space({config_of(point) for point in points if not point.reason}, options)


def _tmpfs(slow: int | None, size: int, directory: str) -> list[str]:
    """The command that starts a program with a tmpfs that only it sees, and that ends with it; in
    the slow memory where there is one.
    """
    where = "" if slow is None else f",mpol=prefer:{slow}"
    mount = f'mount -t tmpfs -o size={size}{where} tmpfs "$0" && exec "$@"'
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", *user, "--mount", "sh", "-c", mount, directory]


def _tmpfs_trouble(slow: int | None) -> str:
    """Why there can be none."""
    if shutil.which("unshare") is None:
        return "no unshare(1)"
    with tempfile.TemporaryDirectory(prefix="headrace-spark-") as directory:
        told = subprocess.run(
            [*_tmpfs(slow, 1 << 20, directory), "true"], capture_output=True, text=True,
            errors="replace", timeout=60,
        )  # fmt: skip
    return "" if told.returncode == 0 else programs.last_line(told.stderr)


def _check_space(configs: set[str], options: Options) -> None:
    heaps = len(configs) * (options.memory + _BESIDE_HEAP)
    in_memory = configs if kind_in_memory(options.spill) else {"tmpfs-spill"}
    files = options.files * len(configs & in_memory)
    free = free_bytes()
    if free is not None and heaps + files > 0.9 * free:
        what = f"{len(configs)} JVMs take some {headrace.format_bytes(heaps)}"
        less = "less --memory or fewer --configs"
        if files:
            what += f", their files in memory {headrace.format_bytes(files)}"
            less = "a smaller --scale, fewer --rounds, less --memory or fewer --configs"
        raise headrace.ExhaustedError(
            f"{what}, and {headrace.format_bytes(free)} are free; give {less}"
        )
    on_disk = options.files * len(configs - {"tmpfs-spill"})
    space = shutil.disk_usage(options.spill).free
    if on_disk > space:
        raise headrace.ExhaustedError(
            f"scale {options.scale:g} may spill {headrace.format_bytes(on_disk)} into "
            f"{options.spill}, which has {headrace.format_bytes(space)} free; take a smaller "
            "--scale or another --spill directory"
        )


def versions(engine: str) -> dict[str, str]:
    """`engine`: what Spark says of itself; empty if none was up."""
    java = [spark_session.java() or "java", "-version"]
    told = subprocess.run(java, capture_output=True, text=True, errors="replace", timeout=60)
    return {
        "spark": engine or tpch.version_of("pyspark"),
        "java": (told.stderr.splitlines() or ["of unknown version"])[0].strip(),
        "duckdb": tpch.version_of("duckdb"),
        "tpchgen-cli": tpch.version_of("tpchgen-cli"),
    }


def run(
    points: list[Variant], tables: Path, machine: headrace.Machine, options: Options, stop: Stop,
    progress: Progress,
) -> tuple[str, Runner]:  # fmt: skip
    """Fills the points. Spark's version, and their runner."""
    # Drivers have another working directory.
    fast = memories_here(machine).fast
    runs = _Runs(points, tables.absolute(), fast, options, stop, progress)
    runner: Runner | None = None
    with ExitStack() as ends:
        try:
            runs.right_answers()
            for config in dict.fromkeys(config_of(point) for point in points if not point.reason):
                runs.begin(config, ends, machine)
            runner = Runner(points, options.rounds)
            runner.run(runs.once, stop, progress)
        except headrace.CancelledError:  # before the first round
            pass
        runs.end()
    return runs.version, runner or Runner(points, options.rounds)


@dataclass
class _Up:
    spark: spark_session.Spark
    log: Path
    own: ExitStack  #: what ends with this configuration


@dataclass
class _Runs:
    points: list[Variant]
    tables: Path
    fast: int | None  #: the node that memory should be on
    options: Options
    stop: Stop
    progress: Progress
    up: dict[str, _Up] = field(default_factory=dict)
    version: str = ""  #: of the Spark that is up; empty if none was
    right: dict[str, list[list[Any]]] = field(default_factory=dict)  #: DuckDB's answers

    def right_answers(self) -> None:
        self.progress(0, 1, "DuckDB's answers")
        queries = dict.fromkeys(query_of(point) for point in self.points if not point.reason)
        with Child("DuckDB") as child:
            self.right = {
                query: child.call(_duckdb, str(self.tables), QUERIES[query], stop=self.stop)
                for query in queries
            }

    def begin(self, config: str, ends: ExitStack, machine: headrace.Machine) -> None:
        self.progress(0, 1, f"{config}: Spark starts")
        options = self.options
        own = ends.enter_context(ExitStack())
        try:
            directory = own.enter_context(_directory(options.spill.absolute()))
            local, log = directory / "local", directory / "events"
            for each in (local, log):
                each.mkdir()
            launch = placed(machine, INTERLEAVES.get(config))
            if config == "tmpfs-spill":
                slow = memories_here(machine).slow
                launch += _tmpfs(slow, options.files + (64 << 20), str(local))
            spark = own.enter_context(spark_session.started(launch, directory, self.stop))
            tables = {t: str(self.tables / tpch_parquet.file_of(t)) for t in tpch_parquet.TABLES}
            spark.begin(options.master, _settings(config, options, directory), tables)
            self.up[config] = _Up(spark, log, own)
            self.version = spark.version
        except headrace.CancelledError:
            raise
        except headrace.Error as error:
            self._fails(config, error)
            own.close()

    def once(self, point: Variant, number: int) -> dict[str, Any]:
        config, query = config_of(point), query_of(point)
        up = self.up[config]
        try:
            answer = up.spark.query(QUERIES[query], _group(query, number))
        except headrace.CancelledError:
            raise
        except headrace.Error as error:
            self._fails(config, error)
            self._read_log(config)
            # Nothing of it runs beside the others, and no late answer is taken for another's.
            self.up.pop(config).own.close()
            raise
        by_node = bytes_by_node(up.spark.process)
        return {
            "seconds": answer["seconds"], "node_bytes": by_node, "number": number,
            "slow_share": slow_share(by_node, self.fast) if by_node else None,
            "wrong": not same(answer["answer"], self.right[query]),
        }  # fmt: skip

    def end(self) -> None:
        """Ends Spark: shuffled and spilled bytes are known when all is logged."""
        for config, up in self.up.items():
            try:
                up.spark.end()
            except headrace.Error:
                pass
            self._read_log(config)

    def _read_log(self, config: str) -> None:
        work: dict[str, spark_events.Work] = {}
        for file in self.up[config].log.iterdir():
            with file.open(errors="replace") as lines:
                work |= spark_events.parse(lines)
        for point in self.points:
            for found in point.results if config_of(point) == config else ():
                logged = work.get(_group(query_of(point), found["number"]))
                found |= {} if logged is None else asdict(logged)

    def _fails(self, config: str, error: headrace.Error) -> None:
        for point in self.points:
            if config_of(point) == config:
                point.fail(error.code, str(error))


@contextmanager
def _directory(parent: Path) -> Iterator[Path]:
    try:
        made = tempfile.TemporaryDirectory(
            prefix="headrace-spark-", dir=parent, ignore_cleanup_errors=True
        )
    except OSError as error:
        raise error_of(error, "cannot make a directory for Spark", "another --spill") from None
    with made as name:
        yield Path(name)


def _group(query: str, number: int) -> str:
    """The discarded round is number 0 in Spark's log."""
    return f"{query} {number + 1}"


def _settings(config: str, options: Options, directory: Path) -> dict[str, str]:
    """Shuffle-heavy: no join is done by sending a table to all, and no partitions are merged."""
    memory = f"{options.memory >> 20}m"
    settings = {
        "spark.driver.memory": memory,
        "spark.executor.memory": memory,
        "spark.memory.storageFraction": "0",
        "spark.sql.shuffle.partitions": str(options.partitions),
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.adaptive.enabled": "false",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": f"file:{directory}/warehouse",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file:{directory}/events",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Nothing of a JVM is to stay in /tmp.
        "spark.driver.extraJavaOptions": f"-XX:-UsePerfData -Djava.io.tmpdir={directory}",
        # The driver listens, and would do what any account of this machine asks. With a secret,
        # which Spark draws itself where all is one process, it does not.
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.authenticate": "true",
    }
    if config in SPILLS:
        fraction = options.spill_memory / (options.memory - _RESERVED)
        settings["spark.memory.fraction"] = f"{fraction:.6f}"
    return settings


def _duckdb(tables: str, sql: str) -> list[list[Any]]:
    with tpch.duckdb_connection() as connection:
        for table in tpch_parquet.TABLES:
            path = Path(tables, tpch_parquet.file_of(table))
            literal = str(path).replace("'", "''")
            connection.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{literal}')")
        return [list(row) for row in connection.execute(sql).fetchall()]


def same(answer: list[list[Any]], right: list[list[Any]]) -> bool:
    """Sums of decimals are exact in both. Quotients are not: Spark rounds them to six digits and
    DuckDB's are floating point.
    """
    return len(answer) == len(right) and all(
        len(row) == len(other) and all(map(_same_cell, row, other))
        for row, other in zip(answer, right, strict=True)
    )


def _same_cell(cell: Any, right: Any) -> bool:
    try:
        if isinstance(right, float):
            return abs(float(cell) - right) <= 1e-6
        return Decimal(cell) == right if isinstance(right, Decimal) else bool(cell == right)
    except (ValueError, TypeError, ArithmeticError):
        return False


def rows(runner: Runner) -> list[headrace.Row]:
    return [_row(runner, point) for point in runner.variants]


def _row(runner: Runner, point: Variant) -> headrace.Row:
    found = point.results
    names = ("slow_share", *asdict(spark_events.Work()))
    details: dict[str, float | None] = {name: median_of(found, name) for name in names}
    places = [each["node_bytes"] for each in found if each["node_bytes"]]
    for node, size in places[-1].items() if places else ():
        details[f"bytes_on_node_{node}"] = size
    details |= wrong_of(sum(each["wrong"] for each in found), found)
    return runner.row("spark", point, "s", [each["seconds"] for each in found], details=details)
