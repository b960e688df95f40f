"""bench layer and bench kvcache on a GPU made of software, and where there is none."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import Headrace

from headrace._llm import kvcache, layer, models

FAKE = Path(__file__).resolve().parents[3] / "build" / "release" / "libheadrace-fake-cuda.so"
NONE = {"HEADRACE_LIBCUDA": "/nowhere/libcuda.so.1"}
LAYER = ["bench", "layer", "--model", "llama-3.2-1b", "--batch", "1", "--context", "64", "--dtype",
         "int8", "--repetitions", "2", "--directory", "/proc", "--on", "gpu"]  # fmt: skip
CACHE = ["bench", "kvcache", "--requests", "24", "--block-tokens", "2", "--work", "0.02%",
         "--rounds", "1", "--seed", "5", "--on", "gpu"]  # fmt: skip


@pytest.fixture
def gpu() -> dict[str, str]:
    if not FAKE.exists():
        pytest.skip(f"no {FAKE}; cmake --build --preset release makes it")
    return {"HEADRACE_LIBCUDA": str(FAKE), "HEADRACE_FAKE_CUDA": "memory=256M,sms=4"}


def test_a_layer_that_a_gpu_reads(run: Headrace, gpu: dict[str, str]) -> None:
    result = run(*LAYER, "--json", env=gpu)
    assert (result.returncode, result.stderr) == (0, ""), result
    document = json.loads(result.stdout)
    (row,) = document["rows"]
    assert row["basis"] == "emulated" and row["device"] == "Headrace fake GPU"
    assert row["ms_per_layer"] > 0 and len(row["ms_samples"]) == 2
    assert row["peak_bytes_per_second"] >= row["bytes_per_second"] > 0
    assert document["rests_on"]["level"] == "emulation"
    assert {each["kind"]: each["bytes_per_second"] for each in document["engines"]}["cpu"] is None


def test_a_layer_larger_than_what_a_gpu_has_free(run: Headrace, gpu: dict[str, str]) -> None:
    result = run(*LAYER, env=gpu | {"HEADRACE_FAKE_CUDA": "memory=32M,sms=4"})
    assert result.returncode == 0, result
    assert " emulated Headrace fake GPU, " in result.stdout
    assert " again and again: not enough is free on gpu" in result.stdout


def test_a_cache_in_a_gpu(run: Headrace, gpu: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    chosen = ["--policies", "layerwise,ahead", "--data", str(tmp_path), "--out", str(out)]
    result = run(*CACHE, *chosen, env=gpu)
    assert (result.returncode, result.stderr) == (0, ""), result
    document = json.loads(out.read_text())
    assert document["rests_on"]["level"] == "emulation"
    assert [row["policy"] for row in document["rows"]] == ["layerwise", "ahead"]
    for row in document["rows"]:
        assert row["basis"] == "emulated" and row["verified"] is True and row["requests"] == 24
        assert list(row["hit_rate"]) == ["gpu", "dram", "ssd"]
    (load,) = document["loads"]
    assert load["basis"] == "emulated" and load["bytes_per_second"] > 0
    assert set(document["rates"]) == {"gpu", "dram", "ssd"}
    assert result.stdout.count(" emulated\n") == 2


def test_pages_have_the_size_that_the_kernel_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those that headrace.where() counts, which stand in the same column."""
    monkeypatch.setattr("mmap.PAGESIZE", 65536)
    nothing: Any = None
    node: Any = SimpleNamespace(id=7, capacity=1 << 30)
    load = layer.Load(models.model("llama-3.2-1b"), 1, 64, "int8", "bf16")
    bench = layer.GpuBench(nothing, load, "gpu", node)
    found: Any = SimpleNamespace(
        layers=[], others=[], emulated=True, device="", threads_per_block=256
    )  # fmt: skip
    bench.found = found
    assert bench.row()["residency"] == {7: bench.size // 65536}
    options: Any = SimpleNamespace(device=SimpleNamespace(node=node))
    cache = kvcache.Bench(options, nothing, nothing, nothing, nothing)
    cache.to = bytes(3 * 65536)
    assert cache.residency() == {"7": 3}


@pytest.mark.parametrize("arguments", [LAYER, CACHE])
def test_without_a_gpu_the_reason_and_the_remedy(run: Headrace, arguments: list[str]) -> None:
    result = run(*arguments, env=NONE)
    assert result.returncode == 3 and result.stdout == ""
    assert result.stderr.count("\n") == 1 and "HEADRACE_LIBCUDA" in result.stderr
    assert "or give --on dram" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([*LAYER, "--threads", "1"], "--on gpu is read by a GPU; leave out --threads"),
        ([*CACHE, "--store", "asyncio"], "no store 'asyncio'; there are headrace"),
        ([*CACHE[:-1], "hope"], "no place 'hope'; there are dram, gpu"),
        ([*CACHE, "--rates", "dram=1GB/s"], "--rates models a machine; leave out --"),
    ],
)
def test_nonsense_is_one_line(
    run: Headrace, gpu: dict[str, str], arguments: list[str], told: str
) -> None:
    result = run(*arguments, env=gpu)
    assert result.returncode == 2, result
    assert result.stderr.startswith(f"headrace: {told}") and result.stderr.count("\n") == 1
