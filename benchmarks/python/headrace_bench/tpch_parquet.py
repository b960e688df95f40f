# SPDX-License-Identifier: Apache-2.0
"""All tables of TPC-H as Parquet files: generated once by tpchgen, and reused.

They lie beside the column files of tpch.py, under the name of their scale with ``-parquet``, and
appear there only when they are complete. A directory of that name that holds anything else is
somebody's own and is left alone.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from headrace import _core
from headrace._errors import error_of
from headrace_bench import tpch

TABLES = (
    "customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier"
)  # fmt: skip
#: Bytes of all tables together per unit of scale (327 MB by tpchgen 4), rounded up.
BYTES_PER_SCALE = 400 << 20


def directory_of(scale: float, directory: Path | None = None) -> Path:
    """The directory of the tables of that scale, whether it is there or not."""
    plain = tpch.table_directory(scale, directory)
    return plain.with_name(f"{plain.name}-parquet")


def file_of(table: str) -> str:
    return f"{table}.parquet"


def is_complete(tables: Path) -> bool:
    return {path.name for path in tables.glob("*")} == {file_of(name) for name in TABLES}


def prepare(scale: float, directory: Path | None = None) -> Path:
    """The directory of the tables of that scale, made first if it is not there.

    Raises as tpch.prepare(). An interruption leaves nothing behind.
    """
    tpch.check_scale(scale)
    tables = directory_of(scale, directory)
    if is_complete(tables):
        return tables
    try:
        tables.parent.mkdir(parents=True, exist_ok=True)
        if tables.exists() and any(tables.iterdir()):
            raise _core.InvalidError(
                f"{tables} exists and was not made by headrace; choose another --data directory"
            )
        _check_space(tables.parent, scale)
        tpch.remove_leftovers(tables)
        with tpch.work_directory(tables) as work:
            new = work / "new"
            new.mkdir()
            new.chmod(0o755)
            tpch.run_generator(scale, list(TABLES), new)
            for path in [*new.iterdir(), new]:
                tpch.flush(path)
            try:
                new.rename(tables)
            except OSError:
                if not is_complete(tables):  # by another process meanwhile
                    raise
            tpch.flush(tables.parent)
    except OSError as error:
        raise error_of(error, f"cannot make {tables}", "another --data directory") from None
    return tables


def _check_space(parent: Path, scale: float) -> None:
    needed = int(scale * BYTES_PER_SCALE) + (1 << 20)
    free = shutil.disk_usage(parent).free
    if free < needed:
        raise _core.ExhaustedError(
            f"scale {scale:g} needs {_core.format_bytes(needed)} in {parent}, which has "
            f"{_core.format_bytes(free)} free; take a smaller --scale or another --data directory"
        )
