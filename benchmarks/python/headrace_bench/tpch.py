# SPDX-License-Identifier: Apache-2.0
"""TPC-H data as column files: generated once by tpchgen, converted, and reused.

A table directory holds ``table.json``, one ``<column>.bin`` per column the queries read
(little-endian integers, fixed-point where SQL has decimals), and the Parquet files it was made
from under ``lineitem/``, which the peer reads. It appears under its name only when it is complete:
all is written to a hidden directory beside it, flushed to the disk and renamed. A directory of that
name that holds anything else is somebody's own and is left alone.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace import _core
from headrace._errors import error_of
from headrace._files import cache_directory, read_whole
from headrace._format import installing
from headrace._isolated_calls import Child, death

if TYPE_CHECKING:
    import duckdb

#: Called with the present step, the amount done, and the total.
Progress = Callable[[str, float, float], object]

#: lineitem has about this many rows per unit of scale (TPC-H specification, 4.2.5.1).
ROWS_PER_SCALE = 6_000_000
#: Orders of a unit of scale, each with 1 to 7 rows (ibid.).
ORDERS_PER_SCALE = 1_500_000
#: Rows generated and converted at a time: about 100 MB as 64-bit integers.
ROWS_PER_PART = 2_000_000
#: Space a row needs while it is converted: Parquet (about 36 B by tpchgen 4) and columns (13 B),
#: rounded up by half.
BYTES_PER_ROW = 75
#: Bytes of a value in a column file.
_WIDTHS = (1, 2, 4, 8)
#: The narrowest ones for the values of the queries' columns (ibid., 4.2.3).
WIDTHS = {
    "l_shipdate": 2, "l_returnflag": 1, "l_linestatus": 1, "l_quantity": 2, "l_extendedprice": 4,
    "l_discount": 1, "l_tax": 1,
}  # fmt: skip
#: How tpchgen names the parts of a table.
_PARQUET = re.compile(r"lineitem/lineitem\.\d+\.parquet")
#: Above this even the columns of one query are tens of gigabytes.
LARGEST_SCALE = 1000.0


@dataclass(frozen=True)
class _Source:
    """The conversion of a Parquet column to integers."""

    name: str
    sql: str
    scale: int = 0


#: Dates become days since 1970-01-01, decimals their hundredths, flags their character.
_SOURCES = (
    _Source("l_shipdate", "l_shipdate - DATE '1970-01-01'"),
    _Source("l_returnflag", "ascii(l_returnflag)"),
    _Source("l_linestatus", "ascii(l_linestatus)"),
    _Source("l_quantity", "CAST(l_quantity * 100 AS BIGINT)", 2),
    _Source("l_extendedprice", "CAST(l_extendedprice * 100 AS BIGINT)", 2),
    _Source("l_discount", "CAST(l_discount * 100 AS BIGINT)", 2),
    _Source("l_tax", "CAST(l_tax * 100 AS BIGINT)", 2),
)


def default_directory() -> Path:
    """The directory of all tables: ``$HEADRACE_DATA``, or the user's cache directory."""
    chosen = os.environ.get("HEADRACE_DATA")
    if chosen:
        return Path(chosen)
    return cache_directory() / "tpch"


def table_directory(scale: float, directory: Path | None = None) -> Path:
    """The directory of the table of that scale, whether it is there or not."""
    return (directory or default_directory()) / _name(scale)


def _name(scale: float) -> str:
    """A unique name for each scale: 3.0 is sf3, and 3.0000001 is another table."""
    return f"sf{float(scale)!r}".removesuffix(".0")


def parquet_files(table: Path) -> list[Path]:
    """The Parquet files a table was made from."""
    return sorted((table / "lineitem").glob("*.parquet"))


def is_complete(table: Path) -> bool:
    """Whether all files of the table exist with the sizes in its description."""
    try:
        description = json.loads(read_whole(table / "table.json"))
        rows, columns = description["rows"], description["columns"]
        return (
            description["schema_version"] == _core.SCHEMA_VERSION
            and _name(description["scale_factor"]) == table.name
            and [column["name"] for column in columns] == [source.name for source in _SOURCES]
            and all(column["width"] in _WIDTHS for column in columns)
            and all(
                _column_file(table, column["name"]).stat().st_size == rows * column["width"]
                for column in columns
            )
            and len(parquet_files(table)) == description["parts"]
        )
    except (OSError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError):
        return False


def _column_file(table: Path, column: str) -> Path:
    return table / f"{column}.bin"


