# SPDX-License-Identifier: Apache-2.0
"""Headrace brings data to the memory that will use it, before it is used.

>>> import headrace
>>> machine = headrace.Machine.discover()
>>> mover = headrace.Mover(machine)
>>> cache = headrace.Cache(mover, {0: 256 << 20})
>>> column = headrace.File.open(machine, "column.bin")
>>> with cache.access(column.extent(0, 1 << 20)) as block:
...     total = block.numpy("int32").sum()
"""

from headrace._arenas import arena
from headrace._argument_errors import ArgumentError
from headrace._arrays import empty

from headrace._core import (  # isort: skip
    LARGEST_DOCUMENT, LINES_PER_THREAD, SCHEMA_VERSION, AbsentError, AccessAttributes,
    AdvisedNode, Arena, Arenas, ArenaUse, Backends, Block, Buffer, Cache,
    CacheExplanation, CacheLevel, CacheStats, CacheStep, CacheTenant, CacheTenantStats,
    CancelledError, Capabilities, Comparison,
    CompletionQueue,
    CopyFit, CopyRate, CostChange, Crossover, DeniedError, Difference, DsaFinding, Engine,
    Error, ExhaustedError, ExperimentInfo, Extent, File, Flip, FreeMemory, GatherLimit,
    GpuAttributes, HotChunk, Hotness, HotnessCost, HotnessSample, HotnessSource,
    HotnessTraits, InstanceGain, InterleaveAdvice, Interval, InvalidError, IoError, Knee,
    KvGeometry, KvJobs, KvLayer, KvLoad, KvMatch, KvShared, KvStats, KvStore, KvStored,
    KvStoredCounts, KvTierStats, Link, Machine, MemoryRange, MemorySideCache, Mover,
    MoverStats, MoveStats, NamedSpread, Node, Object, PageTier, ParameterInfo, Percentiles,
    Placement, PlannedPoint, Prefetch, PrefetchProgress, ProcessTier, ProcessTierStep,
    ProcessTierTotals, Profile, Residency, Row, ServerSaving, Shift, Spread, StreamRun,
    Strided, Summary, TierDecision, TierStep, TimedOutError, Touch, Tracking, Transfer,
    UnifiedMemoryGpu, UnsupportedError, UserSource, __version__, accesses_of,
    advise_interleave, allocate, arenas_in_plan, cache_steps, chosen_copy_kernel, compare,
    copy_bytes, copy_fits, copy_kernels, cost_sensitivity, crossovers, examine_dsa,
    experiments, format_bytes, format_rate, free_memory, gpu_driver, hotness_sources,
    instance_gain, kv_key, knees, least_heat_that_pays, measure, measure_hotness_cost,
    measure_quickly, merge, open_hotness, pages_for, plan_arenas, plan_session, presets,
    relocate, restore_after_kill, server_saving, set_process_policy, stream_fill,
    stream_kernels, stream_run, summarize, tier_process, unified_memory_gpu, where,
    zipf_accesses_of, zipf_pages_for,
)  # fmt: skip
from headrace._selection import as_written

__all__ = [
    "LARGEST_DOCUMENT", "LINES_PER_THREAD", "SCHEMA_VERSION", "AbsentError", "AccessAttributes",
    "AdvisedNode", "Arena", "ArenaUse", "Arenas", "ArgumentError", "Backends", "Block",
    "Buffer", "Cache", "CacheExplanation", "CacheLevel", "CacheStats", "CacheStep",
    "CacheTenant", "CacheTenantStats", "CancelledError",
    "Capabilities", "Comparison", "CompletionQueue", "CopyFit", "CopyRate", "CostChange",
    "Crossover", "DeniedError", "Difference", "DsaFinding", "Engine", "Error", "ExhaustedError",
    "ExperimentInfo", "Extent", "File", "Flip", "FreeMemory", "GatherLimit", "GpuAttributes",
    "HotChunk", "Hotness", "HotnessCost", "HotnessSample", "HotnessSource", "HotnessTraits",
    "InstanceGain", "InterleaveAdvice", "Interval", "InvalidError", "IoError", "Knee",
    "KvGeometry", "KvJobs", "KvLayer", "KvLoad", "KvMatch", "KvShared", "KvStats", "KvStore",
    "KvStored", "KvStoredCounts", "KvTierStats", "Link", "Machine", "MemoryRange",
    "MemorySideCache", "MoveStats", "Mover", "MoverStats", "NamedSpread", "Node", "Object",
    "PageTier",
    "ParameterInfo", "Percentiles", "Placement", "PlannedPoint", "Prefetch", "PrefetchProgress",
    "ProcessTier", "ProcessTierStep", "ProcessTierTotals", "Profile", "Residency", "Row",
    "ServerSaving", "Shift", "Spread", "StreamRun", "Strided", "Summary", "TierDecision",
    "TierStep",
    "TimedOutError", "Touch", "Tracking", "Transfer", "UnifiedMemoryGpu", "UnsupportedError",
    "UserSource",
    "__version__", "accesses_of", "advise_interleave", "allocate", "arena", "arenas_in_plan",
    "cost_sensitivity", "examine_dsa", "cache_steps", "chosen_copy_kernel", "compare",
    "copy_bytes", "copy_fits", "copy_kernels", "crossovers", "empty", "experiments",
    "format_bytes", "format_rate", "free_memory", "gpu_driver", "hotness_sources",
    "instance_gain", "knees", "kv_key", "least_heat_that_pays", "measure", "measure_hotness_cost",
    "measure_quickly", "merge", "open_hotness", "pages_for", "plan_arenas", "plan_session",
    "presets", "relocate", "restore_after_kill", "server_saving", "set_process_policy",
    "stream_fill", "stream_kernels", "stream_run", "summarize", "tier_process",
    "unified_memory_gpu", "where", "zipf_accesses_of", "zipf_pages_for",
]  # fmt: skip

# Parameters as the command takes them: sizes with units, mixes by the names of other tools.
measure = as_written(measure)
plan_session = as_written(plan_session)

# Public classes say where people find them.
for _value in list(globals().values()):
    if isinstance(_value, type) and _value.__module__ == "headrace._core":
        _value.__module__ = __name__
del _value
