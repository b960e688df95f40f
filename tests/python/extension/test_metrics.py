# SPDX-License-Identifier: Apache-2.0
"""Pages for Prometheus, its dashboard, and the trace for Perfetto."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from conftest import Run
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import headrace

DASHBOARD = Path(__file__).resolve().parents[3] / "python" / "share" / "headrace" / "grafana.json"


def samples(page: str) -> dict[str, float]:
    """As Prometheus reads them: with names of counters that end in _total, and labels."""
    assert page.endswith("# EOF\n")
    found = {}
    for family in text_string_to_metric_families(page):
        assert family.documentation
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}"] = sample.value
    return found


def used(mover: headrace.Mover, node: int, payload_file: Path, **options: str) -> headrace.Cache:
    cache = headrace.Cache(mover, {node: 8 << 20}, **options)  # type: ignore[arg-type]
    file = headrace.File.open(mover.machine, payload_file)
    for _ in range(2):
        for start in range(0, 3 << 20, 1 << 20):
            with cache.access(file.extent(start, 1 << 20)) as block:
                block.wait()
    return cache


def test_prometheus_reads_counts_of_a_cache(
    mover: headrace.Mover, memory_node: int, payload_file: Path
) -> None:
    cache = used(mover, memory_node, payload_file)
    name = 'of "weights"\\\n'
    found = samples(cache.metrics(name))
    stats = cache.stats()
    assert found[f"headrace_cache_accesses_total{{cache={name},state=ready}}"] == stats.hits == 3
    assert found[f"headrace_cache_accesses_total{{cache={name},state=absent}}"] == 3
    assert found[f"headrace_cache_used_bytes{{cache={name}}}"] == stats.bytes_used
    assert found[f"headrace_cache_copy_seconds_count{{cache={name}}}"] == 3
    assert 0 < found[f"headrace_cache_copy_seconds{{cache={name},quantile=0.5}}"] < 60


@pytest.mark.skipif(not Path("/proc/self/numa_maps").exists(), reason="a kernel without numa_maps")
def test_prometheus_reads_where_memory_is(run: Run) -> None:
    result = run("where", "--metrics", str(os.getpid()))
    assert (result.returncode, result.stderr) == (0, "")
    found = samples(result.stdout)
    assert all(f"pid={os.getpid()}" in name for name in found)
    memory = [value for name, value in found.items() if "process_memory_bytes" in name]
    assert sum(memory) > 1 << 20
    both = run("where", "--json", "--metrics", str(os.getpid()))
    assert both.returncode == 2
    assert "--json and --metrics exclude each other" in both.stderr


def test_prometheus_reads_the_state_of_tiering(run: Run) -> None:
    result = run("tier", "status", "--metrics")
    assert (result.returncode, result.stderr) == (0, "")
    found = samples(result.stdout)
    assert set(found.values()) & {0.0, 1.0}
    assert any(name.startswith("headrace_tier_events_total{event=") for name in found)
    assert run("tier", "status", "--metrics", "--watch", "1").returncode == 2


def test_the_dashboard_shows_what_the_pages_have(
    mover: headrace.Mover, memory_node: int, payload_file: Path, run: Run
) -> None:
    pages = used(mover, memory_node, payload_file).metrics()
    pages += run("where", "--metrics", str(os.getpid())).stdout
    source = Path(headrace.__file__).with_name("_cli") / "tier" / "status.py"
    named = set(re.findall(r"headrace_\w+", pages))
    text = source.read_text()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            for name in re.findall(r"headrace_\w+", target["expr"]):
                stem = name.removesuffix("_total").removeprefix("headrace_tier_swap_")
                assert name in named or stem in text, name


def test_perfetto_opens_the_lives_of_blocks(
    mover: headrace.Mover, memory_node: int, payload_file: Path, tmp_path: Path
) -> None:
    cache = used(mover, memory_node, payload_file, trace=str(tmp_path / "blocks.json"))
    assert cache.stats().hits == 3
    del cache
    events = json.loads((tmp_path / "blocks.json").read_text())
    names = [event["name"] for event in events]
    assert [names.count(name) for name in ("miss", "hit")] == [3, 3]
    slices = [event["name"] for event in events if event["ph"] == "b"]
    assert [slices.count(name) for name in ("fill", "ready")] == [3, 3]
    assert len([event for event in events if event["ph"] == "e"]) == 6
    with pytest.raises(headrace.AbsentError, match="cannot create"):
        headrace.Cache(mover, {memory_node: 8 << 20}, trace=str(tmp_path / "absent" / "x"))