def _is_ours(table: Path) -> bool:
    """Whether the directory is empty, or a table's with only files that this module writes."""
    if table.is_symlink() or not table.is_dir():
        return False
    found = {path.relative_to(table).as_posix() for path in table.rglob("*")}
    known = {"table.json", "lineitem", *(f"{source.name}.bin" for source in _SOURCES)}
    foreign = {name for name in found - known if not _PARQUET.fullmatch(name)}
    return not found or ("table.json" in found and not foreign)


def prepare(
    scale: float, directory: Path | None = None, progress: Progress | None = None
) -> Path:
    """The directory of the table of that scale, made first if it is not there.

    Raises InvalidError for a scale that makes no sense, ExhaustedError when the disk has no space,
    DeniedError or IoError when it cannot be written. An interruption leaves nothing behind.
    """
    check_scale(scale)
    told = progress or _no_progress
    return prepared(
        table_directory(scale, directory), is_complete, _is_ours, scale,
        ROWS_PER_SCALE * BYTES_PER_ROW, lambda new: _make(scale, new, told),
    )  # fmt: skip


def prepared(
    table: Path, complete: Callable[[Path], bool], ours: Callable[[Path], bool], scale: float,
    bytes_per_scale: int, make: Callable[[Path], object],
) -> Path:  # fmt: skip
    """A directory of that scale, made first if it is not complete. `ours`: it may be replaced.
    `make` fills a new directory, which then takes its place.
    """
    if complete(table):
        return table
    try:
        table.parent.mkdir(parents=True, exist_ok=True)
        _check_free_to_take(table, ours)
        remove_leftovers(table)
        _check_room(table.parent, scale, int(scale * bytes_per_scale) + (1 << 20))
        with work_directory(table) as work:
            (work / "new").mkdir()
            make(work / "new")
            for path in [*(work / "new").rglob("*"), work / "new"]:
                flush(path)
            _put_in_place(work, table, complete, ours)
    except _core.Error:
        raise
    except OSError as error:
        raise error_of(error, f"cannot make {table}", "another --data directory") from None
    return table


def check_scale(scale: float) -> None:
    """InvalidError: no table of that scale can be made."""
    if not 0 < scale <= LARGEST_SCALE:
        raise _core.InvalidError(f"scale {scale:g}; take more than 0 and at most {LARGEST_SCALE:g}")
    if scale * ORDERS_PER_SCALE < 1:
        raise _core.InvalidError(f"scale {scale:g} has no rows; take 0.000001 or more")


def _no_progress(what: str, done: float, total: float) -> None:
    """Reports nothing."""


def _check_room(parent: Path, scale: float, needed: int) -> None:
    free = shutil.disk_usage(parent).free
    if free < needed:
        raise _core.ExhaustedError(
            f"scale {scale:g} needs {_core.format_bytes(needed)} in {parent}, which has "
            f"{_core.format_bytes(free)} free; take a smaller --scale or another --data directory"
        )


def _check_free_to_take(table: Path, ours: Callable[[Path], bool]) -> None:
    if os.path.lexists(table) and not ours(table):
        raise _core.InvalidError(
            f"{table} exists and was not made by headrace; choose another --data directory"
        )


@contextmanager
def work_directory(table: Path) -> Iterator[Path]:
    """A hidden directory beside the table, removed at the end and locked until then."""
    work = Path(tempfile.mkdtemp(prefix=f".{table.name}.", dir=table.parent))
    try:
        # A process number would mean nothing in another container that shares the directory. The
        # lock is taken before others can find it.
        with (work / "unlocked").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (work / "unlocked").rename(work / "lock")
            yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def remove_leftovers(table: Path) -> None:
    """Removes incomplete directories of killed processes: no process holds their lock."""
    # The ending that mkdtemp makes has no dot: names of other tables do not match.
    ours = re.compile(re.escape(f".{table.name}.") + "[a-z0-9_]{8}")
    for leftover in table.parent.iterdir():
        if not ours.fullmatch(leftover.name):
            continue
        try:
            with (leftover / "lock").open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(leftover, ignore_errors=True)
        except OSError:
            continue  # at work, or another user's


def _put_in_place(
    work: Path, table: Path, complete: Callable[[Path], bool], ours: Callable[[Path], bool]
) -> None:
    # mkdir obeys the umask; data may be shared.
    (work / "new").chmod(0o755)
    # An incomplete or outdated table of this name is replaced. A complete one was made by another
    # process meanwhile, and stays.
    if complete(table):
        return
    _check_free_to_take(table, ours)
    try:
        if table.exists():
            table.rename(work / "old")
        (work / "new").rename(table)
    except OSError:
        if not complete(table):
            raise
    flush(table.parent)


