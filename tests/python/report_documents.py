# SPDX-License-Identifier: Apache-2.0
"""Documents for the report's tests: what the commands write, with plausible made-up numbers."""

from __future__ import annotations

from typing import Any

from headrace_bench.runner import row_of

from headrace._profile.nested import details_of

Row = dict[str, Any]

COLUMNS = {"l_shipdate": 2, "l_discount": 1, "l_quantity": 2, "l_extendedprice": 4}


def machine() -> Row:
    return {
        "schema_version": 1,
        "name": "testbed",
        "source": "discovered",
        "nodes": [
            {"id": 0, "kind": "dram", "reason": "has CPUs", "capacity_bytes": 24 << 30,
             "name": "node 0", "cpus": [0, 1]},
            {"id": 1000, "kind": "storage", "reason": "block device", "capacity_bytes": 252 << 30,
             "name": "vda", "cpus": []},
        ],
        "engines": [
            {"id": 0, "kind": "cpu", "name": "cpu0", "home": 0},
            {"id": 1, "kind": "ssd", "name": "vda", "home": 1000},
        ],
        "copy_rates": [
            {"engine": 0, "from": 0, "to": 0, "bandwidth_bytes_per_second": 1.21e10},
            {"engine": 1, "from": 1000, "to": 0, "bandwidth_bytes_per_second": 7.6e8},
            {"engine": 1, "from": 0, "to": 1000, "bandwidth_bytes_per_second": 4.1e8},
        ],
        "provenance": {"cpu": "Example CPU", "kernel": "Linux 6.1"},
    }  # fmt: skip


def run(mode: str, chunks: int = 60, rate: float = 7.5e8) -> Row:
    """A run of one worker: direct fetches when asked, prefetch as fast as the disk can."""
    blocks, now, disk = [], 0.0, 0.0
    for chunk in range(chunks):
        for column, width in COLUMNS.items():
            size = 262144 * width
            wanted = now
            start = now if mode == "direct" else disk
            end = start + size / rate
            disk = end
            had = max(wanted, end)
            now = had + size / 4e9
            blocks.append(
                {"column": column, "chunk": chunk, "bytes": size, "fetch_start": start,
                 "fetch_end": end, "wait_start": wanted, "wait_end": had, "use_end": now}
            )  # fmt: skip
    return {"seconds": now, "blocks": blocks}


def query_row(mode: str, seconds: list[float], reason: str = "") -> Row:
    found = row_of(
        "query", {"query": "q6", "scale": "3", "mode": mode}, "s", seconds, reason=reason,
        details={"cached_before_bytes": 0},
    )  # fmt: skip
    return dict(found.asdict())


def overlap_row(shares: list[float]) -> Row:
    parameters = {"query": "q6", "scale": "3", "mode": "prefetch"}
    return dict(row_of("overlap", parameters, "share", shares).asdict())


def replace(document: Row, row: Row) -> None:
    """The row with the same experiment and parameters."""
    for number, each in enumerate(document["rows"]):
        if (each["experiment"], each["parameters"]) == (row["experiment"], row["parameters"]):
            document["rows"][number] = row


def query(chunks: int = 60) -> Row:
    runs = {mode: run(mode, chunks) for mode in ("direct", "prefetch")}
    size = sum(block["bytes"] for block in runs["direct"]["blocks"])
    middles = {
        "resident": size / 4e9,
        "direct": runs["direct"]["seconds"],
        "mmap": runs["direct"]["seconds"] * 0.93,
        "prefetch": runs["prefetch"]["seconds"],
        "duckdb": runs["direct"]["seconds"] * 1.1,
    }
    wobble = (0.98, 0.99, 1.0, 1.01, 1.05)
    return {
        "schema_version": 1,
        "kind": "bench query",
        "query": "q6",
        "scale": 3,
        "table_rows": chunks * 262144,
        "bytes": size,
        "threads": 1,
        "slow": {"id": 1000, "kind": "storage", "name": "vda"},
        "fast": {"id": 0, "kind": "dram", "name": "node 0"},
        "answer_ok": True,
        "rows": [
            *(query_row(mode, [s * w for w in wobble]) for mode, s in middles.items()),
            query_row("floor", [size / 7.6e8]),
            overlap_row([size / 7.6e8 / middles["prefetch"]]),
        ],
        "cache": {"hits": 200, "inflight_hits": 39, "misses": 1, "late": 39, "wasted_bytes": 0},
        "timeline": runs,
        "machine": machine(),
        "version": "0.1.0",
        "date": "2026-11-21T04:00:00+00:00",
        "rests_on": {"level": "real hardware", "detail": "measured here, in a virtual machine"},
        "software": {"duckdb": "2.0.0"},
        "warnings": [],
    }  # fmt: skip


def rates() -> list[Row]:
    rows = [
        ("memory read", "node 0, 2 threads", 2.9e10), ("memory copy", "node 0, 1 thread", 1.21e10),
        ("disk read", "vda, 1 MiB × 16", 7.6e8), ("disk write", "vda, 1 MiB × 16", 4.1e8),
    ]  # fmt: skip
    return [
        {"what": what, "where": where, "bytes_per_second": rate, "spread": 0.02, "reason": ""}
        for what, where, rate in rows
    ]


