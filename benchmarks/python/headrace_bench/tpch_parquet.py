# SPDX-License-Identifier: Apache-2.0
"""All tables of TPC-H as Parquet files: generated once by tpchgen, and reused.

They lie beside the column files of tpch.py, under the name of their scale with ``-parquet``, and
appear there only when they are complete. A directory of that name that holds anything else is
somebody's own and is left alone.
"""

from __future__ import annotations

from pathlib import Path

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
    return tpch.prepared(
        directory_of(scale, directory), is_complete, _is_empty, scale, BYTES_PER_SCALE,
        lambda new: tpch.run_generator(scale, list(TABLES), new),
    )  # fmt: skip


def _is_empty(tables: Path) -> bool:
    return tables.is_dir() and not any(tables.iterdir())