def _make(scale: float, work: Path, progress: Progress) -> None:
    parts = max(1, round(scale * ROWS_PER_SCALE / ROWS_PER_PART))
    what = f"TPC-H lineitem at scale {scale:g}"
    total = 2 * parts + 1
    for part in range(1, parts + 1):
        progress(what, part - 1, total)
        _generate(scale, part, parts, work)
    progress(what, parts, total)
    with Child("DuckDB") as duckdb:
        columns, rows = duckdb.call(_describe, work)
        _convert(duckdb, work, columns, lambda done: progress(what, parts + 1 + done, total))
    description = {
        "schema_version": _core.SCHEMA_VERSION,
        "rows": rows,
        "columns": columns,
        "table": "lineitem",
        "scale_factor": scale,
        "parts": parts,
        "generator": f"tpchgen-cli {version_of('tpchgen-cli')}",
    }
    (work / "table.json").write_text(json.dumps(description, indent=2) + "\n")
    progress(what, total, total)


def _generate(scale: float, part: int, parts: int, work: Path) -> None:
    run_generator(scale, ["lineitem"], work, "--parts", str(parts), "--part", str(part))


def run_generator(scale: float, tables: list[str], work: Path, *options: str) -> None:
    """Writes Parquet files into a work directory. Raises if that fails."""
    command = [
        _generator(), "parquet", "--scale-factor", repr(scale), "--tables", ",".join(tables),
        *options, "--output-dir", str(work), "--quiet",
    ]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        lines = result.stderr.strip().splitlines()
        # An interruption of the terminal reaches the generator too.
        if result.returncode in (-2, 130):
            raise KeyboardInterrupt
        if result.returncode < 0:
            raise death("tpchgen-cli", result.returncode)
        reason = lines[-1] if lines else f"exit code {result.returncode}"
        doing = f"tpchgen-cli could not write {work.parent.parent}"
        # Rust ends its messages with the number of the kernel's.
        if number := re.search(r"os error (\d+)", result.stderr):
            code = int(number[1])
            raise error_of(OSError(code, os.strerror(code)), doing, "another --data directory")
        raise _core.IoError(f"{doing}: {reason}")


def _generator() -> str:
    """The generator of this installation, else of the PATH."""
    installed = Path(sys.executable).parent / "tpchgen-cli"
    found = str(installed) if installed.exists() else shutil.which("tpchgen-cli")
    if found is None:
        raise _core.AbsentError(f"no tpchgen-cli; run: {installing(['tpchgen-cli'])}")
    return found


def version_of(package: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "of unknown version"


@contextmanager
def duckdb_connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """A new DuckDB with cold caches. Its errors become Headrace's."""
    try:
        import duckdb as module
    except ImportError:
        raise _core.AbsentError(f"no duckdb; run: {installing(['duckdb'])}") from None
    try:
        with module.connect() as connection:
            # Its bar would be drawn over ours.
            connection.execute("SET enable_progress_bar = false")
            yield connection
    except module.OutOfMemoryException as error:
        raise _core.ExhaustedError(f"DuckDB: {_first_line(error)}") from None
    except module.Error as error:
        raise _core.IoError(f"DuckDB: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _describe(work: Path) -> tuple[list[dict[str, Any]], int]:
    """The columns with the narrowest width that holds all their values, and the rows."""
    limits = ", ".join(f"min({s.sql}), max({s.sql})" for s in _SOURCES)
    with duckdb_connection() as connection:
        files = [str(path) for path in parquet_files(work)]
        row = connection.execute(f"SELECT count(*), {limits} FROM read_parquet(?)", [files])
        rows, *values = row.fetchone() or (0,)
    columns = []
    for source, low, high in zip(_SOURCES, values[::2], values[1::2], strict=True):
        width = next(
            w for w in _WIDTHS if -(1 << (8 * w - 1)) <= low and high < 1 << (8 * w - 1)
        )
        columns.append({"name": source.name, "width": width, "scale": source.scale})
    return columns, rows


def _convert(
    duckdb: Child, work: Path, columns: list[dict[str, Any]], done: Callable[[int], object]
) -> None:
    """Writes the column files, part after part, so that memory stays bounded."""
    for index, part in enumerate(parquet_files(work)):
        duckdb.call(_append, part, work, columns)
        done(index)


def _append(part: Path, work: Path, columns: list[dict[str, Any]]) -> None:
    """Writes a part's rows at the ends of the column files."""
    selected = ", ".join(f"{source.sql} AS {source.name}" for source in _SOURCES)
    with duckdb_connection() as connection:
        arrays = connection.execute(
            f"SELECT {selected} FROM read_parquet(?)", [str(part)]
        ).fetchnumpy()
    for column in columns:
        with _column_file(work, column["name"]).open("ab") as file:
            file.write(arrays[column["name"]].astype(f"<i{column['width']}").data)


def flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