def copies() -> Row:
    rows = []
    for state in ("cold", "hot"):
        for engine, gain in (("memcpy", 1.0), ("cpu", 2.1), ("avx2_nt", 2.1), ("sse2_nt", 1.8)):
            for exponent in range(6, 31, 2):
                large = exponent >= 18
                ratio = gain if large and state == "cold" else 1.0
                if state == "hot" and "nt" in engine:
                    ratio = 0.4
                rows.append(
                    row_of(
                        "copy",
                        {"engine": engine, "bytes": 1 << exponent, "threads": 1, "state": state},
                        "B/s", [5e9 * ratio], details={"ratio_to_memcpy": ratio},
                    ).asdict()
                )  # fmt: skip
    return {"kind": "bench copy", "rows": rows}


def whole() -> Row:
    return {
        "schema_version": 1, "machine": machine(), "rates": rates(), "copy": copies(),
        "query": query(), "version": "0.1.0", "date": "2026-11-21T04:00:00+00:00",
        "rests_on": {"level": "real hardware", "detail": "measured here, in a virtual machine"},
    }  # fmt: skip


def kv() -> Row:
    """A document of `headrace bench kv`: a server that settles, and one with a single sample."""
    sample = {"memory": {"0": 700 << 20}, "swap": 100 << 20, "file": 0}
    times = {"p50_us": 150.0, "p99_us": 900.0, "p999_us": 2000.0, "slow_share": 0.25}
    names = [{"server": server, "config": config, "workload": "C"}
             for server, config in (("redis", "Hot-Promote"), ("own", "MMEM"), ("redis", "CXL"))]
    rows = [row_of("keyvalue", name, "op/s", [40000.0, 41000.0], details=times)
            for name in names[:2]]  # fmt: skip
    rows.append(row_of("keyvalue", names[2], "op/s", [], code="absent", reason="there is none"))
    looks = [{"round": None if x < 2 else 0, "seconds": x / 4} | sample for x in range(6)]
    return {
        "schema_version": 1, "kind": "bench kv", "version": "0.1.0", "rounds": 1,
        "records": 1000, "clients": 8, "machine": machine(),
        "rows": [row.asdict() for row in rows],
        "pages": [names[0] | {"pages": looks}, names[1] | {"pages": looks[5:]}],
    }  # fmt: skip


def kvcache() -> Row:
    def row(store: str, policy: str, stall: float | None) -> Any:
        found = {
            "with_cached": 3, "hit_rate": {"dram": 0.1, "ssd": 0.2}, "stall_p99_ms": stall,
            "hidden_share": stall and 0.5, "waited_of_alone": stall and 1.25,
            "roofline_share": stall and 0.4,
        }  # fmt: skip
        return row_of(
            "kvcache", {"store": store, "policy": policy}, "ms", [stall] if stall else [],
            details=details_of(found), flags=["noisy"] if store == "own" else [],
        )  # fmt: skip

    rows = [
        row("own", "layerwise", 1.5), row("peer", "layerwise", 3.0), row("peer", "demand", None),
        row_of("kvcache_load", {"store": "own", "tier": "ssd"}, "B/s", [1e9, 2e9, 3e9]),
        row_of("kvcache_interference", {"of": "layer", "beside": "loads"}, "share", [0.8]),
    ]  # fmt: skip
    return {
        "schema_version": 1, "kind": "bench kvcache", "model": "tiny", "block_tokens": 2,
        "block_bytes": 8192, "rates": {"dram": 1e9}, "hides": {"dram": 12.0, "ssd": 99.0},
        "scale": {"requests": 20, "of_requests": 12031, "work": 0.005},
        "rows": [each.asdict() for each in rows],
    }  # fmt: skip


def layer() -> Row:
    row = row_of(
        "layer", {"on": "hbm"}, "ms", [1.5, 1.7], details={"bytes_per_second": 3e11}
    ).asdict()
    engines = [
        {"engine": "cpu0", "bytes": 1_000_000, "target_ms": 2.0, "reason": ""},
        {"engine": "dsa0", "bytes": None, "target_ms": 2.0, "reason": "see elsewhere"},
        {"engine": "vda", "bytes": 5, "target_ms": 2.0, "reason": "", "source": "into node 0"},
    ]
    return {
        "schema_version": 1, "kind": "bench layer", "model": "tiny", "batch": 1, "context": 2,
        "dtype": "bf16", "kv_dtype": "bf16", "weight_bytes": 1, "kv_bytes": 2,
        "claim_needs_bytes_per_second": 5e11, "rows": [row], "engines": engines,
    }  # fmt: skip


def stream(counts: list[int], rate: float = 1e10) -> Row:
    places = {"a": "8", "b": "8", "c": "8"}
    rows = [
        row_of(
            "stream", {"kernel": kernel, **places, "threads": threads, "rank": "all"}, "B/s",
            [0.9 * rate * threads, rate * threads] if rate else [],
            details={"best": rate * threads},
        ).asdict()
        for threads in counts for kernel in ("copy", "scale", "add", "triad")
    ]  # fmt: skip
    ranks = [{**places, "threads": counts[-1]} for _ in range(8)]
    return {"kind": "bench stream", "ranks": ranks, "repetitions": 2, "rows": rows}
