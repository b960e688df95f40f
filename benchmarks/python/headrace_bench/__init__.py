# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of Headrace: the commands of `headrace bench`, and their measurements."""

from importlib import import_module

import headrace as headrace  # first: its extension has the types that ours uses


def _check_build(*extensions: str) -> None:
    """Raises unless both extensions are of one build: objects of one are passed to the other."""
    if len({getattr(import_module(each), "_build_id", str)() for each in extensions}) > 1:
        raise headrace.UnsupportedError(
            "headrace and headrace-bench are of different builds; run: make install, in a clone of "
            "Headrace, or pip install --force-reinstall 'headrace[bench]'"
        )


_check_build("headrace._core", "headrace_bench._core")

from headrace_bench._core import (  # noqa: E402
    HISTOGRAM_BINS,
    Answer,
    AnswerRow,
    BlockTrace,
    Column,
    Engines,
    GpuLayerRun,
    GpuLayers,
    LayerRun,
    QueryRun,
    Table,
    UnifiedMemoryResult,
    UnifiedMemoryRun,
    fill_random,
    histogram_count,
    histogram_fill,
    measure_transfer_floor,
    query_columns,
    query_names,
    query_sql,
    run_layer,
    run_layers_on_gpu,
    run_query,
    run_unified_memory,
)

__all__ = [
    "HISTOGRAM_BINS",
    "Answer",
    "AnswerRow",
    "BlockTrace",
    "Column",
    "Engines",
    "GpuLayerRun",
    "GpuLayers",
    "LayerRun",
    "QueryRun",
    "Table",
    "UnifiedMemoryResult",
    "UnifiedMemoryRun",
    "fill_random",
    "histogram_count",
    "histogram_fill",
    "measure_transfer_floor",
    "query_columns",
    "query_names",
    "query_sql",
    "run_layer",
    "run_layers_on_gpu",
    "run_query",
    "run_unified_memory",
]
